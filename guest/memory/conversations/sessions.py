"""Whole sessions: held while in use, renamed, archived and forgotten."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from guest.memory.conversations.store import Conversations, require_session
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import (
    DISOWNED_BY,
    DISOWNED_MARK,
    Session,
    SessionBusy,
    SessionNotFound,
    User,
    now,
)
from guest.memory.notes.quota import UNBOUNDED
from guest.memory.notes.repository import NoteRepository
from guest.memory.storage.base import (
    AnswerLost,
    ConstraintViolated,
    Database,
    Statement,
    apply,
    remove_rows,
)
from guest.memory.storage.changes import UNFOLLOWED, Background, bug, change_was_made
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.sound import EPOCH

_ATTEMPTS: Final = 10
_DISOWN: Final = "UPDATE sessions SET user_id = ? WHERE session_id = ?"
_NOTICES: Final = "DELETE FROM notices WHERE session_id <> '' AND session_id = ?"
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
    "UPDATE slots SET session_id = '' WHERE session_id <> '' AND session_id = ?",
    "UPDATE schedules SET session_id = '' WHERE session_id <> '' AND session_id = ?",
    "UPDATE schedules SET made_in = '' WHERE made_in <> '' AND made_in = ?",
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
        require_session(session_id, user),
        Statement(_DISOWN, (DISOWNED_MARK + user.id, session_id)),
        Statement(_NOTICES, (session_id,)),
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


class InUse:
    """Keeps a turn and the forgetting of its session apart, within one process."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    def take(self, session_id: str, holder: str) -> None:
        """Hold a session until `release`. Raises `SessionBusy` if it is already held."""
        self.check(session_id)
        self._holders[session_id] = holder

    def release(self, session_id: str) -> None:
        self._holders.pop(session_id, None)

    def check(self, session_id: str) -> None:
        """Raise `SessionBusy` if the session is held."""
        if (holder := self._holders.get(session_id)) is not None:
            raise SessionBusy(session_id, holder)

    @contextmanager
    def held(self, session_id: str, holder: str) -> Iterator[None]:
        """Hold a session for the duration of the block."""
        self.take(session_id, holder)
        try:
            yield
        finally:
            self.release(session_id)


_READ: Final = """
SELECT value, epoch FROM session_state
    WHERE session_id = ?1 AND name = ?2
    AND EXISTS (SELECT 1 FROM sessions WHERE session_id = ?1 AND user_id = ?3)
"""
LOST: Final = "session_state.updated_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-10 minutes')"
"""Whether the agent that has written a value has not done so again for long."""
RENEW_S: Final = 60.0
"""How often an agent writes again what it has begun: it is on."""
_NAMED: Final = f"""
SELECT session_id, name, value, epoch, {LOST} FROM session_state JOIN sessions USING (session_id)
    WHERE name LIKE ? AND value <> '' AND user_id = ?
"""  # noqa: S608
_SWAP: Final = f"""
INSERT INTO session_state (session_id, name, value, epoch, updated_at)
    SELECT ?1, ?2, ?4, ?5 + 1, ?6
    WHERE EXISTS (SELECT 1 FROM sessions WHERE session_id = ?1 AND user_id = ?3)
    AND COALESCE((SELECT {EPOCH} FROM session_state WHERE session_id = ?1 AND name = ?2), 0) = ?5
    ON CONFLICT (session_id, name) DO UPDATE
        SET value = excluded.value, epoch = excluded.epoch, updated_at = excluded.updated_at
"""  # noqa: S608


class SessionState:
    """Named values of a user's sessions; they are removed with their session."""

    def __init__(self, database: Database, user: User) -> None:
        self._database = database
        self._user = user

    async def read(self, session_id: str, name: str) -> tuple[str, int] | None:
        """The value and its epoch, which starts at 1; None if there is no such value or session.
        Raises `StorageError`."""
        result = await self._database.execute(_READ, (session_id, name, self._user.id))
        return cast("tuple[str, int]", result.rows[0]) if result.rows else None

    async def named(self, pattern: str) -> list[tuple[str, str, str, int, int]]:
        """The values with such a name that are not empty, each with its session, its name, its
        epoch, and whether it was not written again for long. Raises `StorageError`."""
        result = await self._database.execute(_NAMED, (pattern, self._user.id))
        return cast("list[tuple[str, str, str, int, int]]", list(result.rows))

    async def swap(self, session_id: str, name: str, value: str, expected_epoch: int) -> bool:
        """Replace the value if its epoch is `expected_epoch`; 0 means that there is no value yet.

        False, with nothing changed, if the epoch differs or the user has no such session; the
        caller then reads again. Raises `StorageError`.
        """
        change = (session_id, name, self._user.id, value, expected_epoch, now())
        try:
            return (await self._database.execute(_SWAP, change)).rows_affected == 1
        except AnswerLost:
            return await self.read(session_id, name) == (value, expected_epoch + 1)

    async def update(self, session_id: str, name: str, change: Callable[[str], str]) -> bool:
        """Replace the value with what `change` makes of it, which is empty where there is none;
        where somebody else writes meanwhile, with what it makes of theirs.

        False, with nothing changed, if the user has no such session, or if others write all the
        time. Raises `StorageError`.
        """
        for _ in range(_ATTEMPTS):
            value, epoch = await self.read(session_id, name) or ("", 0)
            if await self.swap(session_id, name, change(value), epoch):
                return True
        return False


