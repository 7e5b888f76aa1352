"""Erases deleted text from the files, down to the last byte.

Deleting rows is not enough. SQLite leaves copies in unused space, which `Database.checkpoint`
overwrites. The full-text index keeps the beginnings of terms as separators between its pages, even
after the terms are deleted: rewriting the index removes those.
"""

import asyncio
import logging
from typing import Final, cast

from guest.errors import StorageError
from guest.memory.storage.base import Database, Statement, apply
from guest.memory.storage.changes import bug

log = logging.getLogger(__name__)

_INDEXES: Final = (("chunks_fts", "chunks_terms"), ("conversation_fts", "conversation_terms"))
"""Both full-text indexes, each with the table of its current terms."""

_SEPARATORS_LEFT: Final = """
SELECT COUNT(*) FROM (SELECT CAST(substr(term, 2) AS TEXT) AS start
                      FROM {index}_idx WHERE length(term) > 1) AS separator
    WHERE NOT EXISTS (SELECT 1 FROM {terms}
                      WHERE term >= separator.start AND term < separator.start || char(1114111))
"""
"""Separators that no living term begins with. The first byte of a stored term
names the index, the rest is text."""

_REWRITE: Final = "INSERT INTO {index} ({index}) VALUES (?)"
_REWRITES: Final = ("optimize", "rebuild")
"""The quick way first; it does nothing if the index already is in one piece."""


class Eraser:
    """Carries out the erasures that rows in `erasures` request.

    An erasure goes through the whole file. Those that can wait are therefore done together,
    `delay_s` after the first request.
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
                await self._clean(index, _SEPARATORS_LEFT.format(index=index, terms=terms))
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

    async def _clean(self, index: str, separators_left: str) -> None:
        for rewrite in _REWRITES:
            if not await self._number(separators_left):
                return
            await apply(self._database, Statement(_REWRITE.format(index=index), (rewrite,)))
        if await self._number(separators_left):
            raise bug(
                "deleted words are still in the full-text index",
                f"rewriting {index} did not remove them",
            )

    async def _number(self, sql: str) -> int:
        return cast(int, (await self._database.execute(sql)).rows[0][0])
