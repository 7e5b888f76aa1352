"""Erases deleted text from the files, down to the last byte.

Deleting rows is not enough. SQLite leaves copies in unused space, which `Database.checkpoint`
overwrites. The full-text index keeps the beginnings of terms as separators between its pages, even
after the terms are deleted: a living term takes the place of those.
"""

import asyncio
import logging
from typing import Final, cast

from guest.errors import StorageError
from guest.memory.storage.base import ConstraintViolated, Database, Row, Statement, apply
from guest.memory.storage.changes import bug

log = logging.getLogger(__name__)

_INDEXES: Final = (
    ("chunks_fts", "chunks_occurrences"),
    ("conversation_fts", "conversation_occurrences"),
)
"""Both full-text indexes, each with the table of where its current terms occur."""

_SEGMENTS: Final = "SELECT DISTINCT segid FROM {index}_idx WHERE length(term) > 1"
"""The parts of an index that have several pages."""
_START: Final = "CAST(substr(separator.term, 2) AS TEXT)"
"""The first byte of a stored term names the index, the rest is text."""
_LEFT: Final = f"""
separator.segid = ? AND length(separator.term) > 1
    AND NOT EXISTS (SELECT 1 FROM {{terms}} AS living
                    WHERE living.term >= {_START} AND living.term < {_START} || char(1114111))
"""  # noqa: S608
"""Separators that no living term begins with."""
_SEPARATORS_LEFT: Final = f"SELECT COUNT(*) FROM {{index}}_idx AS separator WHERE {_LEFT}"  # noqa: S608
_REPLACE_SEPARATORS: Final = f"""
UPDATE {{index}}_idx AS separator
    SET term = CAST(substr(separator.term, 1, 1) || (
        SELECT living.term FROM {{terms}} AS living
            WHERE living.term >= {_START} ORDER BY living.term LIMIT 1) AS BLOB)
    WHERE {_LEFT}
"""  # noqa: S608
"""A separator is greater than all terms before it and not greater than any after it. The next
living term is as good: none lies between the two."""
_REBUILD: Final = "INSERT INTO {index} ({index}) VALUES ('rebuild')"


class Eraser:
    """Carries out the erasures that rows in `erasures` request.

    Erasures that can wait are done together, `delay_s` after the first request.
    """

    def __init__(self, database: Database, *, delay_s: float = 30.0) -> None:
        self._database = database
        self._delay_s = delay_s
        self._lock = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None
        self._begun = False

    async def erase(self) -> None:
        """Erase everything deleted so far. Raises `StorageError`."""
        async with self._lock:
            last = await self._number("SELECT COALESCE(MAX(rowid), 0) FROM erasures")
            for index, terms in _INDEXES:
                await self._replace_separators(index, terms)
            await self._database.checkpoint()
            done = Statement("DELETE FROM erasures WHERE rowid <= ?", (last,))
            await apply(self._database, done)

    def erase_soon(self) -> None:
        """Erase later what was deleted so far; at the latest at the next start."""
        if self._later is None:
            self._later = asyncio.create_task(self._erase_later(), name="memory-erasure")

    async def close(self) -> None:
        """Finish a running erasure and start no more. Idempotent."""
        later, self._later = self._later, None
        if later is not None:
            if not self._begun:
                later.cancel()
            await asyncio.gather(later, return_exceptions=True)

    async def finish(self) -> None:
        """Finish the erasure of an interrupted run."""
        if await self._number("SELECT COUNT(*) FROM erasures"):
            await self.erase()

    async def _erase_later(self) -> None:
        await asyncio.sleep(self._delay_s)
        self._begun = True
        try:
            await self.erase()
        except StorageError as error:
            log.warning("removed versions are not erased yet: %s", error)
        finally:
            self._later, self._begun = None, False

    async def _replace_separators(self, index: str, terms: str) -> None:
        left = _SEPARATORS_LEFT.format(index=index, terms=terms)
        replace = _REPLACE_SEPARATORS.format(index=index, terms=terms)
        segments = await self._database.execute(_SEGMENTS.format(index=index))
        for segment in segments.rows:
            if not await self._number(left, segment):
                continue
            try:
                await apply(self._database, Statement(replace, segment))
            except ConstraintViolated:  # there is no later term: the index is not as it should be
                await apply(self._database, Statement(_REBUILD.format(index=index)))
            if await self._number(left, segment):
                raise bug(
                    "deleted words are still in the full-text index",
                    f"other separators in {index} did not remove them",
                )

    async def _number(self, sql: str, args: Row = ()) -> int:
        return cast(int, (await self._database.execute(sql, args)).rows[0][0])
