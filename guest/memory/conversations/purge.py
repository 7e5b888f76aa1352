"""Removes a session for good, in slices so that other work is not blocked.

One transaction disowns the session (takes it from its user) and hides the notes scoped to it; from
then on no list and no search shows them. The rows are then removed in slices. An interrupted
removal is finished by the next one, or at the next start. Notes that one of the removed notes
replaced stay superseded, without a replacement.
"""

from collections.abc import Sequence
from typing import Final, cast

from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import DISOWNED_BY, DISOWNED_MARK, User, now
from guest.memory.notes.quota import UNBOUNDED
from guest.memory.notes.repository import NoteRepository
from guest.memory.storage.base import Database, Statement, apply, remove_rows

_REQUIRE: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE session_id = ? AND user_id = ?)
"""
_DISOWN: Final = "UPDATE sessions SET user_id = ? WHERE session_id = ?"
_TELL_COPIES: Final = "UPDATE revisions SET removals = removals + 1 WHERE namespace = ?"
_DISOWNED: Final = f"""
SELECT session_id, user_id FROM sessions WHERE user_id {DISOWNED_BY} AND ? IN ('', user_id)
"""  # noqa: S608
_CHUNKS: Final = """
DELETE FROM chunks WHERE chunk_id IN (
    SELECT chunk_id FROM chunks WHERE session_id = ? LIMIT ?)
    RETURNING chunk_id
"""
_EVENTS: Final = """
DELETE FROM conversation_events WHERE event_id IN (
    SELECT event_id FROM conversation_events WHERE session_id = ? LIMIT ?)
    RETURNING 1
"""
_REST: Final = (
    "UPDATE model_requests SET session_id = '', turn_id = '' WHERE session_id = ?",
    "DELETE FROM receipts WHERE session_id = ?",
    "DELETE FROM session_state WHERE session_id = ?",
    "DELETE FROM sessions WHERE session_id = ?",
)


async def disown(database: Database, notes: NoteRepository, user: User, session_id: str) -> None:
    """Take a session from its user; it can no longer be found.

    Raises `ConstraintViolated` if the user has no such session.
    """
    await apply(
        database,
        Statement(_REQUIRE, (session_id, user.id)),
        Statement(_DISOWN, (DISOWNED_MARK + user.id, session_id)),
        notes.hide_session(session_id),
        Statement(_TELL_COPIES, (user.conversations,)),
    )


async def purge(database: Database, vectors: VectorStore, user: User | None = None) -> list[int]:
    """Remove the rows of disowned sessions, of one user or of all. The caller must then erase them.

    Returns the ids of the removed passages, as far as known.
    """
    result = await database.execute(_DISOWNED, (DISOWNED_MARK + user.id if user else "",))
    removed: list[int] = []
    for session_id, marked in cast("Sequence[tuple[str, str]]", result.rows):
        owner = User(marked.removeprefix(DISOWNED_MARK))
        notes = NoteRepository(database, vectors, owner, UNBOUNDED)
        removed += await notes.remove_session(session_id)
        removed += await vectors.remove_passages(owner.conversations, _CHUNKS, (session_id,))
        await remove_rows(database, _EVENTS, (session_id,))
        await apply(
            database,
            *(Statement(sql, (session_id,)) for sql in _REST),
            Statement("INSERT INTO erasures (requested_at) VALUES (?)", (now(),)),
        )
    return removed
