"""What is checked before a run, without a model: it costs nothing, and history does not grow."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.agent.budget import Account, AccountReached
from guest.agent.turn import TurnRequest
from guest.errors import GuestError
from guest.gateway.schedules import ScheduledTurns
from guest.gateway.turns.registry import Turn
from guest.memory.memory import Memory
from guest.memory.usage import UNITS_PER_DOLLAR, Amount
from guest.notices.outbox import Outbox
from guest.schedules.scheduler import DETAIL_MAX_CHARS, Ran, Scheduler, reason, receipt
from guest.schedules.store import Schedule, Schedules, Slot
from guest.watch import CallReporter
from tests.support.memory.store import FakeEmbedder, opened

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
CENT = UNITS_PER_DOLLAR // 100


@pytest.fixture
async def memory(path: Path) -> AsyncIterator[Memory]:
    async with opened(path, FakeEmbedder()) as made:
        yield made


class Days:
    """A scheduler whose time passes slot by slot. `look` is asked for conditions."""

    def __init__(
        self, memory: Memory, run: Callable[[Schedule, Slot], Awaitable[Ran]], **fields: Any
    ) -> None:
        self.now = BEGAN
        self.store = Schedules(memory.store.database, memory.store.eraser, memory.user_id, "host")
        self.outbox = Outbox(memory.store.database, memory.user_id)
        self.scheduler = Scheduler(self.store, self.outbox, run, clock=lambda: self.now)
        self._fields = {"timing": "every 5 minutes", "condition": "command true", **fields}

    async def begin(self) -> None:
        blank = Schedule("", "heart", "beat", "", "UTC", BEGAN.isoformat())
        await self.store.create(replace(blank, **self._fields), BEGAN)

    async def pass_until(self, ends: datetime) -> None:
        while True:
            await self.scheduler.tick()
            await self.scheduler.finish()
            due = (await self.store.find("heart")).due
            if datetime.fromisoformat(due) > ends:
                return
            self.now = datetime.fromisoformat(due)

    async def history(self) -> list[str]:
        heart = await self.store.find("heart")
        return [receipt(each) for each in await self.store.runs(heart.schedule_id, 500)]

    async def told(self) -> list[str]:
        return [each.text for each in await self.outbox.newest(50)]


async def never(schedule: Schedule, slot: Slot) -> Ran:
    raise AssertionError("a model was asked")


async def test_a_month_with_nothing_to_do_asks_no_model_and_is_one_row(memory: Memory) -> None:
    month = Days(memory, never, timing="every 30 minutes")

    async def look(schedule: Schedule) -> tuple[bool, str]:
        return False, ""

    month.scheduler.look = look
    await month.begin()
    await month.pass_until(BEGAN + timedelta(days=30))
    assert await month.history() == [
        "checked 1,440 times, 2026-03-01 00:30 to 2026-03-31 00:00: nothing to do"
    ]
    assert await month.told() == []


async def test_what_cannot_be_checked_is_told_once_until_it_can(memory: Memory) -> None:
    ran: list[str] = []

    async def run(schedule: Schedule, slot: Slot) -> Ran:
        ran.append(slot.slot[11:16])
        return Ran(failed=False, text="NOTHING_TO_TELL")

    async def look(schedule: Schedule) -> tuple[bool, str]:
        if (days.now - BEGAN) % timedelta(hours=1) < timedelta(minutes=30):
            brief = f"the shell is away since {days.now:%H:%M}"
            raise GuestError(Code.UNAVAILABLE, brief, resolution="runner logs")
        return days.now.minute == 40, f"{days.now:%H:%M}"

    days = Days(memory, run)
    days.scheduler.look = look
    await days.begin()
    await days.pass_until(BEGAN + timedelta(minutes=70))
    assert ran == ["00:40"]
    assert await days.told() == [
        "heart: not checked at 2026-03-01 01:00: the shell is away since 01:00; fix: runner logs",
        "heart: not checked at 2026-03-01 00:05: the shell is away since 00:05; fix: runner logs",
    ]
    assert await days.history() == [
        "not checked 3 times, 2026-03-01 01:00 to 2026-03-01 01:10: the shell is away since 01:10"
        "; fix: runner logs",
        "checked 3 times, 2026-03-01 00:45 to 2026-03-01 00:55: nothing to do",
        "ran at 2026-03-01 00:40, cost $0.00, 0 tools, sent no notice",
        "checked 2 times, 2026-03-01 00:30 to 2026-03-01 00:35: nothing to do",
        "not checked 5 times, 2026-03-01 00:05 to 2026-03-01 00:25: the shell is away since 00:25"
        "; fix: runner logs",
    ]
    assert (await days.store.find("heart")).seen == "00:40"


def test_what_mends_a_failure_is_not_cut_off_by_what_it_was() -> None:
    assert reason("short", "") == "short"
    long = reason("x" * 5_000, "runner logs")
    assert len(long) == DETAIL_MAX_CHARS
    assert long.endswith("x…; fix: runner logs")
    assert len(reason("x", "y" * 5_000)) == DETAIL_MAX_CHARS


async def test_a_run_that_always_says_there_is_more_stops_at_the_cap_of_its_day(
    memory: Memory,
) -> None:
    spent: dict[str, int] = {}

    async def run(schedule: Schedule, slot: Slot) -> Ran:
        left = schedule.left(days.now)
        assert left is not None
        if left < 3 * CENT:  # as the account of a turn refuses a request
            return Ran(failed=True, text="the budget does not cover the next request", capped=True)
        spent[slot.slot[:10]] = spent.get(slot.slot[:10], 0) + 3 * CENT
        return Ran(failed=False, text="there is more", cost=3 * CENT)

    days = Days(memory, run, timing="every 1 minutes", condition="", day_budget=10 * CENT)
    await days.begin()
    await days.pass_until(BEGAN + timedelta(days=2) - timedelta(minutes=1))
    assert spent == {"2026-03-01": 9 * CENT, "2026-03-02": 9 * CENT}
    assert len(await days.told()) == 2 * (3 + 1 + 1)
    assert (await days.history())[0].startswith("not run 1,436 times")
    with pytest.raises(GuestError, match=r"the day's cap of \$0\.10 is reached"):
        await days.scheduler.run_now(await days.store.find("heart"))


async def test_checks_that_a_pause_of_the_machine_left_out_are_not_told(memory: Memory) -> None:
    days = Days(memory, never)

    async def look(schedule: Schedule) -> tuple[bool, str]:
        return False, ""

    days.scheduler.look = look
    await days.begin()
    await days.pass_until(BEGAN + timedelta(minutes=20))
    days.now += timedelta(hours=8)
    await days.pass_until(days.now)
    assert await days.told() == []
    assert [each.split(":")[0] for each in await days.history()] == [
        "checked at 2026-03-01 08",
        "missed 95 times from 2026-03-01 00",
        "checked 4 times, 2026-03-01 00",
    ]


def test_a_clock_that_is_set_back_over_midnight_gives_no_second_cap() -> None:
    spent = Schedule(
        *("", "heart", "beat", "every 5 minutes", "UTC", BEGAN.isoformat()),
        day_budget=2 * CENT,
        spent_day=2 * CENT,
        spent_on="2026-03-02",
    )
    before = BEGAN + timedelta(hours=23, minutes=59)
    assert (spent.left(before), spent.day(before)) == (0, "2026-03-02")
    assert spent.left(before + timedelta(days=1)) == 0
    assert spent.left(before + timedelta(days=2)) == 2 * CENT
    assert spent.left(before - timedelta(days=1)) == 2 * CENT


async def test_a_sub_agent_that_goes_on_after_its_run_spends_nothing_that_is_not_counted() -> None:
    started: list[TurnRequest] = []

    async def start(request: TurnRequest) -> Any:
        started.append(request)
        with Account(None, request.account).taking("one", Amount(1, 1, cost=CENT)):
            turn = Turn(request, Mock())
        turn.outcome = pb.TurnCompleted(text="done")
        turn.events.finish(turn.outcome)
        turn.task = asyncio.create_task(AsyncMock(return_value=turn.outcome)())
        return turn

    runs = ScheduledTurns(
        *(Mock(tools=lambda: ()), start, AsyncMock(), AsyncMock(), Mock(), Mock(), "alice"),
        now=lambda: BEGAN,
        witness=CallReporter(required=False),
    )
    heart = Schedule("heart", "heart", "beat", "", "UTC", "", day_budget=5 * CENT)
    assert (await runs(heart, Slot("heart", BEGAN.isoformat(), "running"))).cost == CENT
    goes_on = Account(None, started[0].account)
    with (
        pytest.raises(AccountReached),
        goes_on.taking("two", Amount(1, 1, cost=1)),
    ):
        pass
