"""Decides what happens to an imported line, by comparing it with what is stored."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from guest.memory.models import User
from guest.memory.notes import repository
from guest.memory.notes.columns import to_json
from guest.memory.notes.quota import USED, Used, used_of
from guest.memory.storage.base import Database, Result, Statement
from guest.memory.transfer.exporter import (
    EVENT_LINE,
    NOTE,
    SESSION,
    VERSION,
    event_line,
    note_line,
    version_line,
    with_state,
)
from guest.memory.transfer.format import (
    EventLine,
    HistoryLine,
    NoteContent,
    NoteLine,
    SessionLine,
    State,
    Version,
    imported,
)

_NOTES_BY_ID: Final = f"""
{NOTE} WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""  # noqa: S608
_VERSIONS_BY_NUMBER: Final = f"""
{VERSION} WHERE namespace = ?
    AND (note_id, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
"""  # noqa: S608
_VERSIONS_BY_TIME: Final = f"""
{VERSION} WHERE namespace = ?
    AND (note_id, written_at) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
"""  # noqa: S608
_SESSIONS_BY_ID: Final = f"{SESSION} AND session_id IN (SELECT value FROM json_each(?))"  # noqa: S608
_TAKEN: Final = """
SELECT session_id FROM sessions
    WHERE session_id IN (SELECT value FROM json_each(?)) AND user_id <> ?
"""
_EVENTS_BY_NUMBER: Final = f"""
{EVENT_LINE} WHERE (session_id, sequence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
    AND EXISTS (SELECT 1 FROM sessions AS own
        WHERE own.session_id = conversation_events.session_id AND user_id = ?)
"""  # noqa: S608
_BY_TEXT: Final = """
SELECT content_hash, scope_session, note_id FROM notes
    WHERE namespace = ? AND superseded_by IS NULL AND key IS NULL
        AND content_hash IN (SELECT value FROM json_each(?))
"""
_BY_KEY: Final = """
SELECT key, note_id, updated_at FROM notes
    WHERE namespace = ? AND key IN (SELECT value FROM json_each(?))
"""


@dataclass(frozen=True)
class Owner:
    """The note that has a key here."""

    note_id: str
    updated_at: str


@dataclass(frozen=True)
class StoredNotes:
    """What is stored about some lines' notes: the notes, without history; their earlier versions
    that have a number or a time of the lines; notes with the same text and scope, or the same key;
    and the usage."""

    notes: Mapping[str, NoteLine]
    versions: Mapping[tuple[str, int], Version]
    by_text: Mapping[tuple[str, str], str]
    by_key: Mapping[str, Owner]
    used: Used


@dataclass(frozen=True)
class StoredConversations:
    """What is stored about some lines' sessions: the user's, the ids that are taken by other users
    of the same store, and the events by session and number."""

    sessions: Mapping[str, SessionLine]
    taken: Collection[str]
    events: Mapping[tuple[str, int], EventLine]


class Stored:
    """Looks up what is stored for one user."""

    def __init__(self, database: Database, user: User) -> None:
        self._database = database
        self._user = user

    async def notes(self, lines: Sequence[NoteLine | HistoryLine]) -> StoredNotes:
        notes = [line for line in lines if isinstance(line, NoteLine)]
        ids = {line.note_id for line in lines}
        numbers = [(line.note_id, each.version) for line in lines for each in line.history]
        numbers += [(line.note_id, line.current.version) for line in notes]
        sought: Sequence[tuple[str, Sequence[object]]] = (
            (_NOTES_BY_ID, [*ids]),
            (_VERSIONS_BY_NUMBER, numbers),
            (_VERSIONS_BY_TIME, [(line.note_id, line.updated_at) for line in notes]),
            (_BY_TEXT, [repository.hash_of(line.current.content) for line in notes]),
            (_BY_KEY, [line.key for line in notes if line.key is not None]),
        )
        found = await self._database.batch(
            [
                *(Statement(sql, (self._user.notes, to_json(each))) for sql, each in sought),
                Statement(USED, (self._user.notes,)),
            ]
        )
        versions = [(row[0], version_line(row)) for result in found[1:3] for row in result.rows]
        return StoredNotes(
            {cast(str, row[0]): note_line(row, ()) for row in found[0].rows},
            {(cast(str, note_id), version.version): version for note_id, version in versions},
            {(text, scope): note_id for text, scope, note_id in _strings(found[3])},
            {key: Owner(note_id, updated) for key, note_id, updated in _strings(found[4])},
            used_of(found[5]),
        )

    async def conversations(self, lines: Sequence[SessionLine | EventLine]) -> StoredConversations:
        user, ids = self._user.id, json.dumps(sorted({line.session_id for line in lines}))
        numbers = [
            (line.session_id, line.sequence) for line in lines if isinstance(line, EventLine)
        ]
        sessions, taken, events = await self._database.batch(
            (
                Statement(_SESSIONS_BY_ID, (user, ids)),
                Statement(_TAKEN, (ids, user)),
                Statement(_EVENTS_BY_NUMBER, (json.dumps(numbers), user)),
            )
        )
        known = await with_state(self._database, sessions.rows)
        found = map(event_line, events.rows)
        return StoredConversations(
            {line.session_id: line for line in known},
            {cast(str, row[0]) for row in taken.rows},
            {(line.session_id, line.sequence): line for line in found},
        )


