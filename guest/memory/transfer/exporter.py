"""Exports a user's memory as lines, page by page."""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel
from wire.limits import EXPORT_LINE_MAX_BYTES, EXPORT_PART_BYTES

from guest.memory.models import EVENT, User, now
from guest.memory.notes.columns import VERSIONED, VERSIONED_COUNT, VERSIONED_OF, Versioned
from guest.memory.storage.base import Database, Row, Statement
from guest.memory.transfer.format import (
    Counts,
    End,
    Entity,
    EventLine,
    Header,
    HistoryLine,
    NoteContent,
    NoteLine,
    Origin,
    SessionLine,
    State,
    Version,
    written,
)

_ENDED_AT: Final = "NULLIF(superseded_at, '') AS superseded_at"
ENDED_FIELDS: Final = f"superseded_by, superseded_reason, {_ENDED_AT}"
NOTE: Final = f"""
SELECT note_id, key, NULLIF(scope_session, ''), created_at, updated_at, access_count,
       NULLIF(accessed_at, '') AS accessed_at, {ENDED_FIELDS},
       EXISTS (SELECT 1 FROM notes AS other
               WHERE other.namespace = notes.namespace AND other.seq <> notes.seq
                   AND other.content_hash = notes.content_hash
                   AND other.key IS NULL AND notes.key IS NULL
                   AND other.scope_session = notes.scope_session
                   AND other.superseded_by IS NULL AND notes.superseded_by IS NULL),
       {VERSIONED}, seq
    FROM notes
"""  # noqa: S608
VERSION: Final = f"""
SELECT note_id, {VERSIONED}, written_at, replaced_at, {ENDED_FIELDS} FROM note_versions
"""  # noqa: S608
SESSION: Final = """
SELECT session_id, title, channel, created_at, updated_at, turns,
       NULLIF(archived_at, '') AS archived_at, NULLIF(parent_id, ''), rowid
    FROM sessions WHERE user_id = ?
"""
STATE: Final = """
SELECT session_id, name, value, epoch, updated_at FROM session_state
    WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY session_id, name
"""
EVENT_LINE: Final = f"SELECT session_id, {EVENT} FROM conversation_events"  # noqa: S608

_M = TypeVar("_M", bound=BaseModel)
_S = TypeVar("_S", bound=NoteContent)


async def with_state(database: Database, rows: Sequence[Row]) -> list[SessionLine]:
    """Sessions with their named values."""
    states: dict[object, list[State]] = {}
    ids = json.dumps([row[0] for row in rows])
    for session_id, *values in (await database.execute(STATE, (ids,))).rows:
        states.setdefault(session_id, []).append(_made(State, values))
    return [_made(SessionLine, row[:-1], state=states.get(row[0], [])) for row in rows]


def note_line(row: Row, history: Sequence[Version]) -> NoteLine:
    current = _said(NoteContent, row[11:-1])
    repeats = bool(row[10])
    return _made(NoteLine, row[:10], repeats_text=repeats, current=current, history=list(history))


def version_line(row: Row) -> Version:
    return _said(Version, row[1:])


def event_line(row: Row) -> EventLine:
    return _made(EventLine, row)


def _said(kind: type[_S], values: Sequence[Any]) -> _S:
    said = Versioned.of(values[:VERSIONED_COUNT])
    fields = vars(said) | dict(said.details) | {"tags": list(said.tags)}
    fields |= {"origin": Origin.model_construct(None, **vars(said.origin))}
    names = _names(kind, ())
    fields |= dict(
        zip(names[len(NoteContent.model_fields) :], values[VERSIONED_COUNT:], strict=True)
    )
    return kind.model_construct(None, **{name: fields[name] for name in names})


def _made(kind: type[_M], values: Sequence[Any], **more: Any) -> _M:
    """A line, or a part of one, from the values of its fields in order, except for `more`."""
    names = _names(kind, tuple(more))
    return kind.model_construct(None, **dict(zip(names, values, strict=True)), **more)


@cache
def _names(kind: type[BaseModel], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name not in ("kind", *others))


INLINE_VERSIONS: Final = 8
"""How many earlier versions a note's own line holds, so that no line reaches a mebibyte."""
_E = TypeVar("_E", bound=Entity)
_NOTES_PER_PAGE: Final = 64
_SESSIONS_PER_PAGE: Final = 256
_EVENTS_PER_PAGE: Final = 64

