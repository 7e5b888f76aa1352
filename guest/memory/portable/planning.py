"""A group of lines as one transaction, and what will have become of each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from guest.memory import notes
from guest.memory.portable import deciding
from guest.memory.portable.deciding import Conflict, NoteChange, Outcome
from guest.memory.portable.lines import (
    Entity,
    EventLine,
    HistoryLine,
    NoteLine,
    Said,
    SessionLine,
    Version,
)
from guest.memory.portable.stored import Stored, StoredNotes
from guest.memory.portable.writing import Batch
from guest.memory.quota import Quota, Used
from guest.memory.types import MemoryFull

GROUP_LINES: Final = 64

Numbered = tuple[int, Entity]
"""A line with its number."""


@dataclass
class Foreseen:
    """What some lines change, or would change: the ids of what they create, which note
    replaces which, as far as that bears on them, which are of one session and replace notes
    of which (see `refuse_narrower`), and how much more there is."""

    made: set[str] = field(default_factory=set)
    replaced: dict[str, str] = field(default_factory=dict)
    scopes: dict[str, str] = field(default_factory=dict)
    replacing: dict[str, str] = field(default_factory=dict)
    used: Used = field(default_factory=Used)

    def add(self, other: "Foreseen") -> None:
        self.made |= other.made
        self.replaced |= other.replaced
        self.scopes |= other.scopes
        self.replacing |= other.replacing
        self.used += other.used

    def replace(self, line: NoteLine) -> None:
        """Let what replaces the line's note, if anything, take its place."""
        by, scope = line.superseded_by or "", line.scope_session or ""
        self.replaced[line.note_id] = by
        if scope:
            self.scopes[line.note_id] = scope
        if by:
            self.replacing[by] = scope if self.replacing.get(by, scope) == scope else ""


@dataclass
class Plan:
    """What is to be done for some lines, and what will have changed then."""

    batch: Batch
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    changes: Foreseen = field(default_factory=Foreseen)

    @contextmanager
    def about(self, number: int) -> Iterator[None]:
        """A conflict is a problem of the line with this number."""
        try:
            yield
        except (Conflict, MemoryFull) as conflict:
            self.problems.append((number, str(conflict)))

    def settle(self, outcome: Outcome, made: str = "") -> None:
        self.outcomes.append(outcome)
        if made and outcome == "created":
            self.changes.made.add(made)


def groups(lines: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    """Lines in their order, in groups in which no two are about the same thing and all are
    about notes or all about conversations."""
    group: list[Numbered] = []
    subjects: set[object] = set()
    for number, line in lines:
        about = _subjects(line)
        mixed = bool(group) and _is_note(group[0][1]) != _is_note(line)
        if mixed or len(group) == GROUP_LINES or not subjects.isdisjoint(about):
            yield group
            group, subjects = [], set()
        group.append((number, line))
        subjects |= about
    if group:
        yield group


async def plan(group: Sequence[Numbered], stored: Stored, batch: Batch, before: Foreseen) -> Plan:
    """`before` is not stored, and is to be taken as if it were."""
    planned = Plan(batch)
    if _is_note(group[0][1]):
        await _notes(planned, group, stored, before)
    else:
        await _conversations(planned, group, stored, before.made)
    return planned


async def _notes(
    planned: Plan, group: Sequence[Numbered], stored: Stored, before: Foreseen
) -> None:
    here = await stored.notes(line for _, line in group if isinstance(line, NoteLine | HistoryLine))
    changes = planned.changes
    replaced = changes.replaced = {**here.replaced, **before.replaced}
    changes.scopes = {**here.scopes, **before.scopes}
    changes.replacing = {**here.replacing, **before.replacing}
    quota = Quota.of(planned.batch.config)
    used = here.used + before.used
    for number, line in group:
        with planned.about(number):
            if isinstance(line, NoteLine):
                known = here.notes.get(line.note_id)
                content_hash = notes.hash_of(line.current.content)
                change = deciding.about_note(line, content_hash, here)
                more = _growth(line, change, known, here)
                quota.refuse(used + changes.used, more)
                if change.text or change.supersede:
                    deciding.refuse_circle(line, replaced)
                    deciding.refuse_narrower(line, changes.scopes, changes.replacing)
                    changes.replace(line)
                changes.used += more
                planned.batch.note(line, change, known)
                planned.settle(change.outcome, _continued(line))
                if change.told:
                    planned.problems.append((number, change.told))
            elif isinstance(line, HistoryLine):
                foreseen = line.note_id in before.made
                versions = line.history if foreseen else deciding.about_history(line, here)
                more = Used(text_bytes=_new_bytes(line.note_id, versions, here))
                quota.refuse(used + changes.used, more)
                changes.used += more
                if versions and not foreseen:
                    planned.batch.history(versions, here.notes[line.note_id])
    planned.batch.keep(quota, changes.used)


def _growth(line: NoteLine, change: NoteChange, known: NoteLine | None, here: StoredNotes) -> Used:
    """How much more there is after `change`. What a note said stays: as a version that the
    line has, or that the change keeps."""
    size = _new_bytes(line.note_id, change.versions, here)
    if not change.text:
        return Used(0, size)
    size += _size(line.current)
    if known is None:
        return Used(1, size)
    return Used(0, size if change.keep else size - _size(known.current))


def _new_bytes(note_id: str, versions: Sequence[Version], here: StoredNotes) -> int:
    """The text of those of the versions that are not stored."""
    return sum(_size(each) for each in versions if (note_id, each.version) not in here.versions)


def _size(said: Said) -> int:
    return len(said.content.encode())


async def _conversations(
    planned: Plan, group: Sequence[Numbered], stored: Stored, would_be: set[str]
) -> None:
    lines = [line for _, line in group if isinstance(line, SessionLine | EventLine)]
    ids = sorted({line.session_id for line in lines})
    sessions = await stored.sessions(ids)
    taken = await stored.taken(ids) if len(sessions) < len(ids) else set()
    events = await stored.events(
        [
            (line.session_id, line.sequence)
            for line in lines
            if isinstance(line, EventLine) and line.session_id in sessions
        ]
    )
    for number, line in group:
        with planned.about(number):
            if isinstance(line, SessionLine):
                if line.session_id in taken:
                    raise Conflict(f"session_id: {line.session_id} is taken by another user here")
                change = deciding.about_session(line, sessions.get(line.session_id))
                if change.outcome != "unchanged":
                    planned.batch.session(line, change)
                planned.settle(change.outcome, line.session_id)
            elif isinstance(line, EventLine):
                if line.session_id not in {*sessions, *planned.changes.made, *would_be}:
                    raise Conflict(f"session {line.session_id}, whose event this is, is not here")
                outcome = deciding.about_event(line, events.get((line.session_id, line.sequence)))
                if outcome == "created":
                    planned.batch.event(line)
                planned.settle(outcome)


def _continued(line: NoteLine) -> str:
    """The id of a note of which history lines follow."""
    return line.note_id if len(line.history) < line.current.version - 1 else ""


def _is_note(line: Entity) -> bool:
    return isinstance(line, NoteLine | HistoryLine)


def _subjects(line: Entity) -> set[object]:
    match line:
        case NoteLine():
            told = {("text", line.current.content)} if not line.repeats_text else set()
            return {("note", line.note_id), ("key", line.key or line.note_id), *told}
        case HistoryLine():
            return {("note", line.note_id)}
        case SessionLine():
            return {("session", line.session_id)}
        case EventLine():
            return {("event", line.session_id, line.sequence)}
