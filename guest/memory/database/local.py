"""A libSQL database in a file of this machine, on one thread of its own.

The binding holds Python's global lock while a statement runs, so statements
must be short; the thread is there for the time spent waiting for the disk.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.database import connection, copies, failures, scrub, values
from guest.memory.database.base import Result, Statement, Value
from guest.memory.database.owner import FileOwner

log = logging.getLogger(__name__)

_SCRUB_PAGES: Final = 256
"""Pages per slice, so that other work gets its turn every few milliseconds."""

_T = TypeVar("_T")


class LocalDatabase:
    """The `Database` of one file. Open it with `open`."""

    def __init__(self, file: "_File", executor: ThreadPoolExecutor) -> None:
        self.path = file.path
        self._file = file
        self._executor = executor
        self._settled = asyncio.Lock()
        """Held while the main file must not change, or is brought up to date."""
        self._copyings: set[asyncio.Future[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, key: str = "") -> "LocalDatabase":
        """Open the database at `path`, or make an empty one with mode 0600.

        With `key` everything in its files is encrypted. Raises `StorageError`:
        FAILED_PRECONDITION where another process owns it, `key` does not fit it
        or it cannot be opened, DATA_LOSS where it is no database,
        RESOURCE_EXHAUSTED on a full disk.
        """
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory-database")
        opening = asyncio.get_running_loop().run_in_executor(executor, _File.open, path, key)
        try:
            file = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(partial(_abandon, executor))
            raise
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(file, executor)

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        statement = Statement(sql, args)
        values.check((statement,))
        return await self._run(partial(self._file.execute, statement))

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        statements = tuple(statements)
        values.check(statements)
        return await self._run(partial(self._file.batch, statements))

    async def checkpoint(self) -> None:
        async with self._settled:
            pages = (await self.execute("PRAGMA page_count")).rows[0][0]
            assert isinstance(pages, int)
            for first in range(1, pages + 1, _SCRUB_PAGES):
                await self._run(partial(self._file.zero_gaps, first, first + _SCRUB_PAGES - 1))
            await self._run(self._file.empty_log)
            await asyncio.to_thread(copies.erase_automatic, self.path)

    async def copy_to(self, target: Path) -> None:
        """Make `target` a durable copy of everything stored so far, under the same key.

        The database stays in use meanwhile; changes go to its log. Raises
        `StorageError` and leaves nothing then, as on a full disk. Goes on to its
        end even if the caller is cancelled.
        """
        copying = asyncio.ensure_future(self._copy_to(target))
        self._copyings.add(copying)
        copying.add_done_callback(self._copyings.discard)
        await asyncio.shield(copying)

    async def _copy_to(self, target: Path) -> None:
        async with self._settled:
            try:
                await self._run(self._file.freeze)
                await asyncio.to_thread(copies.copy, self._file.descriptor, target)
            finally:
                await self._run(self._file.thaw)

    async def size_bytes(self) -> int:
        return _size(self.path) + _size(self.path.with_name(self.path.name + "-wal"))

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await asyncio.gather(*self._copyings, return_exceptions=True)
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._file.close)
        finally:
            self._executor.shutdown(wait=False)

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run `work` on the database's thread, to its end even if the caller is cancelled."""
        if self._closing is not None:
            raise StorageError(
                Code.FAILED_PRECONDITION,
                f"the memory database {self.path} is closed",
                resolution="start the guest again",
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._executor.submit(self._work, work, loop, future)
        return await future

    def _work(
        self,
        work: Callable[[], _T],
        loop: asyncio.AbstractEventLoop,
        future: "asyncio.Future[_T]",
    ) -> None:
        """Do `work` and tell the waiting task, if there still is one."""
        try:
            outcome = partial(_succeed, future, work())
        except BaseException as error:  # the binding's panics are no Exception
            failure = failures.from_engine(error, self.path)
            failure.__cause__ = error
            outcome = partial(_fail, future, failure)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(outcome)


def _succeed(future: "asyncio.Future[_T]", result: _T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[_T]", failure: Exception) -> None:
    if not future.done():
        future.set_exception(failure)


class _File:
    """The connection and the ownership behind it, all used on one thread only."""

    def __init__(self, path: Path, owner: FileOwner, descriptor: int, engine: Any) -> None:
        self.path = path
        self.descriptor = descriptor
        self._owner = owner
        self._engine = engine

    @classmethod
    def open(cls, path: Path, key: str) -> "_File":
        path = Path(os.path.realpath(path))
        owner = FileOwner.acquire(path)
        with ExitStack() as stack:
            stack.callback(owner.release)
            descriptor = _make_private(path)
            stack.callback(os.close, descriptor)
            file = cls(path, owner, descriptor, connection.connect(path, key))
            stack.pop_all()
        return file

    def execute(self, statement: Statement) -> Result:
        cursor = self._engine.execute(statement.sql, tuple(statement.args))
        rows = cursor.fetchall()
        return Result((), cursor.rowcount) if rows is None else Result(tuple(rows), 0)

    def batch(self, statements: Sequence[Statement]) -> list[Result]:
        with self._transaction():
            return [self.execute(statement) for statement in statements]

    def zero_gaps(self, first: int, last: int) -> None:
        with self._transaction():
            scrub.zero_gaps(self._engine, first, last)

    def empty_log(self) -> None:
        busy = self.execute(Statement("PRAGMA wal_checkpoint(TRUNCATE)")).rows[0][0]
        if busy:
            raise ValueError("the log is locked: another program is reading it")

    def freeze(self) -> None:
        """Bring the main file up to date, and let it stay so until `thaw`."""
        self.execute(Statement("PRAGMA wal_autocheckpoint = 0"))
        self.empty_log()

    def thaw(self) -> None:
        self.execute(Statement("PRAGMA wal_autocheckpoint = 1000"))

    def close(self) -> None:
        try:
            self.empty_log()
        except ValueError as error:
            log.warning("the log of %s was not emptied at closing: %s", self.path, error)
        finally:
            self._engine.close()
            os.close(self.descriptor)  # not before the engine: this drops its locks
            self._owner.release()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._engine.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._engine.execute("COMMIT")
        except BaseException:
            if self._engine.in_transaction:
                self._engine.execute("ROLLBACK")
            raise


def _make_private(path: Path) -> int:
    """Make the file, or take others' access away; the log inherits its mode.

    The descriptor must stay open for as long as the engine has the file open.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "it is not a regular file")
            os.fchmod(descriptor, 0o600)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise failures.from_system(error, path) from None
    return descriptor


def _abandon(executor: ThreadPoolExecutor, opening: "asyncio.Future[_File]") -> None:
    """Close what was opened after its caller had been cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        executor.submit(opening.result().close)
    executor.shutdown(wait=False)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
