"""Two agents on one real memory server, killed at random moments, run each slot once or not at all,
and tell of those that were not run."""

import asyncio
import random
import time
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import cast

import pytest

from guest.memory.factory import prepare
from guest.memory.storage.erasure import Eraser
from guest.schedules.store import Schedule, Schedules
from tests.support.crashing import scheduling
from tests.support.examples import SEED
from tests.support.servers import sqld

BEGUN_S = 60


@pytest.mark.sqld
@pytest.mark.parametrize("slots", [100, pytest.param(1_000, marks=pytest.mark.long)])
async def test_two_agents_make_one_run(slots: int, tmp_path: Path) -> None:
    chance, log = random.Random(SEED), tmp_path / "runs"
    context = get_context("forkserver")
    context.set_forkserver_preload([scheduling.__name__])
    with sqld.running() as server:
        url = server.url()
        async with sqld.connected(url) as database:
            await prepare(database)
            schedule = Schedule(
                "", "m", "do", "every 1 minutes", "UTC", scheduling.BEGINS.isoformat()
            )
            await Schedules(database, Eraser(database), "alice", "maker").create(
                schedule, scheduling.BEGINS
            )
            began = time.monotonic()

            async def agent(owner: str) -> ForkServerProcess:
                """An agent that is there; on a busy machine it takes seconds to begin."""
                up = context.Event()
                made = context.Process(
                    target=scheduling.serve, args=(url, owner, log, began, up), daemon=True
                )
                made.start()
                assert await asyncio.to_thread(up.wait, BEGUN_S)
                return made

            agents, killed = {owner: await agent(owner) for owner in "ab"}, 0
            ends = time.monotonic() + slots / scheduling.SLOTS_A_SECOND
            try:
                while time.monotonic() < ends:
                    await asyncio.sleep(chance.uniform(0.5, 1.5))
                    victim, killed = chance.choice("ab"), killed + 1
                    agents[victim].kill()
                    agents[victim].join()
                    agents[victim] = await agent(victim)
            finally:
                for each in agents.values():
                    each.kill()
                    each.join()
            ran = log.read_text().split()
            found = (await database.execute("SELECT slot, state, missed FROM slots")).rows
    assert len(ran) > slots / 10
    assert len(ran) == len(set(ran))
    rows = cast("list[tuple[str, str, int]]", found)
    begun = {slot for slot, state, _ in rows if state in ("running", "done", "unknown")}
    assert set(ran) <= begun
    told = sum(missed or 1 for _, _, missed in rows)
    assert len(begun) <= len(ran) + killed  # some were killed between claim and run
    assert slots * 0.8 < told
