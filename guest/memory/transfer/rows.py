"""Converts a store's rows to lines, and names the columns they need."""

import json
from collections.abc import Sequence
from typing import Any, Final, cast

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

SAID: Final = (
    "version, content, tags, type, confidence, rationale, importance, source, "
    "origin_actor, origin_channel, origin_session, origin_turn, origin_link, origin_material, "
    "change, restores"
)
NOTE: Final = f"""
SELECT note_id, seq, key, scope_session, created_at, updated_at, access_count, accessed_at,
       superseded_by, superseded_reason, superseded_at,
       EXISTS (SELECT 1 FROM notes AS other
               WHERE other.namespace = notes.namespace AND other.seq <> notes.seq
                   AND other.content_hash = notes.content_hash
                   AND other.key IS NULL AND notes.key IS NULL
                   AND other.scope_session = notes.scope_session
                   AND other.superseded_by IS NULL AND notes.superseded_by IS NULL),
       {SAID}
    FROM notes
"""  # noqa: S608
VERSION: Final = f"SELECT note_id, written_at, replaced_at, {SAID} FROM note_versions"  # noqa: S608
SESSION: Final = """
SELECT session_id, title, channel, created_at, updated_at, turns, archived_at, parent_id, rowid
    FROM sessions WHERE user_id = ?
"""
STATE: Final = """
SELECT session_id, name, value, epoch, updated_at FROM session_state
    WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY session_id, name
"""
EVENT: Final = """
SELECT session_id, sequence, turn_id, role, text, payload, created_at FROM conversation_events
"""


async def with_state(database: Database, rows: Sequence[Row]) -> list[SessionLine]:
    """Sessions with their named values."""
    states: dict[str, list[State]] = {}
    ids = json.dumps([row[0] for row in rows])
    for session_id, *values in (await database.execute(STATE, (ids,))).rows:
        name, value, epoch, updated = cast("tuple[Any, ...]", values)
        states.setdefault(cast(str, session_id), []).append(
            State.model_construct(name=name, value=value, epoch=epoch, updated_at=updated)
        )
    return [_session(row, states.get(cast(str, row[0]), [])) for row in rows]


def note_line(row: Row, history: Sequence[Version]) -> NoteLine:
    values = cast("tuple[Any, ...]", row)
    note_id, _, key, scope, created, updated, accesses, accessed = values[:8]
    by, reason, superseded, repeats = values[8:12]
    return NoteLine.model_construct(
        note_id=note_id,
        key=key,
        scope_session=scope or None,
        created_at=created,
        updated_at=updated,
        access_count=accesses,
        accessed_at=accessed or None,
        superseded_by=by,
        superseded_reason=reason,
        superseded_at=superseded or None,
        repeats_text=bool(repeats),
        current=Said.model_construct(**_said(values[12:])),
        history=list(history),
    )


def version_line(row: Row) -> Version:
    _, written, replaced, *said = cast("tuple[Any, ...]", row)
    return Version.model_construct(**_said(said), written_at=written, replaced_at=replaced)


def _said(values: Sequence[Any]) -> dict[str, Any]:
    names = ("version", "content", "tags", "type", "confidence", "rationale", "importance")
    said = dict(zip((*names, "source"), values, strict=False))
    actor, channel, session, turn, link, material, change, restores = values[8:]
    origin = Origin.model_construct(
        actor=actor,
        channel=channel,
        session_id=session,
        turn_id=turn,
        link=link,
        material=bool(material),
    )
    tags = json.loads(said["tags"])
    return said | {"tags": tags, "origin": origin, "change": change, "restores": restores}


def _session(row: Row, state: Sequence[State]) -> SessionLine:
    session_id, title, channel, created, updated, turns, archived, parent, _ = cast(
        "tuple[Any, ...]", row
    )
    return SessionLine.model_construct(
        session_id=session_id,
        title=title,
        channel=channel,
        created_at=created,
        updated_at=updated,
        turns=turns,
        archived_at=archived or None,
        parent_id=parent or None,
        state=list(state),
    )


def event_line(row: Row) -> EventLine:
    session_id, sequence, turn, role, text, payload, created = cast("tuple[Any, ...]", row)
    return EventLine.model_construct(
        session_id=session_id,
        sequence=sequence,
        turn_id=turn,
        role=role,
        text=text,
        payload=payload,
        created_at=created,
    )
