"""Decides what happens to an imported line, by comparing it with what is stored."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from guest.memory.models import User
from guest.memory.notes import repository
from guest.memory.notes.quota import USED, Used, used_of
from guest.memory.storage.base import Database, Result, Statement
from guest.memory.transfer.format import (
    EventLine,
    HistoryLine,
    NoteLine,
    Said,
    SessionLine,
    State,
    Version,
    imported,
)
from guest.memory.transfer.rows import (
    EVENT,
    NOTE,
    SESSION,
    VERSION,
    event_line,
    note_line,
    version_line,
    with_state,
)

_NOTES_BY_ID: Final = f"""
{NOTE} WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""  # noqa: S608
_VERSIONS_BY_NUMBER: Final = f"""
{VERSION} WHERE namespace = ?
    AND (note_id, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
"""  # noqa: S608
_SESSIONS_BY_ID: Final = f"{SESSION} AND session_id IN (SELECT value FROM json_each(?))"  # noqa: S608
_TAKEN: Final = """
SELECT session_id FROM sessions
    WHERE session_id IN (SELECT value FROM json_each(?)) AND user_id <> ?
"""
_EVENTS_BY_NUMBER: Final = f"""
{EVENT} WHERE (session_id, sequence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
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
_REPLACED: Final = """
WITH RECURSIVE chain (note_id) AS (
    SELECT value FROM json_each(?2)
    UNION
    SELECT superseded_by FROM chain CROSS JOIN notes USING (note_id)
        WHERE namespace = ?1 AND superseded_by <> '')
SELECT note_id, superseded_by FROM chain CROSS JOIN notes USING (note_id)
    WHERE namespace = ?1 AND superseded_by <> ''
"""
_SCOPES: Final = """
SELECT note_id, scope_session FROM notes
    WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""
_REPLACING: Final = """
SELECT superseded_by, iif(MIN(scope_session) = MAX(scope_session), MIN(scope_session), '')
    FROM notes
    WHERE namespace = ? AND superseded_by IN (SELECT value FROM json_each(?))
    GROUP BY superseded_by
"""


@dataclass(frozen=True)
class Owner:
    """The note that has a key here."""

    note_id: str
    updated_at: str


@dataclass(frozen=True)
class StoredNotes:
    """What is stored about some lines' notes: the notes, without history; those versions that
    the lines hold, too; notes with the same text and scope, or the same key; the chains of
    replacements that start at the lines; the sessions that the notes' replacements, and the
    notes they replace, are scoped to; and the usage."""

    notes: Mapping[str, NoteLine]
    versions: Mapping[tuple[str, int], Version]
    by_text: Mapping[tuple[str, str], str]
    by_key: Mapping[str, Owner]
    replaced: Mapping[str, str]
    scopes: Mapping[str, str]
    replacing: Mapping[str, str]
    used: Used


class Stored:
    """Looks up what is stored for one user."""

    def __init__(self, database: Database, user: User) -> None:
        self._database = database
        self._user = user

    async def notes(self, lines: Iterable[NoteLine | HistoryLine]) -> StoredNotes:
        """What is stored about the notes of `lines`."""
        ids: list[str] = []
        numbers: list[tuple[str, int]] = []
        texts: list[str] = []
        keys: list[str] = []
        replacements: list[str] = []
        scoped: list[str] = []
        for line in lines:
            ids.append(line.note_id)
            numbers += [(line.note_id, each.version) for each in line.history]
            if isinstance(line, NoteLine):
                numbers.append((line.note_id, line.current.version))
                texts.append(repository.hash_of(line.current.content))
                if line.key is not None:
                    keys.append(line.key)
                if line.superseded_by:
                    replacements.append(line.superseded_by)
                if line.scope_session:
                    scoped.append(line.note_id)
        sought: Sequence[tuple[str, Sequence[object]]] = (
            (_NOTES_BY_ID, ids),
            (_VERSIONS_BY_NUMBER, numbers),
            (_BY_TEXT, texts),
            (_BY_KEY, keys),
            (_REPLACED, replacements),
            (_SCOPES, replacements),
            (_REPLACING, [*scoped, *replacements]),
        )
        found = await self._database.batch(
            [
                *(
                    Statement(sql, (self._user.notes, repository.to_json(each)))
                    for sql, each in sought
                ),
                Statement(USED, (self._user.notes,)),
            ]
        )
        return StoredNotes(
            {cast(str, row[0]): note_line(row, ()) for row in found[0].rows},
            {(cast(str, row[0]), cast(int, row[1])): version_line(row) for row in found[1].rows},
            {(text, scope): note_id for text, scope, note_id in _strings(found[2])},
            {key: Owner(note_id, updated) for key, note_id, updated in _strings(found[3])},
            dict(_strings(found[4])),
            dict(_strings(found[5])),
            dict(_strings(found[6])),
            used_of(found[7]),
        )

    async def sessions(self, session_ids: Iterable[str]) -> dict[str, SessionLine]:
        """The user's sessions among these ids."""
        result = await self._database.execute(
            _SESSIONS_BY_ID, (self._user.id, json.dumps(list(session_ids)))
        )
        lines = await with_state(self._database, result.rows)
        return {line.session_id: line for line in lines}

    async def taken(self, session_ids: Iterable[str]) -> set[str]:
        """The ids that are sessions of other users of the same store."""
        result = await self._database.execute(
            _TAKEN, (json.dumps(list(session_ids)), self._user.id)
        )
        return {cast(str, row[0]) for row in result.rows}

    async def events(self, numbers: Sequence[tuple[str, int]]) -> dict[tuple[str, int], EventLine]:
        """The stored events among these, given by session and sequence number. The sessions must
        be the user's."""
        result = await self._database.execute(_EVENTS_BY_NUMBER, (json.dumps(numbers),))
        events = [event_line(row) for row in result.rows]
        return {(each.session_id, each.sequence): each for each in events}


