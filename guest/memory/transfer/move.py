"""Moves a whole memory from the local file to the server, or back."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from wire.errors import Code

from guest.errors import GuestError, StorageError
from guest.memory.factory import admit, open_file, open_remote, prepare
from guest.memory.models import MemoryConfig, User
from guest.memory.storage.base import Database
from guest.memory.transfer.copying import Progress, copy_user, vectors_of
from guest.memory.transfer.exporter import Reader, described, entities
from guest.memory.transfer.format import Entity, HistoryLine, NoteLine, written

_DIGEST_BYTES: Final = 16
_NOTES: Final = "SELECT note_id FROM notes WHERE namespace = ?"
_SESSIONS: Final = "SELECT session_id FROM sessions WHERE user_id = ?"


async def surplus(source: Database, target: Database, user: User) -> dict[str, int]:
    """How many of the user's notes and sessions are in `target` but not in `source`."""
    return {
        "notes": await _unknown(source, target, _NOTES, user.notes),
        "sessions": await _unknown(source, target, _SESSIONS, user.id),
    }


async def first_difference(
    source: Database, target: Database, user: User, progress: Callable[[int, int], None]
) -> str:
    """The first difference found, in words; empty if both hold the same."""
    reader = Reader(source, user)
    extent = await reader.extent()
    there = await Reader(target, user).extent()
    if there.counts != extent.counts:
        return f"there are to be {_told(extent.counts)}, and there are {_told(there.counts)}"
    total = extent.counts.notes + extent.counts.sessions + extent.counts.events
    stored = {_digest(line) async for line in entities(Reader(target, user), there)}
    done = 0
    async for line in entities(reader, extent):
        if _digest(line) not in stored:
            return f"{described(line)} is not the same in both"
        done += not isinstance(line, HistoryLine)
        progress(done, total)
    return ""


def _digest(line: Entity) -> bytes:
    """The digest of a line, without the counters of recalls."""
    if isinstance(line, NoteLine):
        line = line.model_copy(update={"access_count": 0, "accessed_at": None})
    return hashlib.blake2b(written(line), digest_size=_DIGEST_BYTES).digest()


async def _unknown(source: Database, target: Database, ids: str, owner: str) -> int:
    known = (await source.execute(ids, (owner,))).rows
    return len(set((await target.execute(ids, (owner,))).rows).difference(known))


def _told(counts: object) -> str:
    return ", ".join(f"{count} {name}" for name, count in vars(counts).items())


_FILE: Final = "the local file"
_SERVER: Final = "the memory server"


async def move(
    config: MemoryConfig, user: User, *, to_remote: bool, progress: Progress
) -> dict[str, int]:
    """Move everything of `user` from the local file of `config` to its server, or back.

    Neither may be in use meanwhile. An interrupted move is continued by the next one. Returns the
    number of entries of each kind. Raises `GuestError`: CONFLICT if the target holds anything that
    the source does not.
    """
    _check(config, to_remote=to_remote)
    async with _both(config, to_remote=to_remote) as (local, server):
        source, target = (local, server) if to_remote else (server, local)
        there = _SERVER if to_remote else _FILE
        await _refuse_surplus(source, target, user, there)
        await copy_user(source, target, user, progress)
        different = await first_difference(
            source, target, user, lambda done, total: progress("comparing", done, total)
        )
        if different:
            raise StorageError(
                Code.CONFLICT,
                f"{there} does not hold the same after the move",
                details=f"{different}; the place it came from is as it was",
                resolution="stop every program that uses one of them, then move again",
            )
        counts = (await Reader(target, user).extent()).counts
        return {**vars(counts), "vectors": await vectors_of(target, user)}


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
async def _both(
    config: MemoryConfig, *, to_remote: bool
) -> AsyncIterator[tuple[Database, Database]]:
    """Both places, open. A memory may be fetched from a server that is not fit to hold one."""
    assert config.remote is not None
    async with AsyncExitStack() as stack:
        server = await open_remote(config.remote)
        stack.push_async_callback(server.close)
        if to_remote:
            await admit(server, config.remote)
        await prepare(server)
        local = await open_file(replace(config, remote=None))
        stack.push_async_callback(local.close)
        yield local, server


async def _refuse_surplus(source: Database, target: Database, user: User, there: str) -> None:
    """Raise CONFLICT if the target holds more: deleted entries must not come back from an old
    copy there."""
    found = await surplus(source, target, user)
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