_PAGE: Final = """
    WHERE seq IN (SELECT seq FROM notes WHERE namespace = ? AND seq > ? AND seq <= ?
                  ORDER BY seq LIMIT ?) ORDER BY seq
"""
_VERSIONS_OF_PAGE: Final = f"""
SELECT kept.note_id, {VERSIONED_OF.format("kept")},
       written_at, replaced_at, {ENDED_FIELDS}
    FROM (SELECT namespace, note_id, version FROM notes {_PAGE}) AS newest
    JOIN note_versions AS kept
        ON kept.namespace = newest.namespace AND kept.note_id = newest.note_id
            AND kept.version >= newest.version - {INLINE_VERSIONS}
    ORDER BY kept.note_id, kept.version
"""  # noqa: S608
_EARLIER: Final = f"""
{VERSION} WHERE namespace = ? AND note_id = ? AND version < ? ORDER BY version DESC LIMIT ?
"""
_SESSIONS_PAGE: Final = f"{SESSION} AND rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"
_EVENTS_PAGE: Final = f"""
{EVENT_LINE} WHERE session_id = ? AND sequence > ? AND event_id <= ? ORDER BY sequence LIMIT ?
"""
_COUNT: Final = """
SELECT (SELECT COUNT(*) FROM notes WHERE namespace = ?1),
       (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1),
       (SELECT COUNT(*) FROM sessions WHERE user_id = ?2),
       (SELECT COUNT(*) FROM conversation_events JOIN sessions USING (session_id)
            WHERE user_id = ?2),
       (SELECT COALESCE(MAX(seq), 0) FROM notes),
       (SELECT COALESCE(MAX(rowid), 0) FROM sessions),
       (SELECT COALESCE(MAX(event_id), 0) FROM conversation_events)
"""


@dataclass(frozen=True)
class Extent:
    """The size of a memory at one moment, and the last row of each table then."""

    counts: Counts
    last_note: int
    last_session: int
    last_event: int


class RowReader:
    """Reads one user's rows. A note is always read with its versions, in one transaction."""

    def __init__(self, database: Database, user: User) -> None:
        self._database = database
        self._user = user

    async def extent(self) -> Extent:
        result = await self._database.execute(_COUNT, (self._user.notes, self._user.id))
        row = cast("tuple[int, ...]", result.rows[0])
        counts = Counts(notes=row[0], note_versions=row[1], sessions=row[2], events=row[3])
        return Extent(counts, *row[4:])

    async def notes(self, after: int, last: int) -> tuple[list[NoteLine], int]:
        """Some notes after number `after`, oldest first, and where to continue; 0 at the end."""
        page = (self._user.notes, after, last, _NOTES_PER_PAGE)
        found, versions = await self._database.batch(
            (Statement(NOTE + _PAGE, page), Statement(_VERSIONS_OF_PAGE, page))
        )
        histories = _histories(versions.rows)
        notes = [note_line(row, histories.get(cast(str, row[0]), ())) for row in found.rows]
        return notes, _following(found.rows, _NOTES_PER_PAGE)

    async def earlier(self, note_id: str, before: int) -> list[Version]:
        """The last versions before version `before`, oldest first."""
        arguments = (self._user.notes, note_id, before, INLINE_VERSIONS)
        result = await self._database.execute(_EARLIER, arguments)
        return [version_line(row) for row in reversed(result.rows)]

    async def sessions(self, after: int, last: int) -> tuple[list[SessionLine], int]:
        """Some sessions after number `after`, and where to continue; 0 at the end."""
        page = (self._user.id, after, last, _SESSIONS_PER_PAGE)
        rows = (await self._database.execute(_SESSIONS_PAGE, page)).rows
        return await with_state(self._database, rows), _following(rows, _SESSIONS_PER_PAGE)

    async def events(self, session_id: str, after: int, last: int) -> tuple[list[EventLine], int]:
        """Some events after sequence number `after`, and where to continue; 0 at the end.

        `last` is the id of the last event, of any session, to read.
        """
        page = (session_id, after, last, _EVENTS_PER_PAGE)
        events = [
            event_line(row) for row in (await self._database.execute(_EVENTS_PAGE, page)).rows
        ]
        return events, events[-1].sequence if len(events) == _EVENTS_PER_PAGE else 0


def _following(rows: Sequence[Row], full: int) -> int:
    """The number in the last column of a page's last row, if the page is full; else 0."""
    return cast(int, rows[-1][-1]) if len(rows) == full else 0


