"""Runs whose agent was killed or stopped: begun once more where that was asked for, within twelve
hours."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import RamDatabase
from guest.memory.storage.migrations import MIGRATIONS
from guest.notices.outbox import Outbox
from guest.schedules.scheduler import Ran, Scheduler
from guest.schedules.store import Schedule, Schedules, Slot
from guest.schedules.timing import LATEST, stored

DUE = datetime(2026, 6, 1, 7, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("again", "late", "state", "attempt"),
    [
        (True, LATEST, "done", 2),
        (True, LATEST + SECOND, "unknown", 1),
        (False, SECOND, "unknown", 1),
    ],
)
async def test_a_lost_run_is_begun_once_more_within_twelve_hours(
    again: bool, late: timedelta, state: str, attempt: int
) -> None:
    database = RamDatabase([sql for each in MIGRATIONS for sql in each.statements])
    schedules = Schedules(database, Eraser(database), "alice", "host")
    begun: list[Slot] = []

    async def run(_: Schedule, slot: Slot) -> Ran:
        begun.append(slot)
        return Ran(failed=False, text="done")

    made = await schedules.create(
        Schedule("", "daily", "do", "0 7 * * *", "UTC", stored(DUE), again=again), DUE
    )
    assert await schedules.claim(
        Slot(made.schedule_id, stored(DUE), "running", "host", 1, "s", "t")
    )
    for _ in range(2):  # and not at the start after it
        scheduler = Scheduler(schedules, Outbox(database, "alice"), run, clock=lambda: DUE + late)
        await scheduler.tick()
        await scheduler.finish()
        (slot,) = await schedules.runs(made.schedule_id, 10)
        assert (slot.state, slot.attempt) == (state, attempt)
        await asyncio.sleep(0)
    assert len(begun) == attempt - 1
    (notice,) = await Outbox(database, "alice").newest(10)
    assert ("unknown" in notice.text) == (state == "unknown")
    await database.close()


@pytest.mark.parametrize(("again", "state"), [(True, "done"), (False, "unknown")])
async def test_a_run_that_a_stop_interrupts_is_as_one_that_a_kill_did(
    again: bool, state: str
) -> None:
    database = RamDatabase([sql for each in MIGRATIONS for sql in each.statements])
    schedules = Schedules(database, Eraser(database), "alice", "host")
    ends = iter(
        [Ran(failed=True, text="interrupted", interrupted=True), Ran(failed=False, text="")]
    )

    async def run(*_: object) -> Ran:
        return next(ends)

    made = await schedules.create(
        Schedule("", "daily", "do", "0 7 * * *", "UTC", stored(DUE - SECOND), again=again),
        DUE - SECOND,
    )
    for expected in ("running", state):
        scheduler = Scheduler(schedules, Outbox(database, "alice"), run, clock=lambda: DUE)
        await scheduler.tick()
        await scheduler.finish()
        (slot,) = await schedules.runs(made.schedule_id, 10)
        assert slot.state == expected
    await database.close()


async def test_a_run_whose_time_comes_again_by_a_clock_that_was_set_back_is_told_once() -> None:
    database = RamDatabase([sql for each in MIGRATIONS for sql in each.statements])
    schedules = Schedules(database, Eraser(database), "alice", "host")
    ends = asyncio.Event()
    now = [DUE]

    async def run(*_: object) -> Ran:
        await ends.wait()
        return Ran(failed=False, text="done")

    await schedules.create(
        Schedule("", "daily", "do", "0 7 * * *", "UTC", stored(DUE - SECOND)), DUE - SECOND
    )
    scheduler = Scheduler(schedules, Outbox(database, "alice"), run, clock=lambda: now[0])
    for moment in (DUE, DUE - SECOND, DUE):
        now[0] = moment
        await scheduler.tick()
    ends.set()
    await scheduler.finish()
    (notice,) = await Outbox(database, "alice").newest(10)
    assert notice.text.endswith("sent 1 notice:\n\ndone")
    await database.close()
