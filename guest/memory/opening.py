"""How a store comes to be open: connected, up to date, nothing left to erase."""

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.database import copies
from guest.memory.database.base import Database
from guest.memory.database.local import LocalDatabase
from guest.memory.forgetting import Eraser
from guest.memory.migrations import MIGRATIONS, found_version, migrate
from guest.memory.types import MemoryConfig, RemoteConfig

if TYPE_CHECKING:
    from guest.memory.database.remote import RemoteDatabase

log = logging.getLogger(__name__)


async def open_store(config: MemoryConfig) -> Database:
    """The database that holds the memory, with its schema up to date.

    Before a file's schema is changed, a copy is made beside it. Erases what an
    interrupted run has deleted. Raises `StorageError`; nothing was migrated then.
    """
    async with AsyncExitStack() as stack:
        database = await LocalDatabase.open(Path(config.db_path), config.encryption_key)
        stack.push_async_callback(database.close)
        await _keep_copy(database)
        await migrate(database)
        await Eraser(database).finish()
        stack.pop_all()
    return database


async def open_remote(config: RemoteConfig) -> "RemoteDatabase":
    """A database on a server, which may be away. Raises `StorageError`.

    The client is imported here only: it takes time and memory, and few need it.
    """
    try:
        from guest.memory.database.remote import RemoteDatabase
    except ImportError as error:
        raise StorageError(
            Code.FAILED_PRECONDITION,
            "the client for a memory on a server is not installed",
            details=str(error),
            resolution="pip install aiohttp && pip install --no-deps libsql-client==0.3.1",
        ) from None
    return await RemoteDatabase.open(config)


async def _keep_copy(database: LocalDatabase) -> None:
    """Copy a file that is about to be migrated, named after the first step to come."""
    copies.drop_surplus(database.path)
    version = await found_version(database)
    if 0 < version < MIGRATIONS[-1].version:
        copy = copies.before_migration(database.path, version + 1)
        log.info("the memory database is copied to %s before its schema changes", copy)
        await database.copy_to(copy)
        copies.drop_surplus(database.path)
