"""Imports lines into a store: each exactly as it was, once, and never overwriting anything else."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast, get_args

from wire.errors import Code

from guest.errors import GuestError
from guest.memory.conversations import store
from guest.memory.conversations.store import indexing
from guest.memory.indexing.chunking import passages_of
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import EVENT, MemoryFull, Origin, User
from guest.memory.notes import repository
from guest.memory.notes.columns import (
    DETAILS,
    ENDED,
    VERSIONED,
    VERSIONED_PLACES,
    Versioned,
    to_json,
)
from guest.memory.notes.quota import Quota, Used
from guest.memory.storage.base import AnswerLost, ConstraintViolated, Database, Result, Statement
from guest.memory.transfer import merge
from guest.memory.transfer.format import (
    BadLine,
    End,
    Entity,
    EventLine,
    Header,
    HistoryLine,
    NoteContent,
    NoteLine,
    SessionLine,
    Version,
    of_another,
    read,
)
from guest.memory.transfer.merge import (
    Conflict,
    NoteChange,
    Outcome,
    SessionChange,
    Stored,
    is_kept_once,
)

_REQUIRE_SAME: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM notes WHERE namespace = ? AND note_id = ?
                                   AND version = ? AND updated_at = ?
                                   AND superseded_by IS ?)
"""
_NOTE: Final = f"""
INSERT INTO notes (namespace, note_id, created_at, scope_session, {VERSIONED}, content_hash, key,
                   updated_at, ordered_at, access_count, accessed_at, {ENDED})
    VALUES (?, ?, ?, ?, {VERSIONED_PLACES}, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608
_REPLACE: Final = f"""
UPDATE notes
    SET ({VERSIONED}) = ({VERSIONED_PLACES}), content_hash = ?, key = COALESCE(?, key),
        updated_at = ?, ordered_at = MAX(ordered_at, ?), access_count = MAX(access_count, ?),
        accessed_at = MAX(accessed_at, ?), ({ENDED}) = (?, ?, ?)
    WHERE namespace = ? AND note_id = ?
"""  # noqa: S608
_COUNT_AGAIN: Final = """
UPDATE notes SET superseded_by = NULL, superseded_reason = '', superseded_at = ''
    WHERE namespace = ?1 AND superseded_by <> '' AND (
        note_id IN (SELECT value FROM json_each(?2)) AND EXISTS (
            WITH RECURSIVE chain (note_id) AS (
                SELECT notes.superseded_by
                UNION
                SELECT later.superseded_by FROM chain CROSS JOIN notes AS later USING (note_id)
                    WHERE later.namespace = ?1 AND later.superseded_by <> '')
            SELECT 1 FROM chain WHERE chain.note_id = notes.note_id)
        OR (note_id IN (SELECT value FROM json_each(?2))
            OR superseded_by IN (SELECT value FROM json_each(?2))) AND EXISTS (
            SELECT 1 FROM notes AS later
                WHERE later.namespace = ?1 AND later.note_id = notes.superseded_by
                    AND later.scope_session NOT IN ('', notes.scope_session)))
    RETURNING note_id
"""
"""Count notes again that would be lost: those that replace each other in a circle, and those whose
replacement fewer sessions see."""
_RELEASE: Final = """
UPDATE notes SET key = NULL WHERE namespace = ? AND note_id = ? AND key = ? AND updated_at = ?
"""
_VERSION: Final = f"""
INSERT INTO note_versions (namespace, note_id, written_at, replaced_at, {ENDED}, {VERSIONED})
    VALUES (?, ?, ?, ?, ?, ?, ?, {VERSIONED_PLACES})
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
_STATE: Final = """
INSERT INTO session_state (session_id, name, value, epoch, updated_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (session_id, name) DO UPDATE
        SET value = excluded.value, epoch = excluded.epoch, updated_at = excluded.updated_at
        WHERE (excluded.epoch, excluded.updated_at) > (epoch, session_state.updated_at)
"""
_EVENT: Final = f"""
INSERT INTO conversation_events (session_id, {EVENT}) VALUES (?{", ?" * len(EVENT.split(","))})
"""  # noqa: S608


