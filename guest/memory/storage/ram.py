"""A libSQL database in the memory of this process, which no file ever holds."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from guest.memory.storage import base
from guest.memory.storage.base import Result, Statement, Value
from guest.memory.storage.local import engine, executed, on_thread
from guest.memory.storage.scrubbing import transaction

_NAME: Final = ":memory:"
_PRAGMAS: Final = (
    "PRAGMA secure_delete = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
)

_T = TypeVar("_T")


class RamDatabase:
    """A `Database` that begins empty, but for `schema`, and is gone once it is closed.

    It takes no memory before it is first used.
    """

    def __init__(self, schema: Sequence[str]) -> None:
        self._schema = schema
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ram-database")
        self._engine: Any = None

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        return (await self.batch((Statement(sql, args),)))[0]

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        base.check(statements)
        return await self._run(partial(self._batch, tuple(statements)))

    async def checkpoint(self) -> None:
        """Does nothing: there is no file, and the engine overwrites what it deletes."""

    async def size_bytes(self) -> int:
        return 0

    async def close(self) -> None:
        if self._engine is not None:
            await self._run(self._engine.close)
            self._engine = None
        self._executor.shutdown(wait=False)

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await on_thread(self._executor, work, Path(_NAME))

    def _batch(self, statements: Sequence[Statement]) -> list[Result]:
        if self._engine is None:
            self._engine = engine(_NAME, "")
            for sql in (*_PRAGMAS, *self._schema):
                self._engine.execute(sql).fetchall()
        with transaction(self._engine):
            return [executed(self._engine, each) for each in statements]
