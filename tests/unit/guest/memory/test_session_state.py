"""Values of a session: whose they are, and that only who knows the latest changes them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guest.memory.conversations.sessions import SessionState
from guest.memory.memory import Memory
from guest.memory.models import User
from guest.memory.storage.base import AnswerLost, Database, Result, Value
from tests.support.memory.store import opened

ALICE, BOB = "alice", "bob"


async def test_a_value_is_replaced_by_who_knows_its_epoch(path: Path) -> None:
    async with opened(path) as memory:
        state = memory.state_of
        await memory.conversations.create("s1")
        assert await state.read("s1", "summary") is None
        assert await state.swap("s1", "summary", "one", 0)
        assert await state.read("s1", "summary") == ("one", 1)
        assert not await state.swap("s1", "summary", "again", 0)
        assert not await state.swap("s1", "summary", "too early", 2)
        assert await state.swap("s1", "summary", "two", 1)
        assert await state.swap("s1", "other", "apart", 0)
    async with opened(path) as memory:
        assert await memory.state_of.read("s1", "summary") == ("two", 2)


async def test_of_many_at_once_one_wins(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        swaps = (memory.state_of.swap("s1", "n", str(n), 0) for n in range(8))
        won = await asyncio.gather(*swaps)
        assert sum(won) == 1
        assert await memory.state_of.read("s1", "n") == (str(won.index(True)), 1)


async def test_an_update_is_made_of_what_others_wrote_meanwhile(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        others = ["a", "b"]

        class Busy(SessionState):
            async def swap(self, *args: Any) -> bool:
                if others:
                    await memory.state_of.update("s1", "n", lambda value: value + others.pop(0))
                return await super().swap(*args)

        state = Busy(memory.store.database, User(ALICE))
        assert await state.update("s1", "n", lambda value: value + "!")
        assert await state.read("s1", "n") == ("ab!", 3)
        others += "cdefghijklmnopqrst"
        assert not await state.update("s1", "n", lambda value: value + "!")
        assert not await state.update("s2", "n", lambda value: value + "!")


async def test_nobody_else_reads_or_changes_it(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        assert await memory.state_of.swap("s1", "summary", "hers", 0)
        assert await Memory(memory.store, BOB).state_of.read("s1", "summary") is None
        assert not await Memory(memory.store, BOB).state_of.swap("s1", "summary", "his", 1)
        assert not await Memory(memory.store, BOB).state_of.swap("s1", "new", "his", 0)
        assert not await memory.state_of.swap("s2", "summary", "no session", 0)
        assert await memory.state_of.read("s1", "summary") == ("hers", 1)


async def test_it_goes_with_its_session(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        await memory.state_of.swap("s1", "summary", "hers", 0)
        await memory.sessions.forget("s1")
        await memory.conversations.create("s1")
        assert await memory.state_of.read("s1", "summary") is None


class _Losing:
    """A database that applies changes, and loses their answers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        result = await self._database.execute(sql, args)
        if "INSERT" in sql:
            raise AnswerLost
        return result


async def test_a_lost_answer_is_looked_up(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        state = SessionState(_Losing(memory.store.database), User(ALICE))  # type: ignore[arg-type]
        assert await state.swap("s1", "summary", "one", 0)
        assert not await state.swap("s1", "summary", "late", 0)
        assert await state.read("s1", "summary") == ("one", 1)
