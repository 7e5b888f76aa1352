"""Helpers that carry a change to its end and report its outcome truthfully."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from wire.errors import Code

from guest.errors import AfterChangeError, StorageError

_T = TypeVar("_T")


class Background:
    """Runs work to its end, even if the caller is cancelled."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run `work` and return its result; cancelling the caller does not stop it."""
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Start `work` beside the caller."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self) -> None:
        """Wait until all work has ended, successfully or not."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def stop(self) -> None:
        """Cancel all work, and wait for its end."""
        for task in self._running:
            task.cancel()
        await self.finish()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Retrieve the outcome: the caller may have been cancelled."""
        self._running.discard(task)
        if not task.cancelled():
            task.exception()


@contextmanager
def change_was_made(done: str) -> Iterator[None]:
    """A failure in the block happens after a change: its error begins with the sentence `done`,
    so that nobody believes that the change failed."""
    try:
        yield
    except StorageError as error:
        raise AfterChangeError(
            error.code, done, details=error.brief, resolution=error.resolution
        ) from error


RETRIES: Final = 100
"""How often a change that met another one is retried: more often than others can interfere."""


def bug(what: str, details: str) -> StorageError:
    """The error for what cannot happen; `what` is a sentence."""
    return StorageError(
        Code.INTERNAL, what, details=details, resolution="report this, with the log, as a bug"
    )


def unexplained(what: str) -> StorageError:
    """The error for a change that the database keeps refusing without a known reason."""
    return bug(what, "the database refuses it, and nothing stored explains why")


UNFOLLOWED: Final = "the database did not follow its own foreign keys"
