"""What the runs of a schedule have cost: counted once, and also where their slots are gone."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.usage import Amount, ModelRequest
from guest.notices.outbox import Outbox
from guest.schedules.scheduler import Scheduler
from guest.schedules.store import KEPT_SLOTS, Schedule, Schedules, Slot
from guest.schedules.timing import stored
from tests.support.memory.store import FakeEmbedder, opened

BEGAN = datetime(2026, 1, 30, 20, tzinfo=UTC)
TOKYO = Schedule("", "tea", "make tea", "every 1 minutes", "Asia/Tokyo", BEGAN.isoformat())


@pytest.fixture
async def memory(path: Path) -> AsyncIterator[Memory]:
    async with opened(path, FakeEmbedder()) as made:
        yield made


def schedules(memory: Memory) -> Schedules:
    return Schedules(memory.store.database, memory.store.eraser, memory.user_id, "host")


async def test_costs_are_those_of_all_runs_of_the_month_and_of_the_day_in_its_zone(
    memory: Memory,
) -> None:
    store = schedules(memory)
    made = await store.create(TOKYO, BEGAN)
    for number in range(KEPT_SLOTS + 5):
        moment = BEGAN + timedelta(minutes=number)
        slot = Slot(made.schedule_id, stored(moment), "running", turn_id=f"t{number}", told=1)
        assert await store.claim(slot)
        ended = replace(slot, state="done", cost=2)
        for _ in range(2):  # the answer to the first one may have been lost
            await store.end(ended, made.day(moment))
    await store.change(made, replace(made, name="coffee"), BEGAN)
    found = await store.find("coffee")
    runs = KEPT_SLOTS + 5
    assert len(await store.runs(made.schedule_id, 2 * runs)) == KEPT_SLOTS
    assert found.costs(moment) == (2 * runs, 2 * runs, 2 * runs)
    assert found.costs(datetime(2026, 1, 31, 14, tzinfo=UTC)) == (2 * runs, 2 * runs, 2 * runs)
    assert found.costs(datetime(2026, 1, 31, 16, tzinfo=UTC)) == (2 * runs, 0, 0)
    await store.claim(replace(slot, slot=stored(BEGAN + timedelta(days=1)), turn_id="t"))
    await store.end(replace(ended, turn_id="t"), "2026-02-01")
    found = await store.find("coffee")
    assert found.costs(datetime(2026, 1, 31, 16, tzinfo=UTC)) == (2 * runs + 2, 2, 2)


async def test_a_change_leaves_alone_what_a_run_writes_meanwhile(memory: Memory) -> None:
    store = schedules(memory)
    before = await store.create(replace(TOKYO, condition="changed tea"), BEGAN)
    slot = Slot(before.schedule_id, before.due, "running", turn_id="t")
    following = BEGAN + timedelta(minutes=2)
    assert await store.claim(slot, before, following)
    await store.end(replace(slot, state="done", cost=2), "2026-01-31", seen="cold", capped=True)
    changed = replace(before, name="coffee", again=True, tools=("file_read",))
    for _ in range(2):
        await store.change(before, changed, BEGAN)
    found = await store.find("coffee")
    assert (found.again, found.tools) == (True, ("file_read",))
    assert (found.due, found.seen, found.capped) == (stored(following), "cold", True)
    await store.change(found, replace(found, paused=True), BEGAN)
    assert (await store.find("coffee")).due == ""


async def test_a_run_that_was_killed_has_cost_what_it_asked_of_models(memory: Memory) -> None:
    store = schedules(memory)
    made = await store.create(TOKYO, BEGAN)
    slot = Slot(made.schedule_id, stored(BEGAN), "running", "host", 1, "s", "t")
    await store.claim(slot)
    for name in ("r1", "r2"):
        request = ModelRequest(name, "s", "t", "answer", "openai", "m", "2026-01-02", "2026-01-02")
        await memory.usage.settle(request, Amount(9, 5, 1, 7), "reported")
    assert [each.cost for each in await store.lost(begins=True)] == [14]


@pytest.mark.parametrize("spent", [0, 20])
async def test_what_a_lost_run_has_cost_counts_also_where_it_is_not_begun_again(
    memory: Memory, spent: int
) -> None:
    store = schedules(memory)
    wanted = replace(TOKYO, again=True, condition="command true", day_budget=20)
    made = await store.create(wanted, BEGAN)
    for turn, cost in (("t1", spent), ("t2", 7)):
        moment = BEGAN + timedelta(seconds=cost)
        slot = Slot(made.schedule_id, stored(moment), "running", "host", 1, "s", turn, told=1)
        await store.claim(slot)
        if turn == "t1":
            await store.end(replace(slot, state="done", cost=cost), made.day(BEGAN))
    request = ModelRequest("r", "s", "t2", "answer", "openai", "m", "2026-01-02", "2026-01-02")
    await memory.usage.settle(request, Amount(9, 5, 1, 7), "reported")
    scheduler = Scheduler(
        store,
        Outbox(memory.store.database, memory.user_id),
        clock=lambda: BEGAN + timedelta(seconds=30),
    )

    async def look(_: Schedule) -> tuple[bool, str]:
        return False, ""

    scheduler.look = look
    await scheduler.tick()
    await scheduler.finish()
    found = await store.find(made.schedule_id)
    assert found.costs(BEGAN) == (spent + 7, spent + 7, spent + 7)
    states = {each.slot: each.state for each in await store.runs(made.schedule_id, 9)}
    assert states[slot.slot] == ("capped" if spent else "idle")


async def test_answers_that_are_read_at_once_are_no_longer_than_a_reply_can_be(
    memory: Memory,
) -> None:
    store = schedules(memory)
    await memory.conversations.create("s", "t", "schedule")
    for role, text in (("assistant", "first"), ("assistant", "x" * 9_000), ("tool", "later")):
        await memory.conversations.append("s", turn_id="t", role=role, text=text, payload="[]")
    run = Slot("id", "", "done", session_id="s", turn_id="t")
    assert await store.answers([run, replace(run, session_id="")]) == {"t": "x" * 4_000}
    assert await store.answers([run] * 500) == {"t": "x" * 400}
