"""A libSQL database in a local file, or in the memory of this process alone, on a thread of its
own."""

import asyncio
import hashlib
import logging
import os
import stat
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import libsql
from wire import locks
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.storage import base, copies, errors
from guest.memory.storage.base import Result, Statement, Value
from guest.memory.storage.changes import Background
from guest.memory.storage.reserve import Reserve
from guest.memory.storage.scrubbing import Scrubber, transaction
from guest.memory.storage.sound import sound, with_bytes


@contextmanager
def owned(database: Path) -> Iterator[None]:
    """Hold `<database>.lock`; a second owner, even in the same process, is refused. The lock of a
    killed owner is no obstacle.

    Raises `StorageError` FAILED_PRECONDITION if there is another owner.
    """
    path = copies.beside_of(database, ".lock")
    descriptor = _locked(database, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(database: Path, path: Path) -> int:
    """The lock, open and held."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise errors.from_system(error, path) from None
        try:
            if not locks.take(descriptor):
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
                raise _owned(database, path, holder)
            if _is_at(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, b"%d\n" % os.getpid())
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise errors.from_system(error, path) from None
            raise
        os.close(descriptor)  # the previous owner removed it while we waited


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _owned(database: Path, lock: Path, holder: str) -> StorageError:
    who = f"process {holder}" if holder.isdigit() else "another process"
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"the memory database {database} is in use by {who}",
        details=f"a database file has one owner at a time, and {lock} is held",
        resolution="stop that process (`runner stop`), or "
        f"find it with `fuser -v {lock}` and end it",
    )


_PRAGMAS: Final = (
    "PRAGMA busy_timeout = 200",
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -16384",
    "PRAGMA temp_store = MEMORY",
)
_PLAIN_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 24
_FRACTIONS: Final = b"\x40\x20\x20"
"""Bytes 21 to 23 of every SQLite file, which encryption leaves unchanged."""


@lru_cache(maxsize=4)
def derive(key: str) -> str:
    """Derive the engine's passphrase of exactly 32 characters from the operator's key.

    The engine pads or cuts passphrases to 32 bytes and hashes them quickly: part of a longer key
    would not count, and a weak one could be guessed quickly. The file has no place for a salt; ours
    only separates these keys from other uses.
    """
    if not key:
        return ""
    raw = hashlib.scrypt(key.encode(), salt=b"oxydra memory database", n=2**14, r=8, p=1, dklen=24)
    return b64encode(raw).decode()


def connect(path: Path, key: str) -> Any:
    """Connect to the existing file at `path`, in WAL mode and with an empty log.

    Raises `StorageError`; a file that `key` does not open is left untouched.
    """
    connection = _connect(path, key)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except BaseException as error:
        connection.close()
        raise errors.from_engine(error, path) from error
    return connection


def _connect(path: Path, key: str) -> Any:
    passphrase = derive(key)
    check_key(path, passphrase)
    try:
        connection = engine(str(path), passphrase)
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma).fetchall()
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()
            if mode != [("wal",)]:
                raise ValueError(f"unable to open it with a write-ahead log: {mode}")
        except BaseException:
            connection.close()
            raise
    except BaseException as error:
        raise errors.from_engine(error, path) from error
    return connection


def engine(database: str, passphrase: str) -> Any:
    """A bare connection; nothing has been read from the file yet."""
    if not passphrase:
        return libsql.connect(database, isolation_level=None)
    return libsql.connect(database, isolation_level=None, encryption_key=passphrase)


def executed(engine: Any, statement: Statement) -> Result:
    """Run one statement on a connection, whose thread this is."""
    cursor = engine.execute(statement.sql, tuple(statement.args))
    names = [each[0] for each in cursor.description]
    try:
        rows = cursor.fetchall()
    except BaseException as error:  # the binding panics
        if "Utf8Error" not in str(error):
            raise
        sql = with_bytes(statement.sql, names)
        rows = engine.execute(sql, tuple(statement.args)).fetchall()
    return Result((), cursor.rowcount) if rows is None else Result(sound(names, rows), 0)


def connect_apart(path: Path, key: str) -> Any:
    """A connection that reads only the file itself and leaves nothing beside it."""
    return _apart(path, derive(key))


def _apart(path: Path, passphrase: str) -> Any:
    return engine(f"file:{quote(str(path))}?immutable=1", passphrase)


def check_key(path: Path, passphrase: str) -> None:
    """Raise `StorageError` if `passphrase` does not open the file at `path`.

    Opens and closes the file: never call it while this process has the file open.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        return
    connection = _apart(path, passphrase)
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()
    except BaseException as error:
        if "file is not a database" in str(error):
            raise _unreadable(path, header, keyed=bool(passphrase)) from None
        # opening reports other damage: the log may repair it
    finally:
        connection.close()


def _unreadable(path: Path, header: bytes, *, keyed: bool) -> StorageError:
    if header.startswith(_PLAIN_MAGIC) and keyed:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"the memory database {path} is not encrypted, but a key is configured",
            details="it was left as it is: new memories must not be stored in plain text",
            resolution="encrypt it with `runner memory rekey`, or remove [memory.encryption] from "
            "runner.toml",
        )
    if header[21:24] != _FRACTIONS or header.startswith(_PLAIN_MAGIC):
        return errors.no_database(path, "its first page is damaged, or it never was one")
    if not keyed:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"the memory database {path} is encrypted, and no key is configured",
            details="it was left as it is",
            resolution="name its key in the [memory.encryption] section of runner.toml "
            "(key_env or key_file), then: runner restart",
        )
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"the configured key does not open the memory database {path}",
        details="it is encrypted with another key, or its first page is damaged; it was left "
        "as it is",
        resolution="configure the key that it was encrypted with ([memory.encryption] in "
        "runner.toml), or bring back a backup with `runner memory restore`",
    )