@dataclass
class Report:
    """The outcome of some lines. A problem names its line, counted from 1."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    def count(self, outcome: Outcome, number: int = 1) -> None:
        setattr(self, outcome, getattr(self, outcome) + number)

    def add(self, other: "Report") -> None:
        for outcome in get_args(Outcome):
            self.count(outcome, getattr(other, outcome))
        self.problems += other.problems


@dataclass
class PendingChanges:
    """The ids that some lines create or would create, and the growth."""

    made: set[str] = field(default_factory=set)
    used: Used = field(default_factory=Used)

    def add(self, other: "PendingChanges") -> None:
        self.made |= other.made
        self.used += other.used


@dataclass
class Plan:
    """What to do for some lines: the statements of one transaction, which of them return ids of
    passages, and the notes whose rows they write; what is then to be reported and has changed."""

    user: User
    quota: Quota
    report: Report = field(default_factory=Report)
    changes: PendingChanges = field(default_factory=PendingChanges)
    statements: list[Statement] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def about(self, number: int) -> Iterator[None]:
        """Report a conflict in the block as a problem of the line with this number."""
        try:
            yield
        except (Conflict, MemoryFull) as conflict:
            self.report.problems.append((number, str(conflict)))

    def settle(self, outcome: Outcome, made: str = "") -> None:
        self.report.count(outcome)
        if made and outcome == "created":
            self.changes.made.add(made)

    def note(self, note_id: str, change: NoteChange, known: NoteLine | None) -> None:
        """Apply `change`; the batch fails if `known` is no longer what is stored."""
        namespace, note = self.user.notes, change.note
        if known is not None and (note is not None or change.versions):
            same = (known.current.version, known.updated_at, known.superseded_by)
            self._add(Statement(_REQUIRE_SAME, (namespace, note_id, *same)))
        if note is not None:
            if change.release is not None:
                owner = (change.release.note_id, note.key, change.release.updated_at)
                self._add(Statement(_RELEASE, (namespace, *owner)))
            self._write(namespace, note, known)
            self.notes.append(note_id)
        for version in change.versions:
            times = (version.written_at, version.replaced_at)
            row = (namespace, note_id, *times, *_end(version), *_said(version))
            self._add(Statement(_VERSION, row))

    def _write(self, namespace: str, note: NoteLine, known: NoteLine | None) -> None:
        if known is not None:
            self._add(Statement(_REPLACE, (*_row(note), namespace, note.note_id)))
            if note.current.content == known.current.content:
                return
            self.removing.append(len(self.statements))
            self._add(repository.delete_passages(namespace, note.note_id))
        else:
            if is_kept_once(note):
                same_text = ([repository.hash_of(note.current.content)], note.scope_session or "")
                self._add(repository.require_new(namespace, *same_text))
            first = (namespace, note.note_id, note.created_at, note.scope_session or "")
            self._add(Statement(_NOTE, (*first, *_row(note))))
        passages = passages_of(note.current.content)
        self.adding.append(len(self.statements))
        self._add(repository.insert_passages(namespace, note.note_id, passages))

    def close(self) -> None:
        """Fail if the notes exceed the quota, and let those that would be lost count again; the
        last statements."""
        more = self.changes.used
        if more.notes > 0 or more.text_bytes > 0:
            self._add(self.quota.keep(self.user.notes, more))
        if self.notes:
            self._add(Statement(_COUNT_AGAIN, (self.user.notes, to_json(self.notes))))

    def session(self, line: SessionLine, change: SessionChange) -> None:
        """Apply `change`; the batch fails if the session belongs to another user."""
        if change.fields:
            values = (line.title, line.channel, line.created_at, line.updated_at, line.turns)
            put_away, parent = line.archived_at or "", line.parent_id or ""
            session = (line.session_id, self.user.id, *values, put_away, parent)
            self._add(Statement(_SESSION, session))
        self._add(store.require_session(line.session_id, self.user))
        for each in change.state:
            state = (line.session_id, each.name, each.value, each.epoch, each.updated_at)
            self._add(Statement(_STATE, state))

    def event(self, line: EventLine) -> None:
        """Add an event under its number; the batch fails if the number is taken or the session
        is not the user's."""
        self._add(store.require_session(line.session_id, self.user))
        self._add(Statement(_EVENT, tuple(line.model_dump(exclude={"kind"}).values())))
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

    def _add(self, statement: Statement) -> None:
        self.statements.append(statement)


