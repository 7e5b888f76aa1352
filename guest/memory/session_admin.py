"""Whole sessions: giving them a name, putting them away, forgetting them."""

import json
import logging
from collections.abc import Sequence
from typing import Final, cast

from wire.errors import Code

from guest.errors import StorageError
from guest.memory import namespaces
from guest.memory.conversation import Conversations
from guest.memory.database.base import AnswerLost, ConstraintViolated, Database, Statement, apply
from guest.memory.forgetting import Eraser
from guest.memory.in_use import InUse
from guest.memory.instant import now
from guest.memory.types import Session, SessionBusy, SessionNotFound
from guest.memory.unbroken import Unbroken
from guest.memory.vector_store import VectorStore

log = logging.getLogger(__name__)

_FORGETTING: Final = "its removal"

_RENAME: Final = "UPDATE sessions SET title = ? WHERE session_id = ? AND user_id = ?"
_ARCHIVE: Final = """
UPDATE sessions SET archived_at = ? WHERE session_id = ? AND user_id = ?
    AND (archived_at = '') = ?
"""
_REQUIRE: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE session_id = ? AND user_id = ?)
"""
_DELETE_CHUNKS: Final = "DELETE FROM chunks WHERE session_id = ? RETURNING chunk_id"
_DELETES: Final = (
    "DELETE FROM conversation_events WHERE session_id = ?",
    "DELETE FROM session_state WHERE session_id = ?",
    "DELETE FROM sessions WHERE session_id = ?",
)
_TRACES: Final = """
SELECT (SELECT COUNT(*) FROM sessions WHERE session_id = ?1 AND created_at < ?3)
     + (SELECT COUNT(*) FROM conversation_events WHERE session_id = ?1)
     + (SELECT COUNT(*) FROM session_state WHERE session_id = ?1)
     + (SELECT COUNT(*) FROM chunks WHERE session_id = ?1)
     + (SELECT COUNT(*) FROM chunks_vec WHERE chunk_id IN (SELECT value FROM json_each(?2)))
     + (SELECT COUNT(*) FROM conversation_fts_docsize
            WHERE id IN (SELECT value FROM json_each(?2)))
"""


class SessionAdmin:
    """What a user does with whole sessions; every method sees only those of its `user_id`."""

    def __init__(
        self,
        database: Database,
        conversations: Conversations,
        vectors: VectorStore,
        eraser: Eraser,
        in_use: InUse,
        unbroken: Unbroken,
    ) -> None:
        self._database = database
        self._conversations = conversations
        self._vectors = vectors
        self._eraser = eraser
        self._in_use = in_use
        self._unbroken = unbroken

    async def rename(self, user_id: str, session_id: str, title: str) -> Session:
        """Give a session another title. Raises `SessionNotFound`."""
        await apply(self._database, Statement(_RENAME, (title, session_id, user_id)))
        return await self._conversations.get(user_id, session_id)

    async def archive(self, user_id: str, session_id: str, *, archived: bool) -> Session:
        """Put a session away, or take it out again; it is searched either way.

        Archiving twice keeps the first moment. Raises `SessionNotFound`.
        """
        moment = now() if archived else ""
        await apply(
            self._database, Statement(_ARCHIVE, (moment, session_id, user_id, int(archived)))
        )
        return await self._conversations.get(user_id, session_id)

    async def forget(self, user_id: str, session_id: str) -> None:
        """Remove a session with everything that was said in it; no byte of it stays.

        Notes that were saved in it are the user's and stay. Checked by looking
        again. Raises `SessionNotFound`, and `SessionBusy` while a turn runs in
        it. A `StorageError` that comes after the removal says so; the erasure is
        then finished by the next one or at the next start.
        """
        await self._conversations.get(user_id, session_id)
        await self._unbroken.run(self._forget(user_id, session_id))

    async def forget_all(self, user_id: str, session_ids: Sequence[str]) -> int:
        """Forget several sessions with one erasure, and say how many.

        Those that are in use or gone already are left out.
        """
        return await self._unbroken.run(self._forget_all(user_id, session_ids))

    async def _forget(self, user_id: str, session_id: str) -> None:
        await self._remove(user_id, session_id)
        await self._eraser.erase()

    async def _forget_all(self, user_id: str, session_ids: Sequence[str]) -> int:
        forgotten = 0
        try:
            for session_id in session_ids:
                try:
                    await self._remove(user_id, session_id)
                    forgotten += 1
                except (SessionBusy, SessionNotFound) as skipped:
                    log.info("a session was not forgotten: %s", type(skipped).__name__)
        finally:
            if forgotten:
                await self._eraser.erase()
        return forgotten

    async def _remove(self, user_id: str, session_id: str) -> None:
        with self._in_use.held(session_id, _FORGETTING):
            began = now()
            removed = await self._delete(user_id, session_id, began)
            arguments = (session_id, json.dumps(removed), began)
            left = cast(int, (await self._database.execute(_TRACES, arguments)).rows[0][0])
        if left:
            raise StorageError(
                Code.INTERNAL,
                f"{left} rows of the forgotten session {session_id} are still there",
                details="the database did not follow its own foreign keys",
                resolution="report this, with the log, as a bug",
            )

    async def _delete(self, user_id: str, session_id: str, moment: str) -> list[int]:
        """Remove its rows; the passages that went, as far as they are known."""
        namespace = namespaces.conversations_of(user_id)
        statements = (
            Statement(_REQUIRE, (session_id, user_id)),
            Statement(_DELETE_CHUNKS, (session_id,)),
            *(Statement(sql, (session_id,)) for sql in _DELETES),
            Statement("INSERT INTO erasures (requested_at) VALUES (?)", (moment,)),
        )
        try:
            async with self._vectors.changing(namespace):
                results = await self._database.batch(statements)
                removed = [cast(int, row[0]) for row in results[1].rows]
                self._vectors.removed(namespace, removed)
        except ConstraintViolated:
            raise SessionNotFound(session_id) from None
        except AnswerLost:
            return []
        return removed
