"""Requests to models while the memory server is away: counted later, or not sent."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.test import TestModel
from wire.errors import Code
from wire.settings import AgentSettings, BudgetSettings

from guest.agent.meter import Meter
from guest.errors import BudgetError, StorageError
from guest.memory.models import User
from guest.memory.storage.base import Database, Result, Statement, Value
from guest.memory.usage import Amount, Cap, ModelRequest, Usage
from tests.support.agent.turn_fakes import CONTEXT
from tests.support.memory.store import opened

REQUEST = ModelRequest(
    "r1", "s1", "t1", "answer", "openai", "gpt", "2026-11-22T10:00:00.000000Z", "2026-11-22"
)


class AwayAtTimes:
    """A database whose server can be away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.away = False

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        self._check()
        return await self._database.execute(sql, args)

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        self._check()
        return await self._database.batch(statements)

    async def checkpoint(self) -> None:
        await self._database.checkpoint()

    async def size_bytes(self) -> int:
        return await self._database.size_bytes()

    async def close(self) -> None:
        await self._database.close()

    def _check(self) -> None:
        if self.away:
            raise StorageError(Code.UNAVAILABLE, "the memory server is away", resolution="wait")


@asynccontextmanager
async def usage(path: Path) -> AsyncIterator[tuple[Usage, AwayAtTimes]]:
    async with opened(path) as memory:
        database = AwayAtTimes(memory.store.database)
        yield Usage(database, User("alice")), database


@pytest.mark.parametrize("ends_away", [True, False])
async def test_without_caps_a_request_is_counted_once_the_server_is_back(
    path: Path, ends_away: bool
) -> None:
    async with usage(path) as (counted, database):
        database.away = True
        await counted.reserve(REQUEST, Amount(10, 5), ())
        database.away = ends_away
        await counted.settle(REQUEST, Amount(8, 4), "reported")
        database.away = False
        (total,) = await counted.sums("day")
        assert (total.requests, total.input_tokens, total.uncertain) == (1, 8, 0)
        database.away = True
        await counted.settle(REQUEST, Amount(7, 4), "reported")
        await counted.release(REQUEST)
        database.away = False
        (total,) = await counted.sums("day")
        assert total.input_tokens == 8, "a refused request cannot be known to have cost less"


async def test_with_caps_nothing_is_reserved(path: Path) -> None:
    async with usage(path) as (counted, database):
        database.away = True
        with pytest.raises(StorageError):
            await counted.reserve(REQUEST, Amount(10, 5), [Cap("day", "tokens", 100)])
        settings = AgentSettings.model_construct(budget=BudgetSettings(day_tokens=10**6))
        bill = Meter(counted, settings).bill(CONTEXT)
        with pytest.raises(
            BudgetError, match="usage cannot be recorded, so the request was not sent"
        ) as raised:
            await bill.reserve("answer", TestModel(), [], None, ModelRequestParameters())
        assert raised.value.resolution == "wait"
        database.away = False
        assert not await counted.sums("day")