def _row(note: NoteLine) -> tuple[Any, ...]:
    """The values of all columns of a note that an import may change."""
    return (
        *(*_said(note.current), repository.hash_of(note.current.content), note.key),
        *(note.updated_at, _ordered_at(note), note.access_count, note.accessed_at or ""),
        *_end(note),
    )


def _ordered_at(line: NoteLine) -> str:
    return max(line.updated_at, *(version.written_at for version in line.history), "")


def _end(line: NoteLine | Version) -> tuple[str | None, ...]:
    return line.superseded_by, line.superseded_reason, line.superseded_at or ""


def _said(said: NoteContent) -> tuple[Any, ...]:
    """The values of the columns `VERSIONED`."""
    fields = {name: getattr(said, name) for name in NoteContent.model_fields}
    details = {name: fields.pop(name) for name in DETAILS}
    origin = Origin(**dict(fields.pop("origin")))
    return Versioned(**fields, details=details, origin=origin).row


def _ids(results: Sequence[Result], places: Sequence[int]) -> list[int]:
    return [cast(int, row[0]) for place in places for row in results[place].rows]


GROUP_LINES: Final = 64

Numbered = tuple[int, Entity]
"""A line and its number."""


def groups(lines: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    """Split lines, in order, into groups: no two of a group concern the same entity, and all are
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


async def plan_notes(
    plan: Plan, group: Sequence[Numbered], stored: Stored, before: PendingChanges, *, merging: bool
) -> None:
    """Plan lines about notes as if the changes in `before`, which are not stored, had been made."""
    lines = [(n, line) for n, line in group if isinstance(line, NoteLine | HistoryLine)]
    here = await stored.notes([line for _, line in lines])
    changes = plan.changes
    used = here.used + before.used
    for number, line in lines:
        with plan.about(number):
            known = here.notes.get(line.note_id)
            if isinstance(line, NoteLine):
                change = merge.about_note(line, here)
            elif line.note_id in before.made:
                change = NoteChange("updated", None, line.history)
            else:
                change = merge.about_history(line, here)
            if change.merged and not merging:
                raise Conflict(f"note {line.note_id} was changed here and there")
            more = _growth(change, known)
            plan.quota.refuse(used + changes.used, more)
            changes.used += more
            plan.note(line.note_id, change, known)
            if isinstance(line, NoteLine):
                plan.settle(change.outcome, _continued(line))
            if change.told:
                plan.report.problems.append((number, change.told))
    plan.close()


def _growth(change: NoteChange, known: NoteLine | None) -> Used:
    size = sum(map(_size, change.versions))
    if change.note is None:
        return Used(0, size)
    size += _size(change.note.current)
    return Used(1, size) if known is None else Used(0, size - _size(known.current))


def _size(said: NoteContent) -> int:
    return len(said.content.encode())


async def plan_conversations(
    plan: Plan, group: Sequence[Numbered], stored: Stored, before: PendingChanges
) -> None:
    """The same for lines about conversations."""
    here = await stored.conversations(
        [line for _, line in group if isinstance(line, SessionLine | EventLine)]
    )
    for number, line in group:
        with plan.about(number):
            if isinstance(line, SessionLine):
                change = merge.about_session(line, here)
                if change.outcome != "unchanged":
                    plan.session(line, change)
                plan.settle(change.outcome, line.session_id)
            elif isinstance(line, EventLine):
                made = plan.changes.made | before.made
                outcome = merge.about_event(line, here, made)
                if outcome == "created":
                    plan.event(line)
                plan.settle(outcome)


def _continued(line: NoteLine) -> str:
    """The id of a note that history lines follow."""
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


_COUNTS: Final = (
    "superseded_by: note {} counts again; fewer sessions see its replacement, or notes replace "
    "each other in a circle"
)
_ATTEMPTS: Final = 5
_REHEARSALS: Final = 8


@dataclass(repr=False, eq=False)
class Importer:
    """Imports for one user; several imports may run at once. Without `merging`, a note that was
    changed on both sides is a problem."""

    database: Database
    vectors: VectorStore
    user: User
    quota: Quota
    wake: Callable[[Sequence[int]], None]
    merging: bool = True

    def __post_init__(self) -> None:
        self._stored = Stored(self.database, self.user)
        self._rehearsals: dict[bytes, PendingChanges] = {}

    async def feed(self, lines: bytes, *, dry_run: bool = False) -> Report:
        """Store some lines of a file; the first one is the file's header.

        Durable when it returns. Existing entries are not changed. A line that is invalid, or
        conflicts with the store, is reported as a problem and does not stop the others. With
        `dry_run` the report is the same, but nothing is stored.

        Raises:
            GuestError: The header is invalid.
            StorageError: The store failed. Lines stored before stay; all can be fed again.
        """
        first, *rest = lines.removesuffix(b"\n").split(b"\n")
        header = _header(first)
        report = Report()
        would_be = self._rehearsal(first) if dry_run else None
        numbered = list(_parsed(rest, report))
        if header.user_id != self.user.id:
            numbered = [(number, of_another(line)) for number, line in numbered]
        for group in groups(numbered):
            await self._store(group, report, would_be)
        report.problems.sort()
        return report

    def _rehearsal(self, header: bytes) -> PendingChanges:
        """What importing the file with this header would have changed so far."""
        would_be = self._rehearsals.pop(header, PendingChanges())
        self._rehearsals[header] = would_be
        if len(self._rehearsals) > _REHEARSALS:
            del self._rehearsals[next(iter(self._rehearsals))]
        return would_be

    async def _store(
        self, group: Sequence[Numbered], report: Report, would_be: PendingChanges | None
    ) -> None:
        of_notes = _is_note(group[0][1])
        for _ in range(_ATTEMPTS):
            plan, before = Plan(self.user, self.quota), would_be or PendingChanges()
            if of_notes:
                await plan_notes(plan, group, self._stored, before, merging=self.merging)
            else:
                await plan_conversations(plan, group, self._stored, before)
            if would_be is not None:
                would_be.add(plan.changes)
            elif (again := await self._apply(plan, of_notes=of_notes)) is None:
                continue
            else:
                numbers = {line.note_id: n for n, line in group if isinstance(line, NoteLine)}
                for note_id in again:
                    number = numbers.get(note_id, group[0][0])
                    report.problems.append((number, _COUNTS.format(note_id)))
            report.add(plan.report)
            return
        if len(group) > 1:
            for single in group:
                await self._store([single], report, would_be)
        else:
            report.problems.append((group[0][0], "could not be stored beside what is here"))

    async def _apply(self, plan: Plan, *, of_notes: bool) -> list[str] | None:
        """Store a plan. Returns the notes that count again; None if the store has changed since
        the plan was made."""
        if not plan.statements:
            return []
        namespace = self.user.notes if of_notes else self.user.conversations
        try:
            async with self.vectors.changing(namespace):
                results = await self.database.batch(plan.statements)
                added = _ids(results, plan.adding)
                self.vectors.removed(namespace, _ids(results, plan.removing))
                self.vectors.added(namespace, len(added))
        except ConstraintViolated:
            return None
        except AnswerLost:
            return []
        self.wake(added)
        return [cast(str, row[0]) for row in results[-1].rows] if plan.notes else []


def _header(line: bytes) -> Header:
    """Raises `GuestError` if `line` is not a header of a known format."""
    try:
        header = read(line)
        if isinstance(header, Header):
            return header
        problem = "kind: must be header"
    except BadLine as error:
        problem = str(error)
    raise GuestError(
        Code.INVALID_ARGUMENT,
        "this is not an export of memory that can be read",
        details=f"line 1: {problem}",
        resolution="a file of `runner memory export` begins with a header line; one of a newer "
        "version needs that version",
    )


def _parsed(lines: Sequence[bytes], report: Report) -> Iterator[Numbered]:
    for number, text in enumerate(lines, start=2):
        try:
            line = read(text)
        except BadLine as error:
            report.problems.append((number, str(error)))
            continue
        if isinstance(line, Header):
            report.problems.append((number, "kind: only the first line may be a header"))
        elif not isinstance(line, End):
            yield number, line
