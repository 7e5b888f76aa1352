"""Converts a store's rows to lines, and names the columns they need, in the order of the fields."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from guest.memory.notes.columns import VERSIONED, VERSIONED_COUNT, Versioned
from guest.memory.storage.base import Database, Row
from guest.memory.transfer.format import (
    EventLine,
    NoteLine,
    Origin,
    Said,
    SessionLine,
    State,
    Version,
)

ENDED_FIELDS: Final = "superseded_by, superseded_reason, NULLIF(superseded_at, '')"
NOTE: Final = f"""
SELECT note_id, key, NULLIF(scope_session, ''), created_at, updated_at, access_count,
       NULLIF(accessed_at, ''), {ENDED_FIELDS},
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
SELECT session_id, title, channel, created_at, updated_at, turns, NULLIF(archived_at, ''),
       NULLIF(parent_id, ''), rowid
    FROM sessions WHERE user_id = ?
"""
STATE: Final = """
SELECT session_id, name, value, epoch, updated_at FROM session_state
    WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY session_id, name
"""
EVENT: Final = """
SELECT session_id, sequence, turn_id, role, text, payload, created_at FROM conversation_events
"""

_M = TypeVar("_M", bound=BaseModel)
_S = TypeVar("_S", bound=Said)


async def with_state(database: Database, rows: Sequence[Row]) -> list[SessionLine]:
    """Sessions with their named values."""
    states: dict[object, list[State]] = {}
    ids = json.dumps([row[0] for row in rows])
    for session_id, *values in (await database.execute(STATE, (ids,))).rows:
        states.setdefault(session_id, []).append(_made(State, values))
    return [_made(SessionLine, row[:-1], state=states.get(row[0], [])) for row in rows]


def note_line(row: Row, history: Sequence[Version]) -> NoteLine:
    current = _said(Said, row[11:-1])
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
    fields |= dict(zip(names[len(Said.model_fields) :], values[VERSIONED_COUNT:], strict=True))
    return kind.model_construct(None, **{name: fields[name] for name in names})


def _made(kind: type[_M], values: Sequence[Any], **more: Any) -> _M:
    """A line, or a part of one, from the values of its fields in order, except for `more`."""
    names = _names(kind, tuple(more))
    return kind.model_construct(None, **dict(zip(names, values, strict=True)), **more)


@cache
def _names(kind: type[BaseModel], others: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name not in ("kind", *others))
