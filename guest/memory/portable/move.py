"""A whole memory from the local file to the server, or back.

Afterwards the place it went to holds the same as the one it came from, no more and no
less, which is checked. The place it came from is left as it is.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from wire.errors import Code

from guest.errors import GuestError, StorageError
from guest.memory.database.base import Database
from guest.memory.opening import open_remote, open_store
from guest.memory.parts import prepare
from guest.memory.portable.comparing import first_difference, surplus
from guest.memory.portable.copying import Progress, copy_user, vectors_of
from guest.memory.portable.reading import Reader
from guest.memory.types import MemoryConfig

_FILE: Final = "the local file"
_SERVER: Final = "the memory server"


async def move(
    config: MemoryConfig, user_id: str, *, to_remote: bool, progress: Progress
) -> dict[str, int]:
    """Bring everything of `user_id` from the local file of `config` to its server, or back.

    Nobody else may use either meanwhile. What an interrupted move has done is kept and not
    done again. Returns how many there are of each kind. Raises `GuestError`: CONFLICT
    where the other place holds anything that this one does not.
    """
    _check(config, to_remote=to_remote)
    async with _both(config) as (local, server):
        source, target = (local, server) if to_remote else (server, local)
        there = _SERVER if to_remote else _FILE
        await _refuse_surplus(source, target, user_id, there)
        await copy_user(source, target, user_id, config, progress)
        different = await first_difference(
            source, target, user_id, lambda done, total: progress("comparing", done, total)
        )
        if different:
            raise StorageError(
                Code.CONFLICT,
                f"{there} does not hold the same after the move",
                details=f"{different}; the place it came from is as it was",
                resolution="stop everything that uses either place, then move again",
            )
        counts = (await Reader(target, user_id).extent()).counts
        return {**vars(counts), "vectors": await vectors_of(target, user_id)}


def _check(config: MemoryConfig, *, to_remote: bool) -> None:
    if config.remote is None:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            "there is no memory server to move to or from",
            resolution="set memory.remote_url",
        )
    if to_remote and not Path(config.db_path).exists():
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"there is no memory to move: {config.db_path} does not exist",
            resolution="runner start uses the server from the beginning",
        )


@asynccontextmanager
async def _both(config: MemoryConfig) -> AsyncIterator[tuple[Database, Database]]:
    assert config.remote is not None
    async with AsyncExitStack() as stack:
        server = await open_remote(config.remote)
        stack.push_async_callback(server.close)
        await prepare(server)
        local = await open_store(replace(config, remote=None))
        stack.push_async_callback(local.close)
        yield local, server


async def _refuse_surplus(source: Database, target: Database, user_id: str, there: str) -> None:
    """What was forgotten in one place must not come back from an old copy in the other."""
    found = await surplus(source, target, user_id)
    if any(found.values()):
        told = " and ".join(f"{count} {name}" for name, count in found.items())
        raise StorageError(
            Code.CONFLICT,
            f"{there} holds {told} that would not be in the memory that is moved",
            details="an old copy of this memory may lie there; what was forgotten since then "
            "would come back",
            resolution="move that copy away (an old file: mv memory.db memory.db.old), or merge "
            "the two with `runner memory export` and `runner memory import`",
        )