def _strings(result: Result) -> Sequence[Any]:
    return cast("Sequence[Any]", result.rows)


Outcome = Literal["created", "updated", "unchanged"]


class Conflict(Exception):  # noqa: N818 - a condition that callers expect and report
    """The line conflicts with the store, which stays as it is."""


@dataclass(frozen=True)
class NoteChange:
    """What to do for a note.

    `text`: replace its text by the line's. `keep`: keep its current text as a version, replaced at
    this time. `versions`: add these to its history, or set when they were replaced. `supersede`:
    mark it as superseded, with or without a replacement. `accesses`: raise its count or time of
    recall. `key`: set this key. `release`: take the key from this note. `told`: a message about a
    key that two notes have.
    """

    outcome: Outcome
    text: bool = False
    keep: str | None = None
    versions: Sequence[Version] = ()
    supersede: bool = False
    accesses: bool = False
    key: str | None = None
    release: Owner | None = None
    told: str = ""


@dataclass(frozen=True)
class SessionChange:
    """What to do for a session: its own fields, and its named values."""

    outcome: Outcome
    fields: bool = False
    state: Sequence[State] = field(default_factory=tuple)


def about_note(line: NoteLine, content_hash: str, stored: StoredNotes) -> NoteChange:
    """Decide about a note. Raises `Conflict`."""
    _refuse_later(line.history, line.current.version)
    known = stored.notes.get(line.note_id)
    if known is None:
        twin = stored.by_text.get((content_hash, line.scope_session or ""))
        if twin is not None and is_kept_once(line):
            raise Conflict(f"note {twin} says exactly the same here, under that id")
        return _keyed(line, stored, NoteChange("created", text=True, versions=line.history))
    if known.created_at != line.created_at:
        raise Conflict(
            f"another note has the id {line.note_id} here, created at {known.created_at}"
        )
    if known.scope_session != line.scope_session:
        raise Conflict(f"scope_session: another session sees note {line.note_id} here")
    versions = _missing(line.note_id, line.history, known, stored)
    later = (line.accessed_at or "") > (known.accessed_at or "")
    accesses = later or line.access_count > known.access_count
    if line.current.version > known.current.version:
        covered = {version.version for version in line.history}
        keep = None
        if known.current.version not in covered:
            keep = line.history[0].written_at if line.history else line.updated_at
        change = NoteChange("updated", text=True, keep=keep, versions=versions, accesses=accesses)
        return _keyed(line, stored, change)
    _agree(line.note_id, line.current, known, stored)
    supersede = line.current.version == known.current.version and _takes_place(line, known)
    outcome: Outcome = "updated" if versions or supersede else "unchanged"
    return NoteChange(outcome, versions=versions, supersede=supersede, accesses=accesses)


def is_kept_once(line: NoteLine) -> bool:
    """Whether no other note may have the same text, unless the line says that one does."""
    return line.key is None and line.superseded_by is None and not line.repeats_text


def refuse_circle(line: NoteLine, replaced: Mapping[str, str]) -> None:
    """Raise `Conflict` if the notes would replace each other in a circle. `replaced` maps notes
    to their replacements."""
    replacement, seen = line.superseded_by, set[str]()
    while replacement and replacement not in seen:
        seen.add(replacement)
        if replacement == line.note_id:
            raise Conflict(
                f"superseded_by: {line.superseded_by} was itself replaced by note "
                f"{line.note_id}, directly or through other notes"
            )
        replacement = replaced.get(replacement)