_FORGETTING: Final = "its removal"

_RENAME: Final = "UPDATE sessions SET title = ? WHERE session_id = ? AND user_id = ?"
_ARCHIVE: Final = """
UPDATE sessions SET archived_at = ? WHERE session_id = ? AND user_id = ?
    AND (archived_at = '') = ?
"""
_TRACES: Final = """
WITH forgotten (session_id) AS (SELECT value FROM json_each(?1)),
     passages (chunk_id) AS (SELECT value FROM json_each(?2))
SELECT (SELECT COUNT(*) FROM sessions JOIN forgotten USING (session_id) WHERE created_at < ?3)
     + (SELECT COUNT(*) FROM conversation_events JOIN forgotten USING (session_id)
            WHERE created_at < ?3)
     + (SELECT COUNT(*) FROM session_state JOIN forgotten USING (session_id)
            WHERE updated_at < ?3)
     + (SELECT COUNT(*) FROM model_requests JOIN forgotten USING (session_id)
            WHERE sent_at < ?3)
     + (SELECT COUNT(*) FROM notes JOIN forgotten ON scope_session = forgotten.session_id
            WHERE scope_session <> '' AND +namespace = ?4 AND +updated_at < ?3)
     + (SELECT COUNT(*) FROM chunks JOIN passages USING (chunk_id))
     + (SELECT COUNT(*) FROM chunks_vec JOIN passages USING (chunk_id))
     + (SELECT COUNT(*) FROM conversation_fts_docsize JOIN passages ON id = chunk_id)
     + (SELECT COUNT(*) FROM chunks_fts_docsize JOIN passages ON id = chunk_id)
"""
"""Counts rows from before a given time, since a new session may have the same id."""


@dataclass(repr=False, eq=False)
class SessionAdmin:
    """Operations on a user's whole sessions."""

    database: Database
    conversations: Conversations
    vectors: VectorStore
    eraser: Eraser
    in_use: InUse
    background: Background
    notes: NoteRepository
    user: User

    def __post_init__(self) -> None:
        self._forgetting = asyncio.Lock()
        self.on_forgotten: Callable[[Sequence[str]], Awaitable[None]] | None = None
        """Is told of each session that was forgotten."""

    async def rename(self, session_id: str, title: str) -> Session:
        """Change a session's title. Raises `SessionNotFound`."""
        await apply(self.database, Statement(_RENAME, (title, session_id, self.user.id)))
        with change_was_made("the session is renamed; it could not be read again"):
            return await self.conversations.get(session_id)

    async def archive(self, session_id: str, *, archived: bool) -> Session:
        """Archive a session or restore it from the archive; searches find it either way.

        Archiving twice keeps the first time. Raises `SessionNotFound`.
        """
        moment = now() if archived else ""
        await apply(
            self.database, Statement(_ARCHIVE, (moment, session_id, self.user.id, int(archived)))
        )
        with change_was_made("the session was archived or restored; it could not be read again"):
            return await self.conversations.get(session_id)

    async def forget(self, session_id: str) -> None:
        """Remove a session with all its events and the notes scoped to it, and erase every byte.

        Other notes saved in it stay, and what its requests to models took, without the session's
        id. The removal is verified. After any other error than those below, the session cannot be
        found any more; the rest is removed with the next forgotten session, or at the next start.
        Raises `SessionNotFound`, and `SessionBusy` while a turn runs in it.
        """
        await self.conversations.get(session_id)
        self.in_use.check(session_id)
        if not await self.forget_all([session_id]):
            raise SessionNotFound(session_id)

    async def forget_all(self, session_ids: Sequence[str]) -> int:
        """Forget several sessions, and finish interrupted removals; returns how many were
        forgotten.

        Sessions that are in use or already gone are skipped.
        """
        return await self.background.run(self._forget_all(session_ids))

    async def _forget_all(self, session_ids: Sequence[str]) -> int:
        async with self._forgetting:
            began = now()
            disowned = [each for each in session_ids if await self._disown(each)]
            with change_was_made(
                "what was to be forgotten is; removing every byte is not finished"
            ):
                removed = await purge(self.database, self.vectors, self.user)
                which = (json.dumps(disowned), json.dumps(removed), began, self.user.notes)
                left = cast(int, (await self.database.execute(_TRACES, which)).rows[0][0])
                if left:
                    raise bug(f"{left} rows of forgotten sessions are still there", UNFOLLOWED)
                if disowned or removed:
                    await self.eraser.erase()
                if disowned and self.on_forgotten is not None:
                    await self.on_forgotten(disowned)
        return len(disowned)

    async def _disown(self, session_id: str) -> bool:
        try:
            with self.in_use.held(session_id, _FORGETTING):
                await disown(self.database, self.notes, self.user, session_id)
        except (SessionBusy, ConstraintViolated):
            return False
        return True
