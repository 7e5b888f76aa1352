"""The replica's file, which can be discarded at any time."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.replica import sync
from guest.memory.storage.base import Database, Statement
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import FileOwner, LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS, Migration, found_version, migrate

log = logging.getLogger(__name__)

_REPLACEABLE: Final = (Code.DATA_LOSS, Code.FAILED_PRECONDITION, Code.INTERNAL)


async def open_copy(
    path: Path, key: str, source: str, migrations: Sequence[Migration] = MIGRATIONS
) -> Database:
    """Open the replica of `source` at `path`; an empty one if none there fits.

    A file that is damaged, has another key or version, or copies something else is removed. Raises
    `StorageError` if another process owns the file or the disk refuses it.
    """
    try:
        database = await _open(path, key, migrations)
    except StorageError as error:
        if error.code not in _REPLACEABLE:
            raise
        log.warning("the copy of the memory is fetched anew: %s", error)
        return await anew(path, key, source, migrations)
    try:
        sources = await database.execute("SELECT source FROM replica_of")
        if not sources.rows:
            await database.execute("INSERT INTO replica_of (source) VALUES (?)", (source,))
        if sources.rows in ((), ((source,),)):
            return database
    except StorageError as error:
        log.warning("the copy of the memory is fetched anew: %s", error)
    except BaseException:
        await database.close()
        raise
    await database.close()
    return await anew(path, key, source, migrations)


async def _open(path: Path, key: str, migrations: Sequence[Migration]) -> Database:
    database = await LocalDatabase.open(path, key)
    try:
        await _require_current(database, migrations[-1].version)
        await migrate(database, migrations)
        await database.batch([Statement(sql) for sql in sync.TABLES])
        await Eraser(database).finish()
    except BaseException:
        await database.close()
        raise
    return database


async def _require_current(database: Database, current: int) -> None:
    """Raise `StorageError` for a replica of an older version: it lacks columns whose values only
    the server has."""
    version = await found_version(database)
    if 0 < version < current:
        raise StorageError(
            Code.FAILED_PRECONDITION,
            f"the copy has schema version {version}; this program keeps one of version {current}",
        )


async def anew(
    path: Path, key: str, source: str, migrations: Sequence[Migration] = MIGRATIONS
) -> Database:
    """Replace the file at `path`, which must not be in use, by an empty replica."""
    _remove(path)
    database = await _open(path, key, migrations)
    try:
        await database.execute("INSERT INTO replica_of (source) VALUES (?)", (source,))
    except BaseException:
        await database.close()
        raise
    return database


def _remove(path: Path) -> None:
    """Remove a file. Raises `StorageError` if another process has it open."""
    owner = FileOwner.acquire(path)
    try:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    finally:
        owner.release()
