"""Of many schedules that are due at once few run, and none of the others is lost."""

import asyncio
from datetime import UTC, datetime, timedelta

from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import RamDatabase
from guest.memory.storage.migrations import MIGRATIONS
from guest.notices.outbox import Outbox
from guest.schedules.scheduler import AT_ONCE, Ran, Scheduler
from guest.schedules.store import Schedule, Schedules, Slot
from guest.schedules.timing import stored

DUE = datetime(2026, 6, 1, 7, tzinfo=UTC)


async def test_those_that_are_due_at_once_run_a_few_at_a_time() -> None:
    database = RamDatabase([sql for each in MIGRATIONS for sql in each.statements])
    schedules = Schedules(database, Eraser(database), "alice", "host")
    on, most, names = 0, 0, list[str]()

    async def run(schedule: Schedule, _: Slot) -> Ran:
        nonlocal on, most
        on += 1
        most = max(most, on)
        await asyncio.sleep(0.01)
        on -= 1
        names.append(schedule.name)
        return Ran(failed=False, text="done")

    for number in range(2 * AT_ONCE + 1):
        made = Schedule("", f"daily {number}", "do", "0 7 * * *", "UTC", stored(DUE))
        await schedules.create(made, DUE - timedelta(minutes=1))
    scheduler = Scheduler(schedules, Outbox(database, "alice"), run, clock=lambda: DUE)
    for _ in range(3):
        await scheduler.tick()
        await scheduler.finish()
    assert most == AT_ONCE == 4
    assert sorted(names) == [f"daily {number}" for number in range(2 * AT_ONCE + 1)]
    await database.close()
