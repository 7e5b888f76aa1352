"""Carrying a change through: to its end, again where others came first, and told truly."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from wire.errors import Code

from guest.errors import AfterChangeError, StorageError

_T = TypeVar("_T")


class Background:
    """Work that goes on to its end, even if its caller is cancelled."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of `work`; a cancelled caller goes, and the work goes on."""
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Let `work` go on beside its caller."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self) -> None:
        """Wait until everything begun has ended, well or not."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Look at the outcome too: the caller may have been cancelled meanwhile."""
        self._running.discard(task)
        if not task.cancelled():
            task.exception()


@contextmanager
def change_was_made(done: str) -> Iterator[None]:
    """What fails in the block fails after a change: its error begins with `done`, a
    sentence, so that nobody takes the change for not made."""
    try:
        yield
    except StorageError as error:
        raise AfterChangeError(
            error.code, done, details=error.brief, resolution=error.resolution
        ) from error


RETRIES: Final = 100
"""How often a change is made again that others came before: more often than they can."""


def unexplained(what: str) -> StorageError:
    """The database keeps refusing a change that nothing forbids; `what` is a sentence."""
    return StorageError(
        Code.INTERNAL,
        what,
        details="the database refuses it, and nothing that is there says why",
        resolution="report this, with the log, as a bug",
    )
