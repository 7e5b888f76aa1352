"""What `test_schedules_of_two_agents.py` kills: an agent that runs what is due."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event
from pathlib import Path

from guest.memory.storage.erasure import Eraser
from guest.notices.outbox import Outbox
from guest.schedules.scheduler import Ran, Scheduler
from guest.schedules.store import Schedule, Schedules, Slot
from tests.support.servers import sqld

BEGINS = datetime(2026, 6, 1, tzinfo=UTC)
SLOTS_A_SECOND = 20.0
"""How many minutes of the schedules' clock pass in a second."""


def serve(url: str, owner: str, log: Path, began: float, up: Event) -> None:
    """Run each slot that is claimed: its name is a line of `log`. `began` is when the clock was at
    `BEGINS`, of the monotonic clock. `up` is set once it has looked for the first time."""

    def clock() -> datetime:
        return BEGINS + timedelta(minutes=(time.monotonic() - began) * SLOTS_A_SECOND)

    async def served() -> None:
        async with sqld.connected(url) as database:
            with log.open("a") as file:

                async def run(_: Schedule, slot: Slot) -> Ran:
                    file.write(f"{slot.slot}\n")
                    file.flush()
                    await asyncio.sleep(0.001)
                    return Ran(failed=False, text="done")

                schedules = Schedules(database, Eraser(database), "alice", owner)
                scheduler = Scheduler(schedules, Outbox(database, "alice"), run, clock=clock)
                while True:
                    await scheduler.tick()
                    up.set()
                    await asyncio.sleep(0.005)

    asyncio.run(served())
