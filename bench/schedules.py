"""What 10,000 schedules cost an agent while none is due, beside an agent without any, and how late
runs begin.

Run alone: `python -m bench.schedules`.
"""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import psutil
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from bench import processes
from bench.inventory import cpu_seconds
from bench.report import p50, p95, verdict
from guest.memory.factory import open_file
from guest.memory.storage.erasure import Eraser
from guest.schedules.store import SCHEDULES_MAX, Schedule, Schedules
from tests.support.settings import memory_config

GOAL_MS: Final = 1_000
_RUNS: Final = 100
_RUNS_A_SECOND: Final = 2
_SETTLED_S: Final = 5.0


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` looks at the rest for five minutes instead of one."""
    minutes = 5 if full else 1
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxb-") as scratch:
        without, given = await asyncio.gather(
            *(
                _measured(Path(scratch) / str(count), count, minutes)
                for count in (0, SCHEDULES_MAX - _RUNS)
            )
        )
    return [f"schedules (agents side by side, {minutes} min of rest)", *without, *given]


async def _measured(base: Path, count: int, minutes: int) -> list[str]:
    settings = processes.envelope_at(base)
    now = datetime.now(UTC)
    database = await open_file(memory_config(Path(settings.paths.database)))
    schedules = Schedules(database, Eraser(database), "bench", "maker")
    for number in range(count):
        each = ("", f"n{number}", "look at it", f"{number % 60} 7 1 1 *", "UTC", now.isoformat())
        await schedules.create(Schedule(*each), now)
    await database.close()
    async with processes.agent(settings) as (gateway, process, _):
        starting = cpu_seconds([process])
        await asyncio.sleep(_SETTLED_S)
        at_rest = await _at_rest(process, minutes)
        resident = process.memory_info().rss
        delays = await _delays(gateway)
    return [
        f"  with {count:6,}, processor time: until ready {starting:.2f} s, at rest {at_rest:.2f} s "
        f"a minute; {resident / 2**20:.0f} MiB",
        f"    {len(delays)} runs, {_RUNS_A_SECOND} a second: begin p50 {p50(delays):.0f} ms, "
        f"p95 {p95(delays):.0f} ms late; goal p95 {GOAL_MS} ms {verdict(p95(delays) <= GOAL_MS)}",
    ]


async def _at_rest(process: psutil.Process, minutes: int) -> float:
    before = cpu_seconds([process])
    await asyncio.sleep(minutes * 60)
    return (cpu_seconds([process]) - before) / minutes


async def _delays(gateway: "gateway_pb2_grpc.GatewayAsyncStub") -> list[float]:
    """By how many seconds runs began after their times."""
    first = (datetime.now(UTC) + timedelta(seconds=5)).replace(microsecond=0)
    made = []
    for number in range(_RUNS):
        when = first + timedelta(seconds=number // _RUNS_A_SECOND)
        wanted = pb.CreateScheduleRequest(when=f"{when:%Y-%m-%d %H:%M:%S}+00:00", text="do it")
        made.append(await gateway.CreateSchedule(wanted))
    await asyncio.sleep((when - datetime.now(UTC)).total_seconds())
    delays = []
    for each in made:
        asked = pb.ListScheduleRunsRequest(schedule=each.schedule_id)
        async with asyncio.timeout(60):
            while (
                not (runs := (await gateway.ListScheduleRuns(asked)).runs) or not runs[0].ended_at
            ):
                await asyncio.sleep(0.1)
        run, wanted_session = runs[0], pb.GetSessionRequest(session_id=runs[0].session_id)
        asked_at = (await gateway.GetSession(wanted_session)).events[0].created_at
        delay = datetime.fromisoformat(asked_at) - datetime.fromisoformat(run.slot)
        delays.append(delay.total_seconds())
    return delays


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
