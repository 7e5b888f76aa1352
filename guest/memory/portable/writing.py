"""The statements that store what lines say, exactly as it was, and what they do to passages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from guest.memory import around, namespaces, notes
from guest.memory.chunking import passages_of
from guest.memory.conversation import indexing
from guest.memory.database.base import Result, Statement
from guest.memory.portable.deciding import NoteChange, SessionChange
from guest.memory.portable.lines import (
    EventLine,
    HistoryLine,
    NoteLine,
    Said,
    SessionLine,
    Version,
)
from guest.memory.types import MemoryConfig

_REQUIRE_SAME: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM notes WHERE namespace = ? AND note_id = ?
                                   AND version = ? AND updated_at = ?
                                   AND superseded_by IS ?)
"""
_NOTE: Final = """
INSERT INTO notes (namespace, note_id, created_at, content_hash, key, updated_at, access_count,
                   superseded_by, superseded_reason, version, content, tags, type, confidence,
                   rationale, importance, source, origin_actor, origin_channel, origin_session,
                   origin_turn)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REPLACE: Final = """
UPDATE notes
    SET content_hash = ?, key = ?, updated_at = ?, access_count = MAX(access_count, ?),
        superseded_by = COALESCE(?, superseded_by),
        superseded_reason = COALESCE(NULLIF(?, ''), superseded_reason),
        version = ?, content = ?, tags = ?, type = ?, confidence = ?, rationale = ?,
        importance = ?, source = ?, origin_actor = ?, origin_channel = ?, origin_session = ?,
        origin_turn = ?
    WHERE namespace = ? AND note_id = ?
