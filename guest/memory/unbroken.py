"""Work that is not left half-way when nobody waits for it any more."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Unbroken:
    """Runs what was begun to its end, even if its caller is cancelled."""

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
