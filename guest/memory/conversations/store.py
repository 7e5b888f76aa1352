"""Conversations: sessions and their events, stored as they happen."""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from wire.errors import Code
from wire.limits import SEQUENCE_MAX

from guest.errors import StorageError
from guest.memory.indexing.chunking import passages_of
from guest.memory.indexing.indexer import Indexer
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.indexing.words import index_text
from guest.memory.models import EVENT, Event, Role, Session, SessionNotFound, User, now
from guest.memory.storage.base import (
    INTEGER_MAX,
    AnswerLost,
    ConstraintViolated,
    Database,
    Row,
    Statement,
    apply,
    failing,
)
from guest.memory.storage.changes import change_was_made


def require_session(session_id: str, user: User) -> Statement:
    """Fail the batch if the user has no such session."""
    return Statement(_REQUIRE, (session_id, user.id))


TOOL_INDEX_CHARS: Final = 600
"""How much of a tool's output is indexed: enough to find the call again."""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_ROLES: Final = ("user", "assistant", "tool")

_CREATE: Final = """
INSERT INTO sessions (session_id, user_id, title, channel, created_at, updated_at, parent_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6) ON CONFLICT (session_id) DO NOTHING
"""
_GET: Final = """
SELECT session_id, title, channel, created_at, updated_at, turns, archived_at, parent_id
    FROM sessions WHERE session_id = ? AND user_id = ?
"""
_LIST: Final = """
SELECT session_id, title, channel, created_at, updated_at, turns, archived_at, parent_id
    FROM sessions WHERE user_id = ? AND (archived_at = '' OR ?) AND (parent_id = '' OR ?)
    ORDER BY updated_at DESC, rowid DESC LIMIT ?
"""
_REQUIRE: Final = failing(
    "SELECT 1 FROM sessions WHERE session_id = ? AND user_id = ?", without=True
)
_TOUCH: Final = """
UPDATE sessions
    SET updated_at = ?1, archived_at = '',
        title = CASE WHEN title = '' AND turns = 0 THEN ?4 ELSE title END,
        turns = turns + NOT EXISTS (SELECT 1 FROM conversation_events
                                    WHERE session_id = ?2 AND turn_id = ?3)
    WHERE session_id = ?2
"""
_APPEND: Final = """
INSERT INTO conversation_events (session_id, sequence, turn_id, role, text, payload, created_at)
    SELECT ?1, COALESCE(MAX(sequence), 0) + 1, ?2, ?3, ?4, ?5, ?6
    FROM conversation_events WHERE session_id = ?1
    RETURNING sequence
"""
_INDEX: Final = """
INSERT INTO chunks (namespace, session_id, sequence, position, context, body, words)
    SELECT ?1, ?2,
           COALESCE(?5, (SELECT MAX(sequence) FROM conversation_events WHERE session_id = ?2)),
           passage.key, ?3, passage.value ->> 0, passage.value ->> 1
    FROM json_each(?4) AS passage
    RETURNING chunk_id
"""
_HISTORY: Final = f"""
SELECT {EVENT} FROM conversation_events
    WHERE session_id = ?1 AND sequence <= ?2
        AND EXISTS (SELECT 1 FROM sessions WHERE session_id = ?1 AND user_id = ?3)
    ORDER BY sequence DESC LIMIT ?4
"""  # noqa: S608
_SESSION_OF_TURN: Final = """
SELECT sessions.session_id FROM sessions CROSS JOIN conversation_events AS event
    USING (session_id)
    WHERE user_id = ? AND event.turn_id = ? ORDER BY updated_at DESC LIMIT 1
"""
_OF_TURN: Final = f"""
SELECT {EVENT} FROM conversation_events
    WHERE session_id = ? AND turn_id = ? ORDER BY sequence
"""  # noqa: S608
_MENTIONING: Final = f"""
SELECT {EVENT} FROM conversation_events WHERE session_id = ? AND instr(payload, ?)
"""  # noqa: S608
_CHILDREN: Final = "SELECT session_id FROM sessions WHERE parent_id = ? AND user_id = ?"
_LATEST: Final = f"""
SELECT session_id, {", ".join(f"event.{each}" for each in EVENT.split(", "))}
    FROM conversation_events AS event JOIN sessions USING (session_id)
    WHERE user_id = ? ORDER BY event_id DESC LIMIT ?
"""  # noqa: S608

