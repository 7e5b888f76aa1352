"""A server's database that may go away and come back.

Only the start waits for a server that does not answer. From then on every request fails at once,
with the same reason, while one task checks every few seconds whether the server is back.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.storage.base import Database, Result, Statement, Value

log = logging.getLogger(__name__)

_REFUSED: Final = (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)
AWAY: Final = (Code.UNAVAILABLE, Code.TIMEOUT, *_REFUSED)
NOTHING_CHANGED: Final = "; nothing was changed there"
_PROBE_MIN_S: Final = 0.1
_PROBE_MAX_S: Final = 2.0
_WAY_WAIT_S: Final = 3.0

_T = TypeVar("_T")


@dataclass(repr=False, eq=False)
class WatchedDatabase:
    """The `Database` of a server that may be away.

    `prepare` migrates the server's schema; it runs first, and again whenever the server comes back.
    `problem` says why the server cannot be used; None if it can. `on_return` is called each time
    the server becomes available.
    """

    database: Database
    prepare: Callable[[Database], Awaitable[None]]
    start_wait_s: float

    def __post_init__(self) -> None:
        self._since = time.monotonic()
        self._probing: asyncio.Task[None] | None = None
        self.problem: StorageError | None = StorageError(
            Code.UNAVAILABLE, "the memory server has not answered yet"
        )
        self.on_return: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Prepare the server, or give up waiting for it for now.

        A server that cannot be reached at first is asked again for a moment: the way to it may be
        starting, too. Raises `StorageError` if it answers but cannot be used.
        """
        first = asyncio.ensure_future(self.prepare(self.database))
        self._probing = asyncio.create_task(self._probe(first), name="memory-server-probe")
        await asyncio.wait({first}, timeout=self.start_wait_s)
        if first.done() and (error := first.exception()) is not None and not is_away(error):
            await self._stop_probing()
            raise error
        if first.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WAY_WAIT_S):
                    await asyncio.shield(self._probing)
        if self.problem is not None:
            log.warning("starting without the memory server: %s", self.problem)

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        return await self._ask(lambda: self.database.execute(sql, args))

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        return await self._ask(lambda: self.database.batch(statements))

    async def checkpoint(self) -> None:
        await self._ask(self.database.checkpoint)

    async def size_bytes(self) -> int:
        return await self.database.size_bytes()

    async def close(self) -> None:
        await self._stop_probing()
        await self.database.close()

    async def _ask(self, request: Callable[[], Awaitable[_T]]) -> _T:
        if self.problem is not None:
            raise _again(self.problem)
        try:
            return await request()
        except StorageError as error:
            if is_away(error):
                self._gone(error)
            raise

    def _gone(self, error: StorageError) -> None:
        if self.problem is None:
            log.warning("the memory server is away: %s", error)
            self.problem, self._since = _absence(error), time.monotonic()
            self._probing = asyncio.create_task(self._probe(), name="memory-server-probe")

    async def _probe(self, asking: "asyncio.Future[None] | None" = None) -> None:
        """Ask until the server can be used."""
        delay = _PROBE_MIN_S
        while True:
            try:
                await (asking or self.prepare(self.database))
                break
            except StorageError as error:
                problem = _absence(error)
                if self.problem is None or self.problem.brief != problem.brief:
                    log.warning("the memory server cannot be used yet: %s", error)
                self.problem = problem
            except Exception:
                log.exception("asking for the memory server failed")
            asking = None
            await asyncio.sleep(delay)
            delay = min(delay * 2, _PROBE_MAX_S)
        self.problem = None
        log.info("the memory server is there, after %.1f s", time.monotonic() - self._since)
        self.on_return()

    async def _stop_probing(self) -> None:
        probing, self._probing = self._probing, None
        if probing is not None:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)


def is_away(error: BaseException) -> bool:
    """Whether the error means that the server is unavailable, or rejects everybody, for now."""
    return isinstance(error, StorageError) and error.code in AWAY


def _absence(error: StorageError) -> StorageError:
    """The error for later requests, which are not even sent."""
    if error.code not in (Code.UNAVAILABLE, Code.TIMEOUT):
        return _again(error)
    reason = (error.details or error.brief).removesuffix(NOTHING_CHANGED)
    return StorageError(
        Code.UNAVAILABLE,
        "the memory server cannot be reached",
        details=f"{reason}{NOTHING_CHANGED}",
        resolution="check that it runs and that this machine reaches it; memory then continues "
        "by itself",
    )


def _again(error: StorageError) -> StorageError:
    """A copy of the error, to be raised anew."""
    return StorageError.of(error.fields())
