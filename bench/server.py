"""A libSQL server for the parts that measure against one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from guest.embedding.backends import Embedder
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, RemoteConfig
from guest.memory.replica import sync
from guest.memory.storage.migrations import migrate
from guest.memory.storage.remote import RemoteDatabase
from tests.support.servers import sqld
from tests.support.servers.sqld import connected, running

__all__ = ["caught_up", "connected", "missing", "opened", "prepared", "running"]


def missing() -> str:
    """Why a server cannot be measured here, in one line; empty if it can."""
    return "" if sqld.BINARY.is_file() else "there is no sqld here (tools/get_sqld.sh)"


@asynccontextmanager
async def prepared(url: str) -> AsyncIterator[RemoteDatabase]:
    """The database at `url`, with the schema that memories on servers have."""
    async with connected(url) as database:
        await migrate(database)
        await sync.count_changes(database)
        yield database


@asynccontextmanager
async def opened(
    place: Path, url: str, embedder: Embedder | None, user_id: str
) -> AsyncIterator[Memory]:
    """A user's memory at `url`, with its copy in the directory `place`, which is made."""
    place.mkdir()
    config = MemoryConfig(str(place / "memory.db"), remote=RemoteConfig(url, one_user=True))
    memory = await Memory.open(config, embedder, user_id)
    try:
        yield memory
    finally:
        await memory.close()


async def caught_up(memory: Memory, query: str) -> None:
    """Search until the replica has all that the server has."""
    while (await memory.search(query)).warnings:
        await asyncio.sleep(0.05)
