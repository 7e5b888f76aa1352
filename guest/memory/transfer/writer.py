"""Statements that store imported lines exactly as they were, and their effect on passages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from guest.memory.conversations import store
from guest.memory.conversations.store import indexing
from guest.memory.indexing.chunking import passages_of
from guest.memory.models import User
from guest.memory.notes import repository
from guest.memory.notes.quota import Quota, Used
from guest.memory.notes.repository import VERSIONED
from guest.memory.storage.base import Result, Statement
from guest.memory.transfer.format import EventLine, NoteLine, Said, SessionLine, Version
from guest.memory.transfer.merge import NoteChange, SessionChange, is_kept_once

_REQUIRE_SAME: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM notes WHERE namespace = ? AND note_id = ?
                                   AND version = ? AND updated_at = ?
                                   AND superseded_by IS ?)
"""
_PLACES: Final = ", ".join("?" * len(VERSIONED.split(",")))
_NOTE: Final = f"""
INSERT INTO notes (namespace, note_id, created_at, scope_session, content_hash, key, updated_at,
                   access_count, accessed_at, superseded_by, superseded_reason, superseded_at,
                   {VERSIONED})
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {_PLACES})
"""  # noqa: S608
_REPLACE: Final = f"""
UPDATE notes
    SET ({VERSIONED}) = ({_PLACES}), content_hash = ?, key = COALESCE(?, key), updated_at = ?,
        superseded_by = ?, superseded_reason = ?, superseded_at = ?
    WHERE namespace = ? AND note_id = ?
"""  # noqa: S608
_ACCESSED: Final = """
UPDATE notes SET access_count = MAX(access_count, ?), accessed_at = MAX(accessed_at, ?)
    WHERE namespace = ? AND note_id = ?
"""
_SUPERSEDE: Final = """
UPDATE notes SET superseded_by = ?,
                 superseded_reason = COALESCE(NULLIF(?, ''), superseded_reason),
                 superseded_at = COALESCE(NULLIF(?, ''), superseded_at)
    WHERE namespace = ? AND note_id = ?
"""
_REQUIRE_NO_CIRCLE: Final = """
INSERT INTO guards (ok)
    WITH RECURSIVE chain (note_id) AS (
        SELECT ?3
        UNION
        SELECT superseded_by FROM chain CROSS JOIN notes USING (note_id)
            WHERE namespace = ?1 AND superseded_by <> '')
    SELECT 0 FROM chain WHERE note_id = ?2
"""
_RELEASE: Final = """
UPDATE notes SET key = NULL WHERE namespace = ? AND note_id = ? AND key = ? AND updated_at = ?
"""
_VERSION: Final = f"""
INSERT INTO note_versions (namespace, note_id, written_at, replaced_at, {VERSIONED})
    VALUES (?, ?, ?, ?, {_PLACES})
    ON CONFLICT (namespace, note_id, version) DO UPDATE SET replaced_at = excluded.replaced_at
"""  # noqa: S608
_SESSION: Final = """
INSERT INTO sessions (session_id, user_id, title, channel, created_at, updated_at, turns,
                      archived_at, parent_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session_id) DO UPDATE
        SET title = excluded.title, channel = excluded.channel, turns = excluded.turns,
            updated_at = excluded.updated_at, archived_at = excluded.archived_at,
            parent_id = COALESCE(NULLIF(excluded.parent_id, ''), parent_id)
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
    """Statements of one transaction, and which of them return ids of passages."""

    user: User
    quota: Quota
    statements: list[Statement] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)

    def note(self, line: NoteLine, change: NoteChange, known: NoteLine | None) -> None:
        """Apply `change`; the batch fails if `known` is no longer what is stored."""
        namespace = self.user.notes
        if change.release is not None:
            owner = change.release
            self._add(Statement(_RELEASE, (namespace, owner.note_id, line.key, owner.updated_at)))
        if known is None:
            if is_kept_once(line):
                same = (repository.hash_of(line.current.content), line.scope_session or "")
                self._add(repository.require_new(namespace, *same))
            self._add(Statement(_NOTE, (namespace, *_note(line, change.key))))
            self._index(namespace, line)
        elif change.outcome == "updated":
            self._require(namespace, known)
            if change.text:
                self._replace(namespace, line, change, known)
        if change.supersede:
            self._add(Statement(_SUPERSEDE, (*_end(line), namespace, line.note_id)))
        if line.superseded_by and (change.supersede or change.text):
            chain = (namespace, line.note_id, line.superseded_by)
            self._add(Statement(_REQUIRE_NO_CIRCLE, chain))
        if change.accesses:
            accesses = (line.access_count, line.accessed_at or "", namespace, line.note_id)
            self._add(Statement(_ACCESSED, accesses))
        self._history(namespace, line.note_id, change.versions)

    def keep(self, more: Used) -> None:
        """Fail the batch if it adds `more` and exceeds the quota."""
        if more.notes > 0 or more.text_bytes > 0:
            self._add(self.quota.keep(self.user.notes, more))

    def history(self, versions: Sequence[Version], known: NoteLine) -> None:
        """Add versions; the batch fails if `known` is no longer what is stored."""
        namespace = self.user.notes
        self._require(namespace, known)
        self._history(namespace, known.note_id, versions)

    def session(self, line: SessionLine, change: SessionChange) -> None:
        """Apply `change`; the batch fails if the session belongs to another user."""
        if change.fields:
            values = (line.title, line.channel, line.created_at, line.updated_at, line.turns)
            put_away, parent = line.archived_at or "", line.parent_id or ""
            session = (line.session_id, self.user.id, *values, put_away, parent)
            self._add(Statement(_SESSION, session))
        self._add(Statement(_REQUIRE_SESSION, (line.session_id, self.user.id)))
        for each in change.state:
            state = (line.session_id, each.name, each.value, each.epoch, each.updated_at)
            self._add(Statement(_STATE, state))

    def event(self, line: EventLine) -> None:
        """Add an event under its number; the batch fails if the number is taken or the session
        is not the user's."""
        self._add(Statement(_REQUIRE_SESSION, (line.session_id, self.user.id)))
        number = (line.session_id, line.sequence)
        words = (line.turn_id, line.role, line.text, line.payload, line.created_at)
        self._add(Statement(_EVENT, (*number, *words)))
        self.adding.append(len(self.statements))
        self._add(
            indexing(
                self.user.conversations,
                line.session_id,
                line.role,
                line.text,
                line.created_at,
                line.sequence,
            )
        )
        self._add(store.refresh(line.session_id, line.sequence))

    def passages(self, results: Sequence[Result]) -> tuple[list[int], list[int]]:
        """The ids of added and of removed passages."""
        return _ids(results, self.adding), _ids(results, self.removing)

    def _replace(self, namespace: str, line: NoteLine, change: NoteChange, known: NoteLine) -> None:
        if change.keep is not None:
            kept = Version.model_construct(
                None, **dict(known.current), written_at=known.updated_at, replaced_at=change.keep
            )
            self._history(namespace, line.note_id, [kept])
        new = (repository.hash_of(line.current.content), change.key, line.updated_at, *_end(line))
        self._add(Statement(_REPLACE, (*_said(line.current), *new, namespace, line.note_id)))
        if line.current.content != known.current.content:
            self.removing.append(len(self.statements))
            self._add(repository.delete_passages(namespace, line.note_id))
            self._index(namespace, line)

    def _index(self, namespace: str, line: NoteLine) -> None:
        passages = passages_of(line.current.content)
        self.adding.append(len(self.statements))
        self._add(repository.insert_passages(namespace, line.note_id, passages))

    def _history(self, namespace: str, note_id: str, versions: Sequence[Version]) -> None:
        for version in versions:
            times = (version.written_at, version.replaced_at)
            self._add(Statement(_VERSION, (namespace, note_id, *times, *_said(version))))

    def _require(self, namespace: str, known: NoteLine) -> None:
        same = (known.current.version, known.updated_at, known.superseded_by)
        self._add(Statement(_REQUIRE_SAME, (namespace, known.note_id, *same)))

    def _add(self, statement: Statement) -> None:
        self.statements.append(statement)


def _note(line: NoteLine, key: str | None) -> tuple[Any, ...]:
    return (
        *(line.note_id, line.created_at, line.scope_session or ""),
        *(repository.hash_of(line.current.content), key, line.updated_at),
        *(line.access_count, line.accessed_at or "", *_end(line), *_said(line.current)),
    )


def _end(line: NoteLine) -> tuple[str | None, ...]:
    return line.superseded_by, line.superseded_reason, line.superseded_at or ""


def _said(said: Said) -> tuple[Any, ...]:
    """The values of the columns `VERSIONED`, which have the order of the fields."""
    fields = {name: getattr(said, name) for name in Said.model_fields}
    tags, origin = repository.to_json(said.tags), fields.pop("origin")
    *before, change, restores = (fields | {"tags": tags}).values()
    return (*before, *dict(origin).values(), change, restores)


def _ids(results: Sequence[Result], places: Sequence[int]) -> list[int]:
    return [cast(int, row[0]) for place in places for row in results[place].rows]