_OF_EVENT: Final = "WHERE session_id = ? AND turn_id = ? AND role = ? AND created_at = ?"
_REQUIRE_NEW: Final = failing(f"SELECT 1 FROM conversation_events {_OF_EVENT}")  # noqa: S608
_FIND: Final = f"""
SELECT sequence, (SELECT json_group_array(chunk_id) FROM chunks
                  WHERE chunks.session_id = event.session_id AND chunks.sequence = event.sequence)
    FROM conversation_events AS event {_OF_EVENT}
"""  # noqa: S608


Sessions = list[Session]
Events = list[Event]


@dataclass(frozen=True)
class NewEvent:
    """An event to be stored; its time distinguishes it within its turn. `title` is for its session
    if that has none and begins with this event."""

    session_id: str
    turn_id: str
    role: Role
    text: str
    payload: str
    written_at: str
    title: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.session_id, self.turn_id, self.role, self.written_at

    def stored_as(self, sequence: int) -> Event:
        return Event(sequence, self.turn_id, self.role, self.text, self.payload, self.written_at)


class Conversations:
    def __init__(
        self, database: Database, vectors: VectorStore, indexer: Indexer, user: User
    ) -> None:
        self._database = database
        self._vectors = vectors
        self._indexer = indexer
        self._user = user

    @property
    def user_id(self) -> str:
        return self._user.id

    async def create(
        self, session_id: str = "", title: str = "", channel: str = "", parent_id: str = ""
    ) -> Session:
        """Create a session, or return the user's existing one with this id unchanged.

        Raises `SessionNotFound` if the id belongs to another user.
        """
        session_id = session_id or f"session-{uuid.uuid4()}"
        created = (session_id, self._user.id, title, channel, now(), parent_id)
        await apply(self._database, Statement(_CREATE, created))
        return await self.get(session_id)

    async def get(self, session_id: str) -> Session:
        """One session. Raises `SessionNotFound`."""
        result = await self._database.execute(_GET, (session_id, self._user.id))
        if not result.rows:
            raise SessionNotFound(session_id)
        return _session(result.rows[0])

    async def list(
        self, limit: int = 50, *, include_archived: bool = False, include_delegated: bool = False
    ) -> Sessions:
        """Up to `limit` sessions, last used first; those that work for another only if asked."""
        which = (int(include_archived), int(include_delegated))
        arguments = (self._user.id, *which, _positive(limit))
        result = await self._database.execute(_LIST, arguments)
        return [_session(row) for row in result.rows]

    async def append(
        self, session_id: str, *, turn_id: str, role: str, text: str, payload: str, title: str = ""
    ) -> int:
        """Add one event durably and return its sequence number.

        The text is searchable by keyword at once and by meaning soon after. An archived session
        leaves the archive. A session that begins with this event and has no title gets `title`.
        The database cannot store NUL and lone surrogates: they become U+2400 and U+FFFD in `text`
        and `title`, and JSON escapes in `payload`.

        Raises:
            SessionNotFound: The user has no such session.
            StorageError: RESOURCE_EXHAUSTED after `SEQUENCE_MAX` events; else the store failed.
            ValueError: The role is unknown.
        """
        return await self._store(said(session_id, turn_id, role, text, payload, title))

    async def history(self, session_id: str, limit: int, last: int = INTEGER_MAX) -> Events:
        """The last `limit` events up to the sequence `last`, oldest first. Raises
        `SessionNotFound`."""
        result = await self._database.execute(
            _HISTORY, (session_id, last, self._user.id, _positive(limit))
        )
        if not result.rows:
            await self.get(session_id)
        return [Event(*cast("tuple[Any, ...]", row)) for row in reversed(result.rows)]

    async def session_of_turn(self, turn_id: str) -> str:
        """The user's session that has a turn with this id; empty if none has."""
        found = await self._database.execute(_SESSION_OF_TURN, (self._user.id, turn_id))
        return cast(str, found.rows[0][0]) if found.rows else ""

    async def of_turn(self, session_id: str, turn_id: str) -> Events:
        """All events of a turn in one of the user's sessions, in order."""
        result = await self._database.execute(_OF_TURN, (session_id, turn_id))
        return [Event(*cast("tuple[Any, ...]", row)) for row in result.rows]

    async def mentioning(self, session_id: str, text: str) -> Events:
        """The events of one of the user's sessions whose payloads have this text."""
        result = await self._database.execute(_MENTIONING, (session_id, text))
        return [Event(*cast("tuple[Any, ...]", row)) for row in result.rows]

    async def working_for(self, session_id: str) -> Sequence[str]:
        result = await self._database.execute(_CHILDREN, (session_id, self._user.id))
        return [cast(str, row[0]) for row in result.rows]

    def pending(self, session_id: str) -> bool:  # noqa: ARG002 - for stores that may be away
        """Whether events of this session wait to be stored."""
        return False

    async def latest(self, limit: int) -> dict[str, Events]:
        """The last `limit` events of all the user's sessions, by session, each oldest first."""
        result = await self._database.execute(_LATEST, (self._user.id, _positive(limit)))
        found: dict[str, Events] = {}
        for session_id, *event in reversed(cast("Sequence[tuple[Any, ...]]", result.rows)):
            found.setdefault(session_id, []).append(Event(*event))
        return found

    def unstored(self, session_id: str) -> str:  # noqa: ARG002 - for stores that may be away
        """A message for the user if this session is not being stored right now; empty if it is,
        or if the user has been told."""
        return ""

    async def _store(self, event: NewEvent, *, again: bool = False) -> int:
        """Add an event; with `again` only if an earlier attempt did not store it."""
        namespace = self._user.conversations
        session_id, written = event.session_id, event.written_at
        appended = (session_id, event.turn_id, event.role, event.text, event.payload, written)
        statements = (
            require_session(session_id, self._user),
            Statement(_TOUCH, (written, session_id, event.turn_id, event.title)),
            Statement(_APPEND, appended),
            indexing(namespace, session_id, event.role, event.text, written),
        )
        guard = (Statement(_REQUIRE_NEW, event.identity),) if again else ()
        try:
            async with self._vectors.changing(namespace):
                results = await self._database.batch((*guard, *statements))
                sequence = cast(int, results[-2].rows[0][0])
                chunk_ids: Sequence[int] = [cast(int, row[0]) for row in results[-1].rows]
                self._vectors.added(namespace, len(chunk_ids))
        except ConstraintViolated:
            sequence, chunk_ids = await self._find(event)
        except AnswerLost:
            with change_was_made("what was said is stored; it could not be read again"):
                sequence, chunk_ids = await self._find(event)
        self._indexer.wake(chunk_ids)
        return sequence

    async def _find(self, event: NewEvent) -> tuple[int, Sequence[int]]:
        """The sequence number and passages of a stored event. Raises the reason if it is not
        stored."""
        found = await self._database.execute(_FIND, event.identity)
        if not found.rows:
            await self.get(event.session_id)
            raise _full(event.session_id)
        sequence, chunk_ids = cast("tuple[int, str]", found.rows[0])
        return sequence, json.loads(chunk_ids)


