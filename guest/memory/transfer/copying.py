"""Copies a user's whole memory from one database to another."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import User
from guest.memory.notes.quota import UNBOUNDED
from guest.memory.storage.base import Database, Row, Statement, apply
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate
from guest.memory.transfer.exporter import export
from guest.memory.transfer.importer import Importer
from guest.memory.usage import COLUMNS, INSERT

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
INSERT INTO chunks_vec (chunk_id, namespace, model_id, vector, digest)
    SELECT chunk_id, namespace, ?, ?, 0 FROM chunks
        WHERE namespace = ? AND position = ? AND context = ? AND body = ?
"""
_USAGE_PER_PAGE: Final = 500
_USAGE: Final = f"""
SELECT {COLUMNS} FROM model_requests WHERE user_id = ? AND request_id > ?
    ORDER BY request_id LIMIT ?
"""  # noqa: S608
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


async def _copy_usage(source: Database, target: Database, user: User) -> None:
    """Copy what requests to models took, so that budgets hold in the target, too."""
    last = ""
    while True:
        page = (await source.execute(_USAGE, (user.id, last, _USAGE_PER_PAGE))).rows
        if page:
            await apply(target, *(Statement(_STORE_USAGE, row) for row in page))
            last = cast(str, page[-1][0])
        if len(page) < _USAGE_PER_PAGE:
            return


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
