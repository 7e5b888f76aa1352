"""Conversations are forgotten for their age, and a clock is not simply believed."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from guest.memory.conversations import retention as conversations
from guest.memory.conversations.retention import Retention
from guest.memory.memory import Memory
from guest.memory.models import User, at
from tests.support.memory.store import ORIGIN, file_bytes, opened, until

ALICE, BOB = "alice", "bob"
TODAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.now = TODAY

    def __call__(self) -> datetime:
        return self.now


async def used(memory: Memory, session_id: str, moment: datetime) -> None:
    """A conversation that was last used at `moment`, stored now."""
    await memory.conversations.create(session_id)
    await memory.conversations.append(
        session_id, turn_id="t", role="user", text=f"words of {session_id}", payload="[]"
    )
    for sql in (
        "UPDATE sessions SET updated_at = ?, created_at = ?1 WHERE session_id = ?",
        "UPDATE conversation_events SET created_at = ? WHERE session_id = ?",
    ):
        await memory.store.database.execute(sql, (at(moment), session_id))


async def names(memory: Memory) -> set[str]:
    listed = await memory.conversations.list(include_archived=True)
    return {session.session_id for session in listed}


def retention(memory: Memory, clock: Clock, days: int = 30) -> Retention:
    return Retention(memory.store.database, memory.sessions, User(ALICE), days, clock=clock)


async def test_old_conversations_go_with_every_byte_and_others_stay(path: Path) -> None:
    async with opened(path) as memory:
        await used(memory, "oldest", TODAY - 300 * DAY)
        await used(memory, "old", TODAY - 31 * DAY)
        await used(Memory(memory.store, BOB), "bobs", TODAY - 300 * DAY)
        await memory.save("a note of long ago", [], ORIGIN)
        await memory.store.database.execute("UPDATE notes SET updated_at = ?", (at(TODAY - DAY),))
        await used(memory, "archived", TODAY - 29 * DAY)
        await memory.sessions.archive("archived", archived=True)
        await used(memory, "fresh", TODAY - DAY)
        await memory.conversations.create("empty")
        await memory.store.database.execute(
            "UPDATE sessions SET updated_at = ? WHERE session_id = 'empty'", (at(TODAY),)
        )
        assert await retention(memory, Clock()).look() == 2
        assert await names(memory) == {"archived", "fresh", "empty"}
        assert await names(Memory(memory.store, BOB)) == {"bobs"}
        assert (await memory.search("long ago")).results
        content = file_bytes(path)
        assert b"words of old" not in content
        assert b"words of fresh" in content


async def test_it_looks_at_the_start(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = datetime.now(UTC)
    async with opened(path, retention_days=30) as memory:
        await used(memory, "secret plans", now - 40 * DAY)
        await used(memory, "fresh", now - DAY)
        keeper = memory.retention()
        with caplog.at_level(logging.INFO):
            keeper.start()
            await until(lambda: "1 conversations were forgotten" in caplog.text)
        await keeper.stop()
        await keeper.stop()
        assert await names(memory) == {"fresh"}
    assert "secret plans" not in caplog.text


async def test_a_session_with_a_turn_running_stays(path: Path) -> None:
    async with opened(path) as memory:
        await used(memory, "running", TODAY - 40 * DAY)
        await used(memory, "old", TODAY - 40 * DAY)
        await used(memory, "fresh", TODAY - DAY)
        keeper = retention(memory, Clock())
        with memory.in_use.held("running", "turn 't'"):
            assert await keeper.look() == 1
        assert await names(memory) == {"running", "fresh"}
        assert await keeper.look() == 1


async def test_more_than_fit_one_statement_go_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "SLICE", 2)
    async with opened(path) as memory:
        for number in range(5):
            await used(memory, f"old{number}", TODAY - 40 * DAY)
        await used(memory, "fresh", TODAY - DAY)
        assert await retention(memory, Clock()).look() == 5


async def test_a_clock_that_jumps_forward_forgets_nothing_for_a_day(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(path) as memory:
        for age in (1, 5, 20):
            await used(memory, f"of {age} days", TODAY - age * DAY)
        keeper = retention(memory, clock)
        assert await keeper.look() == 0
        clock.now = TODAY + 365 * DAY
        for _ in range(3):
            assert await keeper.look() == 0
            clock.now += timedelta(hours=1)
        assert caplog.text.count("old conversations are not forgotten now") == 1
    async with opened(path) as memory:  # nor does starting again make it due
        assert await retention(memory, clock).look() == 0
        clock.now = TODAY + timedelta(hours=1)
        assert await retention(memory, clock).look() == 0
        assert len(await names(memory)) == 3


async def test_what_is_due_after_a_long_absence_goes_a_day_later(path: Path) -> None:
    clock = Clock()
    async with opened(path) as memory:
        await used(memory, "old", TODAY - DAY)
        assert await retention(memory, clock).look() == 0
        clock.now += 90 * DAY
        keeper = retention(memory, clock)
        assert await keeper.look() == 0
        clock.now += 1.1 * DAY
        assert await keeper.look() == 1


async def test_a_clock_set_back_forgets_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with opened(path) as memory:
        await used(memory, "old", TODAY - 40 * DAY)
        await used(memory, "fresh", TODAY - DAY)
        clock.now = TODAY - 3 * DAY
        assert await retention(memory, clock).look() == 0
        assert "memory holds something dated 2026-11-20" in caplog.text
        clock.now = TODAY
        assert await retention(memory, clock).look() == 1


async def test_what_was_written_while_the_clock_was_behind_is_not_old(path: Path) -> None:
    clock = Clock()
    async with opened(path) as memory:
        await used(memory, "old", TODAY - 40 * DAY)
        await used(memory, "yesterday", TODAY - DAY)
        await used(memory, "of 1970", datetime(1970, 1, 1, tzinfo=UTC))
        assert await retention(memory, clock).look() == 1
        assert await names(memory) == {"yesterday", "of 1970"}
        for _ in range(8):  # it goes when those before it do
            clock.now += 6 * DAY
            await retention(memory, clock).look()
        assert await names(memory) == set()