def said(
    session_id: str, turn_id: str, role: str, text: str, payload: str, title: str = ""
) -> NewEvent:
    """Make an event with the current time. Raises `ValueError` for an unknown role."""
    if role not in _ROLES:
        raise ValueError(f"role: {role!r} is not one of {', '.join(_ROLES)}")
    return NewEvent(
        *(session_id, turn_id, cast(Role, role), _storable(text), _storable_json(payload), now()),
        title=_storable(title),
    )


def indexing(
    namespace: str,
    session_id: str,
    role: str,
    text: str,
    written_at: str,
    sequence: int | None = None,
) -> Statement:
    """Index an event that the same batch stored; returns its passages' ids.

    `sequence` selects the event; without it, the session's last one.
    """
    if role == "tool":
        text = text[:TOOL_INDEX_CHARS]
    passages = [(passage, index_text(passage)) for passage in passages_of(text)]
    context = f"{role} ({_date(written_at)})"
    return Statement(
        _INDEX, (namespace, session_id, context, json.dumps(passages, ensure_ascii=False), sequence)
    )


def _date(written_at: str) -> str:
    """The user's day in the words that questions use, such as "2026-03-14, Saturday 14 March"."""
    day = datetime.fromisoformat(written_at).astimezone()
    return f"{day:%Y-%m-%d}, {day:%A} {day.day} {day:%B}"


def _session(row: Row) -> Session:
    return Session(*cast("tuple[Any, ...]", row))


def _positive(limit: int) -> int:
    if limit < 1:
        raise ValueError(f"limit: {limit} is not positive")
    return limit


def _storable(text: str) -> str:
    text = text.replace("\0", "\N{SYMBOL FOR NULL}")
    return text if text.isascii() else _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def _storable_json(payload: str) -> str:
    """The same JSON, with characters that the database cannot store as escapes."""
    payload = payload.replace("\0", "\\u0000")
    if payload.isascii():
        return payload
    return _SURROGATES.sub(lambda match: f"\\u{ord(match[0]):04x}", payload)


def _full(session_id: str) -> StorageError:
    return StorageError(
        Code.RESOURCE_EXHAUSTED,
        f"session {session_id} cannot take another event",
        details=f"its sequence numbers have reached {SEQUENCE_MAX}",
        resolution="continue in a new session",
    )
