"""What requests to models take, as it is stored: reservations, limits, sums, forgetting, moving."""

from dataclasses import replace
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import User
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate
from guest.memory.transfer.move import copy_user
from guest.memory.usage import Amount, Cap, CapReached, Kind, ModelRequest, Usage
from tests.support.memory.store import opened

TODAY, TOMORROW, NEXT_MONTH = "2026-11-30", "2026-12-01", "2026-12-31"


def request(
    number: int, *, session_id: str = "s1", kind: Kind = "answer", day: str = TODAY
) -> ModelRequest:
    return ModelRequest(
        f"r{number}", session_id, "t1", kind, "openai", "gpt", f"{day}T10:00:00.000000Z", day
    )


async def reserved(usage: Usage, made: ModelRequest, most: Amount, *caps: Cap) -> bool:
    try:
        await usage.reserve(made, most, caps)
    except CapReached:
        return False
    return True


@pytest.mark.parametrize(
    ("cap", "shares", "other"),
    [
        (Cap("day", "usd", 100), request(2, session_id="s2"), request(2, day=TOMORROW)),
        (Cap("month", "usd", 100), request(2, day="2026-11-01"), request(2, day=TOMORROW)),
        (Cap("session", "usd", 100), request(2, day=NEXT_MONTH), request(2, session_id="s2")),
        (Cap("day", "tokens", 30), request(2, session_id="s2"), request(2, day=TOMORROW)),
    ],
)
async def test_what_a_cap_counts(
    path: Path, cap: Cap, shares: ModelRequest, other: ModelRequest
) -> None:
    most = Amount(10, 10, cost=60)
    async with opened(path) as memory:
        assert await reserved(memory.usage, request(1), most, cap)
        assert not await reserved(memory.usage, shares, most, cap)
        assert await reserved(memory.usage, other, most, cap)
        await memory.usage.settle(request(1), Amount(5, 5, cost=20), "reported")
        assert await reserved(memory.usage, replace(shares, request_id="r3"), most, cap)


async def test_a_cap_of_background_work_counts_no_answers(path: Path) -> None:
    cap = Cap("background_day", "tokens", 30)
    most = Amount(10, 10)
    async with opened(path) as memory:
        assert await reserved(memory.usage, request(1), most)
        assert await reserved(memory.usage, request(2, kind="summary"), most, cap)
        assert not await reserved(memory.usage, request(3, kind="summary"), most, cap)


async def test_another_users_requests_do_not_count(path: Path) -> None:
    cap = Cap("day", "tokens", 30)
    async with opened(path) as memory:
        bobs = Memory(memory.store, "bob").usage
        assert await reserved(bobs, request(1), Amount(20, 0), cap)
        assert await reserved(memory.usage, request(2), Amount(20, 0), cap)
        assert [each.input_tokens for each in await bobs.sums("day")] == [20]


async def test_a_reservation_outlives_the_guest(path: Path) -> None:
    cap = Cap("day", "tokens", 30)
    async with opened(path) as memory:
        assert await reserved(memory.usage, request(1), Amount(20, 0), cap)
    async with opened(path) as memory:
        assert not await reserved(memory.usage, request(2), Amount(20, 0), cap)
        await memory.usage.release(request(1))
        assert await reserved(memory.usage, request(2), Amount(20, 0), cap)


async def test_sums(path: Path) -> None:
    async with opened(path) as memory:
        usage = memory.usage
        await memory.conversations.create("s1", "about tea")
        await reserved(usage, request(1), Amount(10, 5, cost=9))
        await usage.settle(request(1), Amount(8, 4, 3, cost=3_000_000_000), "reported")
        await reserved(usage, request(2, day=TOMORROW), Amount(1, 2))
        await reserved(usage, request(3, session_id="s2", kind="summary"), Amount(1, 1, cost=5))
        first, second = await usage.sums("day")
        assert (first.key, first.requests, first.cost) == (TODAY, 2, 3_000_000_005)
        assert (first.cached_tokens, first.unpriced, first.uncertain) == (3, 0, 1)
        assert (second.key, second.unpriced, second.uncertain) == (TOMORROW, 1, 1)
        assert [(s.key, s.title, s.input_tokens) for s in await usage.sums("session")] == [
            ("s1", "about tea", 9),
            ("s2", "", 1),
        ]
        assert [s.key for s in await usage.sums("kind", since=TODAY)] == ["answer", "summary"]
        assert [s.key for s in await usage.sums("model", since=TOMORROW)] == ["openai:gpt"]
        assert [s.requests for s in await usage.sums("day", session_id="s2")] == [1]
        await memory.sessions.forget("s1")
        assert [s.key for s in await usage.sums("session")] == ["", "s2"]
        assert await usage.sums("day") == [first, second]


async def test_moving_a_memory_takes_the_counts_along(path: Path, tmp_path: Path) -> None:
    async with opened(path) as memory:
        for number in range(3):
            await reserved(memory.usage, request(number), Amount(10, 5, cost=9))
        target = await LocalDatabase.open(tmp_path / "copy.db", "")
        await migrate(target)
        for _ in range(2):
            await copy_user(memory.store.database, target, User("alice"))
        copied = await Usage(target, User("alice")).sums("session")
        await target.close()
        assert copied == await memory.usage.sums("session")


async def test_what_cannot_be_stored_is_dropped_and_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as memory:
        await memory.usage.reserve(request(1), Amount(10, 10), ())
        await memory.usage.settle(request(1), Amount(2**53, 5), "reported")
        assert "cannot be stored" in caplog.text
        await memory.usage.reserve(request(2), Amount(10, 10), ())
        await memory.usage.settle(request(2), Amount(3, 4), "reported")
        (day,) = await memory.usage.sums("day")
        assert (day.requests, day.input_tokens, day.uncertain) == (2, 13, 1)