def _strings(result: Result) -> Sequence[Any]:
    return cast("Sequence[Any]", result.rows)


Outcome = Literal["created", "updated", "unchanged"]


class Conflict(Exception):  # noqa: N818 - a condition that callers expect and report
    """The line conflicts with the store, which stays as it is."""


@dataclass(frozen=True)
class NoteChange:
    """What to store for a note.

    Attributes:
        outcome: How its line is counted.
        note: The note, without its history; None if its row stays as it is.
        versions: Earlier versions to add.
        merged: Whether the note was changed here and there.
        release: The note that loses its key to this one.
        told: What of the line is not stored, and why.
    """

    outcome: Outcome
    note: NoteLine | None = None
    versions: Sequence[Version] = ()
    merged: bool = False
    release: Owner | None = None
    told: str = ""


@dataclass(frozen=True)
class SessionChange:
    """What to do for a session: its own fields, and its named values."""

    outcome: Outcome
    fields: bool = False
    state: Sequence[State] = field(default_factory=tuple)


def about_note(line: NoteLine, stored: StoredNotes) -> NoteChange:
    """Decide about a note. Of what is here and what the line says the newer counts, and the other
    is kept as an earlier version. Raises `Conflict`."""
    _refuse_later(line.history, line.current.version)
    known = stored.notes.get(line.note_id)
    if known is None:
        same_text = (repository.hash_of(line.current.content), line.scope_session or "")
        twin = stored.by_text.get(same_text)
        if twin is not None and is_kept_once(line):
            raise Conflict(f"note {twin} says exactly the same here, under that id")
        return _keyed(line, stored, NoteChange("created", line, line.history))
    if known.created_at != line.created_at:
        raise Conflict(
            f"another note has the id {line.note_id} here, created at {known.created_at}"
        )
    if known.scope_session != line.scope_session:
        raise Conflict(f"scope_session: another session sees note {line.note_id} here")
    missing, told = _missing(line.note_id, line.history, stored)
    here = [each for (note_id, _), each in stored.versions.items() if note_id == line.note_id]
    note, kept = _joined(line, known, here)
    recalls = max(line.access_count, known.access_count)
    recalled = max(line.accessed_at or "", known.accessed_at or "") or None
    note = note.model_copy(update={"access_count": recalls, "accessed_at": recalled})
    versions = [each for each in (*missing, *kept) if each.version < note.current.version]
    change = NoteChange("updated", None, versions, bool(kept), told=told)
    if note.current != known.current:
        change = _keyed(note, stored, change)
    elif (note.superseded_by, note.superseded_at) != (known.superseded_by, known.superseded_at):
        change = replace(change, note=note)
    elif not change.versions:
        change = replace(change, outcome="unchanged")
    if (recalls, recalled) != (known.access_count, known.accessed_at):
        change = replace(change, note=change.note or note)
    return change


def _joined(
    line: NoteLine, known: NoteLine, here: Sequence[Version]
) -> tuple[NoteLine, Sequence[Version]]:
    """The note that counts, and what to add to its versions: where neither the line nor what is
    known is an earlier version of the other, the older one."""
    newer, older = (line, known) if _age(line) > _age(known) else (known, line)
    if _is(line, known.current, known.updated_at):
        return known.model_copy(update={name: getattr(newer, name) for name in _ENDED}), ()
    if any(_is(line, each, each.written_at) for each in here):
        return known, ()
    if any(_is(known, each, each.written_at) for each in line.history):
        return line, ()
    number = older.current.version
    taken = {each.version for each in (line.history if newer is line else here)}
    if number >= newer.current.version or number in taken:
        number = max(line.current.version, known.current.version)
    fields = dict(older.current) | {name: getattr(older, name) for name in _ENDED}
    fields |= {"version": number, "written_at": older.updated_at, "replaced_at": newer.updated_at}
    top = {"version": max(newer.current.version, number + 1)}
    note = newer.model_copy(update={"current": newer.current.model_copy(update=top)})
    return note, (Version.model_construct(None, **fields),)


