"""What becomes of a line, from what it says and what is stored: nothing is done here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from guest.memory.portable.lines import (
    EventLine,
    HistoryLine,
    NoteLine,
    Said,
    SessionLine,
    State,
    Version,
)
from guest.memory.portable.stored import StoredNotes

Outcome = Literal["created", "updated", "unchanged"]


class Conflict(Exception):  # noqa: N818 - a condition that callers expect and report
    """What is stored contradicts the line; it stays as it is."""


@dataclass(frozen=True)
class NoteChange:
    """What is to be done for a note.

    `text`: it gets what the line says. `keep`: what it says now becomes a version,
    replaced at this time. `versions`: are added to its history, or get the time at which
    they were replaced. `supersede`: another note takes its place.
    """

    outcome: Outcome
    text: bool = False
    keep: str | None = None
    versions: Sequence[Version] = ()
    supersede: bool = False


@dataclass(frozen=True)
class SessionChange:
    """What is to be done for a session: its own fields, and values that belong to it."""

    outcome: Outcome
    fields: bool = False
    state: Sequence[State] = field(default_factory=tuple)


def about_note(line: NoteLine, content_hash: str, stored: StoredNotes) -> NoteChange:
    """Raises `Conflict`."""
    known = stored.notes.get(line.note_id)
    owner = stored.by_key.get(line.key, line.note_id) if line.key is not None else line.note_id
    if owner != line.note_id:
        raise Conflict(f"key: {line.key!r} is the key of note {owner} here")
    if known is None:
        twin = stored.by_text.get(content_hash)
        if twin is not None and line.superseded_by is None and not line.repeats_text:
            raise Conflict(f"note {twin} says exactly the same here, under that id")
        return NoteChange("created", text=True, versions=line.history)
    if known.created_at != line.created_at:
        raise Conflict(f"another note has the id {line.note_id} here, made at {known.created_at}")
    versions = _missing(line.note_id, line.history, known, stored)
    if line.current.version > known.current.version:
        covered = {version.version for version in line.history}
        keep = None
        if known.current.version not in covered:
            keep = line.history[0].written_at if line.history else line.updated_at
        return NoteChange("updated", text=True, keep=keep, versions=versions)
    _agree(line.note_id, line.current, known, stored)
    supersede = False
    if line.superseded_by is not None and line.current.version == known.current.version:
        if known.superseded_by not in (None, line.superseded_by):
            raise Conflict(
                f"superseded_by: note {known.superseded_by} has taken its place here, and "
                f"{line.superseded_by} in the file"
            )
        supersede = known.superseded_by is None
    changed = bool(versions) or supersede
    return NoteChange("updated" if changed else "unchanged", versions=versions, supersede=supersede)


def about_history(line: HistoryLine, stored: StoredNotes) -> NoteChange:
    """Raises `Conflict`."""
    known = stored.notes.get(line.note_id)
    if known is None:
        raise Conflict(f"note {line.note_id}, whose history this is, is not here")
    versions = _missing(line.note_id, line.history, known, stored)
    return NoteChange("updated" if versions else "unchanged", versions=versions)


def about_session(line: SessionLine, known: SessionLine | None) -> SessionChange:
    """Raises `Conflict`."""
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
    """Raises `Conflict`."""
    if known is None:
        return "created"
    if known != line:
        raise Conflict(
            f"event {line.sequence} of session {line.session_id} is another one here, of "
            f"{known.created_at}"
        )
    return "unchanged"


def _missing(
    note_id: str, history: Sequence[Version], known: NoteLine, stored: StoredNotes
) -> list[Version]:
    """Those versions that are not stored exactly so, all others being as they are here."""
    missing = []
    for version in history:
        _agree(note_id, version, known, stored)
        if stored.versions.get((note_id, version.version)) != version:
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
    return Said.model_construct(**{name: getattr(said, name) for name in Said.model_fields})
