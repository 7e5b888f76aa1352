"""How a store comes to be open: connected, up to date, nothing left to erase."""

from contextlib import AsyncExitStack
from pathlib import Path

from guest.memory.database.base import Database
from guest.memory.database.local import LocalDatabase
from guest.memory.forgetting import Eraser
from guest.memory.migrations import migrate
from guest.memory.types import MemoryConfig


async def open_store(config: MemoryConfig) -> Database:
    """The database that holds the memory, with its schema up to date.

    Erases what an interrupted run has deleted. Raises `StorageError`.
    """
    async with AsyncExitStack() as stack:
        database = await LocalDatabase.open(Path(config.db_path), config.encryption_key)
        stack.push_async_callback(database.close)
        await migrate(database)
        await Eraser(database).finish()
        stack.pop_all()
    return database
