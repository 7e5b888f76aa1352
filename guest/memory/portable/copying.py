"""One user's memory from one database into another, through the same steps as a file.

The vectors come along, which a file does not hold: a passage that is cut the same in
both gets the vector it had, of whatever model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from wire.errors import Code

from guest.errors import StorageError
from guest.memory import namespaces
from guest.memory.database.base import Database, Row, Statement, apply
from guest.memory.database.values import INTEGER_MAX
from guest.memory.portable.exporting import export
from guest.memory.portable.importing import Importer
from guest.memory.types import MemoryConfig
from guest.memory.vector_store import VectorStore

_VECTORS_PER_PAGE: Final = 128

Progress = Callable[[str, int, int], None]
"""Is told the step, how much of it is done, and of how much."""

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
    user_id: str,
    config: MemoryConfig,
    progress: Progress = lambda _step, _done, _total: None,
) -> None:
    """Bring everything of `user_id` into `target`, which has the current schema, however
    much it is.

    May be repeated: what is there already stays, what is missing is added. Raises
    `StorageError`, CONFLICT where `target` has something else under the same id.
    """
    unbounded = replace(config, max_notes=INTEGER_MAX, max_text_bytes=INTEGER_MAX)
    importer = Importer(target, VectorStore(target), unbounded, user_id, lambda _: None)
    header = b""
    async for part in export(source, user_id):
        lines = header + part.lines
        header = header or part.lines[: part.lines.index(b"\n") + 1]
        report = await importer.feed(lines)
        if report.problems:
            raise _differs([problem for _, problem in report.problems])
        progress("copying", part.entries, part.entries_total)
    await _copy_vectors(source, target, user_id, progress)


async def vectors_of(database: Database, user_id: str) -> int:
    """How many passages of the user have a vector."""
    namespace = (namespaces.notes_of(user_id), namespaces.conversations_of(user_id))
    return cast(int, (await database.execute(_COUNT, namespace)).rows[0][0])


async def _copy_vectors(
    source: Database, target: Database, user_id: str, progress: Progress
) -> None:
    of_user = (namespaces.notes_of(user_id), namespaces.conversations_of(user_id))
    total = await vectors_of(source, user_id)
    done, last = 0, 0
    while True:
        page = (await source.execute(_PAGE, (last, *of_user, _VECTORS_PER_PAGE))).rows
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
        resolution="empty the place to move to, or merge the two with `runner memory export` "
        "and `runner memory import`",
    )
