"""Moves a whole memory from the local file to the server, or back."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from wire.errors import Code

from guest.errors import GuestError, StorageError
from guest.memory.factory import open_file, open_remote, prepare
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import MemoryConfig, User
from guest.memory.notes.quota import UNBOUNDED
from guest.memory.storage.base import Database, Row, Statement, apply
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate
from guest.memory.transfer.exporter import Reader, entities, export
from guest.memory.transfer.format import Entity, EventLine, HistoryLine, NoteLine, SessionLine
from guest.memory.transfer.importer import GROUP_LINES, Importer
from guest.memory.transfer.merge import Stored

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
    there = (await Reader(target, user).extent()).counts
    if there != extent.counts:
        return f"there are to be {_told(extent.counts)}, and there are {_told(there)}"
    total = extent.counts.notes + extent.counts.sessions + extent.counts.events
    done, stored = 0, Stored(target, user)
    async for lines in _some(entities(reader, extent)):
        if different := await _different(lines, stored):
            return f"{different} is not the same in both"
        done += sum(not isinstance(line, HistoryLine) for line in lines)
        progress(done, total)
    return ""


async def _different(lines: Sequence[Entity], stored: Stored) -> str:
    notes = [line for line in lines if isinstance(line, NoteLine | HistoryLine)]
    begun = [line for line in lines if isinstance(line, SessionLine)]
    said = {(line.session_id, line.sequence): line for line in lines if isinstance(line, EventLine)}
    here = await stored.notes(notes)
    sessions = await stored.sessions([line.session_id for line in begun])
    events = await stored.events(list(said))
    for line in notes:
        if isinstance(line, NoteLine) and _bare(here.notes.get(line.note_id)) != _bare(line):
            return f"note {line.note_id}"
        for version in line.history:
            if here.versions.get((line.note_id, version.version)) != version:
                return f"version {version.version} of note {line.note_id}"
    for session in begun:
        if sessions.get(session.session_id) != session:
            return f"session {session.session_id}"
    for (session_id, sequence), event in said.items():
        if events.get((session_id, sequence)) != event:
            return f"event {sequence} of session {session_id}"
    return ""


def _bare(line: NoteLine | None) -> NoteLine | None:
    """A note without its history and the counters of its recalls."""
    alike = {"history": [], "access_count": 0, "accessed_at": None}
    return None if line is None else line.model_copy(update=alike)


async def _some(lines: AsyncIterator[Entity]) -> AsyncIterator[list[Entity]]:
    gathered: list[Entity] = []
    async for line in lines:
        gathered.append(line)
        if len(gathered) == GROUP_LINES:
            yield gathered
            gathered = []
    yield gathered


async def _unknown(source: Database, target: Database, ids: str, owner: str) -> int:
    known = (await source.execute(ids, (owner,))).rows
    return len(set((await target.execute(ids, (owner,))).rows).difference(known))


def _told(counts: object) -> str:
    return ", ".join(f"{count} {name}" for name, count in vars(counts).items())


_VECTORS_PER_PAGE: Final = 128

Progress = Callable[[str, int, int], None]
"""Called with the step, how much of it is done, and its total."""

_COUNT: Final = "SELECT COUNT(*) FROM chunks_vec WHERE namespace IN (?, ?)"
_PAGE: Final = """
SELECT chunk_id, chunks.namespace, note_id, session_id, sequence, position, context, body,
       model_id, vector
    FROM chunks JOIN chunks_vec USING (chunk_id)
    WHERE chunk_id > ? AND chunks.namespace IN (?, ?) ORDER BY chunk_id LIMIT ?
"""
_STORE_FOR: Final = """
INSERT INTO chunks_vec (chunk_id, namespace, model_id, vector)
    SELECT chunk_id, namespace, ?, ? FROM chunks
        WHERE namespace = ? AND position = ? AND context = ? AND body = ?
"""
_OF_NOTE: Final = f"{_STORE_FOR} AND note_id = ? ON CONFLICT (chunk_id) DO NOTHING"
_OF_EVENT: Final = f"""
{_STORE_FOR} AND session_id = ? AND sequence = ? ON CONFLICT (chunk_id) DO NOTHING
"""


async def copy_user(
    source: Database,
    target: Database,
    user: User,
    progress: Progress = lambda _step, _done, _total: None,
) -> None:
    """Copy everything of `user` into `target`, which has the current schema.

    May be repeated: existing entries stay, missing ones are added. Raises `StorageError`, CONFLICT
    if `target` has something else under the same id.
    """
    importer = Importer(target, VectorStore(target), user, UNBOUNDED, lambda _: None)
    header = b""
    async for part in export(source, user):
        lines = header + part.lines
        header = header or part.lines[: part.lines.index(b"\n") + 1]
        report = await importer.feed(lines)
        if report.problems:
            raise _differs([problem for _, problem in report.problems])
        progress("copying", part.entries, part.entries_total)
    await _copy_vectors(source, target, user, progress)


async def vectors_of(database: Database, user: User) -> int:
    """The number of the user's passages that have a vector."""
    return cast(int, (await database.execute(_COUNT, user.namespaces)).rows[0][0])


async def _copy_vectors(source: Database, target: Database, user: User, progress: Progress) -> None:
    total = await vectors_of(source, user)
    done, last = 0, 0
    while True:
        page = (await source.execute(_PAGE, (last, *user.namespaces, _VECTORS_PER_PAGE))).rows
        if page:
            await apply(target, *map(_store, page))
            last = cast(int, page[-1][0])
            done += len(page)
            progress("vectors", done, total)
        if len(page) < _VECTORS_PER_PAGE:
            return


def _store(row: Row) -> Statement:
    _, namespace, note, session, sequence, position, context, body, model, vector = cast(
        "tuple[Any, ...]", row
    )
    common = (model, vector, namespace, position, context, body)
    if note is not None:
        return Statement(_OF_NOTE, (*common, note))
    return Statement(_OF_EVENT, (*common, session, sequence))


def _differs(problems: Sequence[str]) -> StorageError:
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return StorageError(
        Code.CONFLICT,
        "the two places hold different things under the same ids",
        details=f"{problems[0]}{more}; nothing of it was overwritten",
        resolution="empty the target, or merge the two with `runner memory export` "
        "and `runner memory import`",
    )


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
    async with _both(config) as (local, server):
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
async def _both(config: MemoryConfig) -> AsyncIterator[tuple[Database, Database]]:
    assert config.remote is not None
    async with AsyncExitStack() as stack:
        server = await open_remote(config.remote)
        stack.push_async_callback(server.close)
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


async def copy_store(database: Database, key: str, user: User, target: Path) -> None:
    """Write the memory in `database` to a file at `target`. Raises `StorageError`.

    A file is copied as it is at one moment, with all its users. From a server, everything of `user`
    is copied; a note or turn written meanwhile is included completely or not at all.
    """
    if isinstance(database, LocalDatabase):
        await database.copy_to(target)
        return
    copy = await LocalDatabase.open(target, key)
    try:
        await migrate(copy)
        await copy_user(database, copy, user)
    finally:
        await copy.close()
