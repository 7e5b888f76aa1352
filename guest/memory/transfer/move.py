"""Copies a user's whole memory to another database, and moves it to the server or back."""

import hashlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from wire.errors import Code

from guest.errors import GuestError, StorageError
from guest.memory.factory import admit, open_file, open_remote, prepare
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import MemoryConfig, User
from guest.memory.notes.quota import UNBOUNDED
from guest.memory.storage.base import Database, Row, Statement, Value, apply
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate
from guest.memory.transfer.exporter import RowReader, described, entities, export
from guest.memory.transfer.format import Entity, HistoryLine, NoteLine, written
from guest.memory.transfer.importer import Importer
from guest.memory.usage import COLUMNS, INSERT

ROWS_PER_PAGE: Final = 128

Progress = Callable[[str, int, int], None]
"""Called with the step, how much of it is done, and its total."""

_VECTORS: Final = "SELECT COUNT(*) FROM chunks_vec WHERE namespace IN (?, ?)"
_VECTORS_PAGE: Final = """
SELECT chunk_id, chunks.namespace, note_id, session_id, sequence, position, context, body,
       model_id, vector
    FROM chunks JOIN chunks_vec USING (chunk_id)
    WHERE chunk_id > ? AND chunks.namespace IN (?, ?) ORDER BY chunk_id LIMIT ?
"""
_STORE_FOR: Final = """
INSERT INTO chunks_vec (chunk_id, namespace, model_id, vector, digest)
    SELECT chunk_id, namespace, ?, ?, 0 FROM chunks
        WHERE namespace = ? AND position = ? AND context = ? AND body = ?
"""
_USAGE: Final = f"""
SELECT {COLUMNS} FROM model_requests WHERE request_id > ? AND user_id = ?
    ORDER BY request_id LIMIT ?
"""  # noqa: S608
_NOTICES: Final = """
SELECT number, user_id, key, kind, text, session_id, turn_id, note_id, created_at, read_at
    FROM notices WHERE number > ? AND user_id = ? ORDER BY number LIMIT ?
"""
_STORE_NOTICE: Final = """
INSERT INTO notices (user_id, key, kind, text, session_id, turn_id, note_id, created_at, read_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_id, key) DO NOTHING
"""
_SCHEDULES: Final = """
SELECT rowid, * FROM schedules WHERE rowid > ? AND user_id = ? ORDER BY rowid LIMIT ?
"""
_SLOTS: Final = """
SELECT slots.rowid, slots.* FROM slots JOIN schedules USING (schedule_id)
    WHERE slots.rowid > ? AND user_id = ? ORDER BY slots.rowid LIMIT ?
"""
_STORE_USAGE: Final = f"{INSERT} ON CONFLICT (request_id) DO NOTHING"
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
    """Copy everything of `user` into `target`, which has the current schema; also what is too long
    for a line of an export.

    May be repeated: existing entries stay, missing ones are added. Raises `StorageError`, CONFLICT
    if `target` has something else under the same id.
    """
    importer = Importer(target, VectorStore(target), user, UNBOUNDED, lambda _: None, merging=False)
    header = b""
    async for part in export(source, user, line_max_bytes=math.inf):
        lines = header + part.lines
        header = header or part.lines[: part.lines.index(b"\n") + 1]
        report = await importer.feed(lines)
        if report.problems:
            raise _differs([problem for _, problem in report.problems])
        progress("copying", part.entries, part.entries_total)
    await _copy_vectors(source, target, user, progress)
    await _copy_usage(source, target, user)
    async for page in _pages(source, _NOTICES, 0, user.id):
        await apply(target, *(Statement(_STORE_NOTICE, row[1:]) for row in page))
    for table, sql in (("schedules", _SCHEDULES), ("slots", _SLOTS)):
        async for page in _pages(source, sql, 0, user.id):
            places = ", ".join("?" * len(page[0][1:]))
            store = f"INSERT INTO {table} VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
            await apply(target, *(Statement(store, row[1:]) for row in page))


async def vectors_of(database: Database, user: User) -> int:
    return cast(int, (await database.execute(_VECTORS, user.namespaces)).rows[0][0])


async def _copy_vectors(source: Database, target: Database, user: User, progress: Progress) -> None:
    total, done = await vectors_of(source, user), 0
    async for page in _pages(source, _VECTORS_PAGE, 0, *user.namespaces):
        await apply(target, *map(_store, page))
        done += len(page)
        progress("vectors", done, total)


async def _copy_usage(source: Database, target: Database, user: User) -> None:
    """Copy what requests to models took, so that budgets hold in the target, too."""
    async for page in _pages(source, _USAGE, "", user.id):
        await apply(target, *(Statement(_STORE_USAGE, row) for row in page))


async def _pages(
    source: Database, sql: str, first: int | str, *which: str
) -> AsyncIterator[Sequence[Row]]:
    """Rows in the order of their first column, page by page, from after `first`."""
    last: Value = first
    while page := (await source.execute(sql, (last, *which, ROWS_PER_PAGE))).rows:
        yield page
        last = page[-1][0]


def _store(row: Row) -> Statement:
    _, namespace, note, session, sequence, position, context, body, *vector = cast(
        "tuple[Any, ...]", row
    )
    common = (*vector, namespace, position, context, body)
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
    reader = RowReader(source, user)
    extent = await reader.extent()
    there = await RowReader(target, user).extent()
    if there.counts != extent.counts:
        return f"there are to be {_told(extent.counts)}, and there are {_told(there.counts)}"
    total = extent.counts.notes + extent.counts.sessions + extent.counts.events
    stored = {_digest(line) async for line in entities(RowReader(target, user), there)}
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
        counts = (await RowReader(target, user).extent()).counts
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