def _age(note: NoteLine) -> tuple[object, ...]:
    """What orders the states of a note."""
    changed = max(note.updated_at, note.superseded_at or "")
    return changed, note.current.version, note.superseded_by is not None, note.superseded_by or ""


def _is(note: NoteLine, said: NoteContent, written_at: str) -> bool:
    """Whether `said` is what the note says: the same words, under the same number or written at
    the same time."""
    same = note.current.version == said.version or note.updated_at == written_at
    return same and _words(note.current) == _words(said)


def is_kept_once(line: NoteLine) -> bool:
    """Whether no other note may have the same text, unless the line says that one does."""
    return line.key is None and line.superseded_by is None and not line.repeats_text


def about_history(line: HistoryLine, stored: StoredNotes) -> NoteChange:
    """Decide about earlier versions. Raises `Conflict`."""
    known = stored.notes.get(line.note_id)
    if known is None:
        raise Conflict(f"the history's note {line.note_id} is not here")
    _refuse_later(line.history, known.current.version)
    versions, told = _missing(line.note_id, line.history, stored)
    return NoteChange("updated", None, versions, told=told)


def about_session(line: SessionLine, stored: StoredConversations) -> SessionChange:
    """Decide about a session. Raises `Conflict`."""
    if line.session_id in stored.taken:
        raise Conflict(f"session_id: {line.session_id} is taken by another user here")
    known = stored.sessions.get(line.session_id)
    if known is None:
        return SessionChange("created", fields=True, state=line.state)
    if known.created_at != line.created_at:
        raise Conflict(
            f"another session has the id {line.session_id} here, begun at {known.created_at}"
        )
    have = {state.name: (state.epoch, state.updated_at) for state in known.state}
    state = [
        each
        for each in line.state
        if each.name not in have or (each.epoch, each.updated_at) > have[each.name]
    ]
    fields = line.updated_at > known.updated_at
    return SessionChange("updated" if fields or state else "unchanged", fields, state)


def about_event(line: EventLine, stored: StoredConversations, made: Collection[str]) -> Outcome:
    """Decide about an event; `made` are the sessions that come with it. Raises `Conflict`."""
    if line.session_id not in stored.sessions and line.session_id not in made:
        raise Conflict(f"the event's session {line.session_id} is not here")
    known = stored.events.get((line.session_id, line.sequence))
    if known is None:
        return "created"
    if known != line:
        raise Conflict(
            f"event {line.sequence} of session {line.session_id} is another one here, of "
            f"{known.created_at}"
        )
    return "unchanged"


def _keyed(note: NoteLine, stored: StoredNotes, change: NoteChange) -> NoteChange:
    """`change` with the note as it is to be: of two notes with one key, the later written keeps
    it."""
    owner = None if note.key is None else stored.by_key.get(note.key)
    if owner is None or owner.note_id == note.note_id:
        return replace(change, note=note)
    if (note.updated_at, note.note_id) > (owner.updated_at, owner.note_id):
        told = f"key: {note.key!r} was the key of note {owner.note_id} here, which is older "
        return replace(change, note=note, release=owner, told=f"{told}and has none now")
    told = f"key: {note.key!r} is the key of note {owner.note_id} here, which is newer; "
    told += f"note {note.note_id} is stored without a key"
    return replace(
        change, note=note.model_copy(update={"key": None, "repeats_text": True}), told=told
    )


def _refuse_later(history: Sequence[Version], current: int) -> None:
    """Raise `Conflict` if the history holds versions later than the current one: they would
    block later updates."""
    latest = max((version.version for version in history), default=0)
    if latest >= current:
        raise Conflict(f"history: version {latest} is not before version {current} of the note")


_ENDED: Final = ("superseded_by", "superseded_reason", "superseded_at")


def _missing(
    note_id: str, history: Sequence[Version], stored: StoredNotes
) -> tuple[list[Version], str]:
    """The versions whose numbers are free here; and in words, those that say something else."""
    missing: list[Version] = []
    others: list[str] = []
    for version in history:
        here = stored.versions.get((note_id, version.version))
        if here is None:
            missing.append(version)
        elif _words(here) != _words(version):
            others.append(str(version.version))
    told = f"history: version {', '.join(others)} of note {note_id} says something else here, and "
    return missing, f"{told}stays as it is" if others else ""


def _words(said: NoteContent) -> NoteContent:
    """What a version says, without its number and whether its user is this one."""
    said = imported(said)
    fields = {name: getattr(said, name) for name in NoteContent.model_fields}
    return NoteContent.model_construct(None, **fields | {"version": 0})