log = logging.getLogger(__name__)

_SCRUB_PAGES: Final = 256
"""Pages per slice of a few milliseconds, so that other work is not blocked."""

_T = TypeVar("_T")


class LocalDatabase:
    """The `Database` of one file. Opened with `open`."""

    def __init__(self, file: "_File", executor: ThreadPoolExecutor) -> None:
        self.path = file.path
        self._file = file
        self._executor = executor
        self._reserve = Reserve(file.path)
        self._settled = asyncio.Lock()
        """Held while the main file must not change, or is brought up to date."""
        self._copying = Background()
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, key: str = "") -> "LocalDatabase":
        """Open the database at `path`, or create an empty one with mode 0600.

        With `key`, all its files are encrypted.

        Raises:
            StorageError: FAILED_PRECONDITION if another process owns it, `key` does not open it or
                it cannot be opened; DATA_LOSS if it is not a database; RESOURCE_EXHAUSTED on a full
                disk.
        """
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory-database")
        opening = asyncio.get_running_loop().run_in_executor(executor, _open_file, path, key)
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
        base.check((statement,))
        return await self._run(partial(self._file.execute, statement))

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        statements = tuple(statements)
        base.check(statements)
        return await self._run(partial(self._file.batch, statements))

    async def checkpoint(self) -> None:
        async with self._settled:
            if not await self._run(self._file.scrubber.is_clean):
                await self._scrub_all()
            await self._run(self._file.empty_log)
            await asyncio.to_thread(copies.erase_automatic, self.path)

    async def _scrub_all(self) -> None:
        pages = (await self.execute("PRAGMA page_count")).rows[0][0]
        assert isinstance(pages, int)
        begun = await self._run(self._file.scrubber.begin_all)
        for first in range(1, pages + 1, _SCRUB_PAGES):
            await self._run(partial(self._file.scrubber.scrub, range(first, first + _SCRUB_PAGES)))
        await self._run(partial(self._file.scrubber.end_all, begun))

    async def copy_to(self, target: Path) -> None:
        """Make `target` a durable copy of everything stored so far, under the same key.

        The database stays in use; changes go to its log. Continues even if the caller is cancelled.
        Raises `StorageError`, as on a full disk, and then leaves no file.
        """
        await self._copying.run(self._copy_to(target))

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
        await self._copying.finish()
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
        return await on_thread(self._executor, partial(self._reserve.within, work), self.path)