def refuse_narrower(
    line: NoteLine, scopes: Mapping[str, str], replacing: Mapping[str, str]
) -> None:
    """Raise `Conflict` if a note scoped to a session would replace a note that other sessions
    see, too: they would lose it. `scopes` maps notes to their session; `replacing` maps notes to
    the sessions of those they replace; empty means all sessions."""
    scope, by = line.scope_session or "", line.superseded_by
    if by and scopes.get(by, "") not in ("", scope):
        raise Conflict(
            f"superseded_by: only session {scopes[by]} sees note {by}; the others would lose "
            f"note {line.note_id}"
        )
    if scope and replacing.get(line.note_id, scope) != scope:
        raise Conflict(
            f"scope_session: note {line.note_id} replaces one that other sessions see, too; they "
            "would lose it"
        )


def about_history(line: HistoryLine, stored: StoredNotes) -> list[Version]:
    """The versions to add. Raises `Conflict`."""
    known = stored.notes.get(line.note_id)
    if known is None:
        raise Conflict(f"the history's note {line.note_id} is not here")
    _refuse_later(line.history, known.current.version)
    return _missing(line.note_id, line.history, known, stored)


def about_session(line: SessionLine, known: SessionLine | None) -> SessionChange:
    """Decide about a session. Raises `Conflict`."""
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


def about_event(line: EventLine, known: EventLine | None) -> Outcome:
    """Decide about an event. Raises `Conflict`."""
    if known is None:
        return "created"
    if known != line:
        raise Conflict(
            f"event {line.sequence} of session {line.session_id} is another one here, of "
            f"{known.created_at}"
        )
    return "unchanged"


def _keyed(line: NoteLine, stored: StoredNotes, change: NoteChange) -> NoteChange:
    """`change` with the decision on the line's key: of two notes with one key, the later written
    keeps it."""
    owner = None if line.key is None else stored.by_key.get(line.key)
    if owner is None or owner.note_id == line.note_id:
        return replace(change, key=line.key)
    if (line.updated_at, line.note_id) > (owner.updated_at, owner.note_id):
        told = f"key: {line.key!r} was the key of note {owner.note_id} here, which is older "
        return replace(change, key=line.key, release=owner, told=f"{told}and has none now")
    told = f"key: {line.key!r} is the key of note {owner.note_id} here, which is newer; "
    return replace(change, told=f"{told}note {line.note_id} is stored without a key")


def _takes_place(line: NoteLine, known: NoteLine) -> bool:
    """Whether the line knows a replacement of the note that the store does not know."""
    if line.superseded_by and known.superseded_by not in (None, "", line.superseded_by):
        raise Conflict(
            f"superseded_by: note {known.superseded_by} has taken its place here, and "
            f"{line.superseded_by} in the file"
        )
    if line.superseded_by is None:
        return False
    return known.superseded_by is None or (line.superseded_by > known.superseded_by)


def _refuse_later(history: Sequence[Version], current: int) -> None:
    """Raise `Conflict` if the history holds versions later than the current one: they would
    block later updates."""
    latest = max((version.version for version in history), default=0)
    if latest >= current:
        raise Conflict(f"history: version {latest} is not before version {current} of the note")


_ENDED: Final = ("superseded_by", "superseded_reason", "superseded_at")


def _missing(
    note_id: str, history: Sequence[Version], known: NoteLine, stored: StoredNotes
) -> list[Version]:
    """The versions that are not stored like this. Raises `Conflict` if a stored one has another
    text. A version that was superseded stays so, whichever side knows it."""
    missing = []
    for version in history:
        _agree(note_id, version, known, stored)
        here = stored.versions.get((note_id, version.version))
        if here is not None and version.superseded_by is None:
            ended = {name: getattr(here, name) for name in _ENDED}
            version = version.model_copy(update=ended)
        if here is None or imported(here) != imported(version):
            missing.append(version)
    return missing


def _agree(note_id: str, said: Said, known: NoteLine, stored: StoredNotes) -> None:
    number = said.version
    here = (
        known.current if number == known.current.version else stored.versions.get((note_id, number))
    )
    if here is not None and _words(here) != _words(said):
        raise Conflict(f"version {number} of note {note_id} says something else here")


def _words(said: Said) -> Said:
    """The part of a version to compare: not when it was replaced, nor whether its user is this
    one."""
    said = imported(said)
    return Said.model_construct(**{name: getattr(said, name) for name in Said.model_fields})