"""
_SUPERSEDE: Final = """
UPDATE notes SET superseded_by = ?, superseded_reason = ? WHERE namespace = ? AND note_id = ?
"""
_VERSION: Final = """
INSERT INTO note_versions (namespace, note_id, version, content, tags, type, confidence,
                           rationale, importance, source, origin_actor, origin_channel,
                           origin_session, origin_turn, written_at, replaced_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (namespace, note_id, version) DO UPDATE SET replaced_at = excluded.replaced_at
"""
_SESSION: Final = """
INSERT INTO sessions (session_id, user_id, title, channel, created_at, updated_at, turns,
                      archived_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session_id) DO UPDATE
        SET title = excluded.title, channel = excluded.channel, turns = excluded.turns,
            updated_at = excluded.updated_at, archived_at = excluded.archived_at
        WHERE excluded.user_id = user_id
"""
_REQUIRE_SESSION: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE session_id = ? AND user_id = ?)
"""
_STATE: Final = """
INSERT INTO session_state (session_id, name, value, epoch, updated_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (session_id, name) DO UPDATE
        SET value = excluded.value, epoch = excluded.epoch, updated_at = excluded.updated_at
        WHERE (excluded.epoch, excluded.updated_at) > (epoch, session_state.updated_at)
"""
_EVENT: Final = """
INSERT INTO conversation_events (session_id, sequence, turn_id, role, text, payload, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""


@dataclass
class Batch:
    """Statements of one transaction, and which of them tell about passages."""

    config: MemoryConfig
    user_id: str
    statements: list[Statement] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)

    def note(self, line: NoteLine, change: NoteChange, known: NoteLine | None) -> None:
        """Do `change`; the batch fails where `known` is no longer what is stored."""
        namespace = namespaces.notes_of(self.user_id)
        if known is None:
            if line.superseded_by is None and not line.repeats_text:
                self._add(notes.require_new(namespace, notes.hash_of(line.current.content)))
            self._add(Statement(_NOTE, (namespace, line.note_id, line.created_at, *_note(line))))
            self._index(namespace, line)
        else:
            self._require(namespace, known)
            if change.text:
                self._replace(namespace, line, change, known)
            elif change.supersede:
                reason = (line.superseded_by, line.superseded_reason, namespace, line.note_id)
                self._add(Statement(_SUPERSEDE, reason))
        self._history(namespace, line.note_id, change.versions)

    def history(self, line: HistoryLine, change: NoteChange, known: NoteLine) -> None:
        """Add versions; the batch fails where `known` is no longer what is stored."""
        namespace = namespaces.notes_of(self.user_id)
        self._require(namespace, known)
        self._history(namespace, line.note_id, change.versions)

    def session(self, line: SessionLine, change: SessionChange) -> None:
        """Do `change`; the batch fails where the session is another user's."""
        if change.fields:
            values = (line.title, line.channel, line.created_at, line.updated_at, line.turns)
            session = (line.session_id, self.user_id, *values, line.archived_at or "")
            self._add(Statement(_SESSION, session))
        self._add(Statement(_REQUIRE_SESSION, (line.session_id, self.user_id)))
        for each in change.state:
            state = (line.session_id, each.name, each.value, each.epoch, each.updated_at)
            self._add(Statement(_STATE, state))

    def event(self, line: EventLine) -> None:
        """Add an event under its number; the batch fails where there is one by now, or the
        session is not the user's."""
        self._add(Statement(_REQUIRE_SESSION, (line.session_id, self.user_id)))
        number = (line.session_id, line.sequence)
        words = (line.turn_id, line.role, line.text, line.payload, line.created_at)
        self._add(Statement(_EVENT, (*number, *words)))
        self.adding.append(len(self.statements))
        self._add(
            indexing(
                self.config,
                self.user_id,
                line.session_id,
                line.role,
                line.text,
                line.created_at,
                line.sequence,
            )
        )
        self._add(around.refresh(line.session_id, line.sequence))

    def passages(self, results: Sequence[Result]) -> tuple[list[int], list[int]]:
        """Which passages were added and which removed."""
        return _ids(results, self.adding), _ids(results, self.removing)

    def _replace(self, namespace: str, line: NoteLine, change: NoteChange, known: NoteLine) -> None:
        if change.keep is not None:
            kept = Version.model_construct(
                None, **dict(known.current), written_at=known.updated_at, replaced_at=change.keep
            )
            self._history(namespace, line.note_id, [kept])
        self._add(Statement(_REPLACE, (*_note(line), namespace, line.note_id)))
        if line.current.content != known.current.content:
            self.removing.append(len(self.statements))
            self._add(notes.delete_passages(namespace, line.note_id))
            self._index(namespace, line)

    def _index(self, namespace: str, line: NoteLine) -> None:
        passages = passages_of(self.config, line.current.content)
        self.adding.append(len(self.statements))
        self._add(notes.insert_passages(namespace, line.note_id, passages))

    def _history(self, namespace: str, note_id: str, versions: Sequence[Version]) -> None:
        for version in versions:
            times = (version.written_at, version.replaced_at)
            self._add(Statement(_VERSION, (namespace, note_id, *_said(version), *times)))

    def _require(self, namespace: str, known: NoteLine) -> None:
        same = (known.current.version, known.updated_at, known.superseded_by)
        self._add(Statement(_REQUIRE_SAME, (namespace, known.note_id, *same)))

    def _add(self, statement: Statement) -> None:
        self.statements.append(statement)


def _note(line: NoteLine) -> tuple[Any, ...]:
    return (
        notes.hash_of(line.current.content),
        line.key,
        line.updated_at,
        line.access_count,
        line.superseded_by,
        line.superseded_reason,
        *_said(line.current),
    )


def _said(said: Said) -> tuple[Any, ...]:
    tags = json.dumps(said.tags, ensure_ascii=False)
    origin = said.origin
    return (
        *(said.version, said.content, tags, said.type, said.confidence, said.rationale),
        *(said.importance, said.source),
        *(origin.actor, origin.channel, origin.session_id, origin.turn_id),
    )


def _ids(results: Sequence[Result], places: Sequence[int]) -> list[int]:
    return [cast(int, row[0]) for place in places for row in results[place].rows]