async def on_thread(executor: Executor, work: Callable[[], _T], path: Path) -> _T:
    """Run `work` on the thread of the database at `path`, to its end even if the caller is
    cancelled."""
    try:
        running = asyncio.get_running_loop().run_in_executor(executor, work)
        # retrieve the outcome: the caller may have been cancelled
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # the binding's panics are not an Exception
        raise errors.from_engine(error, path) from error


class _File:
    """The connection and the ownership of its file, used on one thread only."""

    def __init__(
        self, path: Path, descriptor: int, engine: Any, scrubber: Scrubber, held: ExitStack
    ) -> None:
        self.path = path
        self.descriptor = descriptor
        self.scrubber = scrubber
        self._engine = engine
        self._held = held
        self._frozen = False

    @classmethod
    def open(cls, path: Path, key: str) -> "_File":
        with ExitStack() as stack:
            stack.enter_context(owned(path))
            descriptor = _make_private(path)
            stack.callback(os.close, descriptor)  # not before the engine: this drops its locks
            clean = Scrubber.found_clean(path, descriptor)
            engine = _connect(path, key)
            stack.callback(engine.close)
            scrubber = Scrubber(path, descriptor, engine, clean=clean)
            stack.callback(scrubber.close)
            try:
                scrubber.bring_log("TRUNCATE", anyway=True)
            except BaseException as error:
                raise errors.from_engine(error, path) from error
            return cls(path, descriptor, engine, scrubber, stack.pop_all())

    def execute(self, statement: Statement) -> Result:
        result = executed(self._engine, statement)
        self._shorten_log()
        return result

    def batch(self, statements: Sequence[Statement]) -> list[Result]:
        with transaction(self._engine):
            results = [executed(self._engine, statement) for statement in statements]
        self._shorten_log()
        return results

    def empty_log(self) -> None:
        if self.scrubber.bring_log("TRUNCATE"):
            raise ValueError("the log is locked: another program is reading it")

    def freeze(self) -> None:
        """Write the log back into the main file, which then does not change until `thaw`."""
        self._frozen = True
        self.empty_log()

    def thaw(self) -> None:
        self._frozen = False

    def close(self) -> None:
        try:
            if self.scrubber.bring_log("TRUNCATE", anyway=True):
                log.warning("the log of %s was not emptied at closing: it is read", self.path)
        except ValueError as error:  # a damaged page has left a statement unfinished
            log.warning("the log of %s was not emptied at closing: %s", self.path, error)
        finally:
            self._held.close()

    def _shorten_log(self) -> None:
        """What was done before is durable, whatever becomes of this."""
        if self._frozen:
            return
        try:
            self.scrubber.shorten_log()
        except Exception as error:
            log.warning("the log of %s was not written back: %s", self.path, error)


def _open_file(path: Path, key: str) -> _File:
    path = Path(os.path.realpath(path))
    return Reserve(path).within(partial(_File.open, path, key))


def _make_private(path: Path) -> int:
    """Create the file, or remove others' access to it; the log inherits its mode.

    The descriptor must stay open as long as the engine has the file open.
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
        raise errors.from_system(error, path) from None
    return descriptor


def _abandon(executor: ThreadPoolExecutor, opening: "asyncio.Future[_File]") -> None:
    """Close a file whose opening finished after its caller was cancelled."""
    if not opening.cancelled() and opening.exception() is None:
        executor.submit(opening.result().close)
    executor.shutdown(wait=False)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


_RAM: Final = ":memory:"
_RAM_PRAGMAS: Final = (
    "PRAGMA secure_delete = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
)


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
        return await on_thread(self._executor, work, Path(_RAM))

    def _batch(self, statements: Sequence[Statement]) -> list[Result]:
        if self._engine is None:
            self._engine = engine(_RAM, "")
            for sql in (*_RAM_PRAGMAS, *self._schema):
                self._engine.execute(sql).fetchall()
        with transaction(self._engine):
            return [executed(self._engine, each) for each in statements]