def _histories(rows: Sequence[Row]) -> Mapping[str, list[Version]]:
    histories: dict[str, list[Version]] = {}
    for row in rows:
        histories.setdefault(cast(str, row[0]), []).append(version_line(row))
    return histories


_COUNTED: Final = {NoteLine: "notes", SessionLine: "sessions", EventLine: "events"}


@dataclass(frozen=True)
class ExportPart:
    """Some whole lines; how many notes, sessions and events were written so far, the totals at the
    beginning, and what was left out since the part before, in words."""

    lines: bytes
    entries: int
    entries_total: int
    left_out: tuple[str, ...] = ()


async def export(
    database: Database, user: User, *, line_max_bytes: float = EXPORT_LINE_MAX_BYTES
) -> AsyncIterator[ExportPart]:
    """Export the memory of `user`, in parts of up to `EXPORT_PART_BYTES` or one longer line.

    An entry whose line would exceed `line_max_bytes` is left out with what belongs to it: a
    session with its events, a note with its history. The lines between the first and the last are
    identical for identical memories. Raises `StorageError`.
    """
    reader = RowReader(database, user)
    extent = await reader.extent()
    header = Header(user_id=user.id, exported_at=now(), counts=extent.counts)
    total = extent.counts.notes + extent.counts.sessions + extent.counts.events
    part, entries, lines = bytearray(written(header)), 0, 0
    digest = hashlib.sha256()
    counts = dict.fromkeys(Counts.model_fields, 0)
    left_out: list[str] = []
    without = ""
    async for entity in entities(reader, extent):
        if without and without == _owner(entity):
            continue
        line = written(entity)
        if len(line) > line_max_bytes:
            more = " with its events" if isinstance(entity, SessionLine) else ""
            size = f"its line would have {len(line)} bytes"
            left_out.append(f"{described(entity)}{more}: {size}")
            without = "" if isinstance(entity, EventLine) else _id(entity)
            continue
        if len(part) + len(line) > EXPORT_PART_BYTES:
            yield ExportPart(bytes(part), entries, total, tuple(left_out))
            part.clear()
            left_out.clear()
        part += line
        lines += 1
        digest.update(line)
        if not isinstance(entity, HistoryLine):
            entries += 1
            counts[_COUNTED[type(entity)]] += 1
        if isinstance(entity, NoteLine | HistoryLine):
            counts["note_versions"] += len(entity.history)
    end = End(lines=lines, counts=Counts(**counts), sha256=digest.hexdigest())
    yield ExportPart(bytes(part) + written(end), entries, total, tuple(left_out))


async def entities(reader: RowReader, extent: Extent) -> AsyncIterator[Entity]:
    """Notes in the order in which they were saved, then each session with its events."""
    async for note in _paged(partial(reader.notes, last=extent.last_note)):
        yield note
        async for history in _earlier(reader, note):
            yield history
    async for session in _paged(partial(reader.sessions, last=extent.last_session)):
        yield session
        events = partial(reader.events, session.session_id, last=extent.last_event)
        async for event in _paged(events):
            yield event


async def _earlier(reader: RowReader, note: NoteLine) -> AsyncIterator[HistoryLine]:
    history = note.history
    while history and history[0].version > 1:
        history = await reader.earlier(note.note_id, history[0].version)
        if history:
            yield HistoryLine(note_id=note.note_id, history=history)


async def _paged(read: Callable[[int], Awaitable[tuple[Sequence[_E], int]]]) -> AsyncIterator[_E]:
    """Everything that `read` gives, which takes the place to continue from; 0 is the end."""
    place = 0
    while True:
        page, place = await read(place)
        for each in page:
            yield each
        if not place:
            return


def _owner(entity: Entity) -> str:
    """The id of the note or session that a line belongs to; empty where it is that itself."""
    return _id(entity) if isinstance(entity, HistoryLine | EventLine) else ""


def _id(entity: Entity) -> str:
    return entity.note_id if isinstance(entity, NoteLine | HistoryLine) else entity.session_id


def described(entity: Entity) -> str:
    """What a line is about, in words."""
    match entity:
        case NoteLine():
            return f"note {entity.note_id}"
        case HistoryLine():
            return f"earlier versions of note {entity.note_id}"
        case SessionLine():
            return f"session {entity.session_id}"
        case EventLine():
            return f"event {entity.sequence} of session {entity.session_id}"
