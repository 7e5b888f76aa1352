"""Lines into a store: each exactly as it was, once, and never over something else.

Lines are stored in groups, each in one transaction. What a group relies on is read first
and required again by its transaction; where somebody changed it in between, the group is
looked at anew.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from wire.errors import Code

from guest.errors import GuestError
from guest.memory import namespaces
from guest.memory.database.base import AnswerLost, ConstraintViolated, Database
from guest.memory.portable.deciding import Outcome
from guest.memory.portable.lines import (
    FORMAT_VERSION,
    BadLine,
    End,
    Entity,
    Header,
    HistoryLine,
    NoteLine,
    of_another,
    read,
    upgraded,
)
from guest.memory.portable.planning import Foreseen, Numbered, groups, plan
from guest.memory.portable.stored import Stored
from guest.memory.portable.writing import Batch
from guest.memory.types import MemoryConfig
from guest.memory.vector_store import VectorStore

_ATTEMPTS: Final = 5
_REHEARSALS: Final = 8


@dataclass
class Report:
    """What became of some lines. A problem names its line, counted from 1."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        match outcome:
            case "created":
                self.created += 1
            case "updated":
                self.updated += 1
            case "unchanged":
                self.unchanged += 1


class Importer:
    """Imports for one user; several imports may run at once."""

    def __init__(
        self,
        database: Database,
        vectors: VectorStore,
        config: MemoryConfig,
        user_id: str,
        wake: Callable[[Sequence[int]], None],
    ) -> None:
        self._database = database
        self._vectors = vectors
        self._config = config
        self._user_id = user_id
        self._stored = Stored(database, user_id)
        self._wake = wake
        self._rehearsals: dict[bytes, Foreseen] = {}

    async def feed(self, lines: bytes, *, dry_run: bool = False) -> Report:
        """Store some lines of a file, the first of which is the file's header.

        Durable when it returns. What is there already stays as it is; a line that is not
        accepted, or contradicts what is stored, is a problem and stops no other. With
        `dry_run` the report is the same and nothing is done. Raises `GuestError` for a bad
        header, and `StorageError`; what was stored until then stays, and the same lines
        can be fed again.
        """
        first, *rest = lines.removesuffix(b"\n").split(b"\n")
        header = _header(first)
        report = Report()
        would_be = self._rehearsal(first) if dry_run else None
        numbered = list(_parsed(rest, header.version, report))
        if header.user_id != self._user_id:
            numbered = [(number, of_another(line)) for number, line in numbered]
        for group in groups(numbered):
            await self._store(group, report, would_be)
        report.problems.sort()
        return report

    def _rehearsal(self, header: bytes) -> Foreseen:
        """What importing the file with this header would have changed by now."""
        would_be = self._rehearsals.pop(header, Foreseen())
        self._rehearsals[header] = would_be
        if len(self._rehearsals) > _REHEARSALS:
            del self._rehearsals[next(iter(self._rehearsals))]
        return would_be

    async def _store(
        self, group: Sequence[Numbered], report: Report, would_be: Foreseen | None
    ) -> None:
        for _ in range(_ATTEMPTS):
            batch = Batch(self._config, self._user_id)
            planned = await plan(group, self._stored, batch, would_be or Foreseen())
            if would_be is not None:
                would_be.add(planned.changes)
            elif not await self._apply(batch, group[0][1]):
                continue
            for outcome in planned.outcomes:
                report.add(outcome)
            report.problems += planned.problems
            return
        if len(group) > 1:
            for single in group:
                await self._store([single], report, would_be)
        else:
            report.problems.append((group[0][0], "could not be stored beside what is here"))

    async def _apply(self, batch: Batch, first: Entity) -> bool:
        """Do it all, about what `first` is about; False where something it relies on is no
        longer so."""
        if not batch.statements:
            return True
        of_notes = isinstance(first, NoteLine | HistoryLine)
        of_user = namespaces.notes_of if of_notes else namespaces.conversations_of
        namespace = of_user(self._user_id)
        try:
            async with self._vectors.changing(namespace):
                results = await self._database.batch(batch.statements)
                added, removed = batch.passages(results)
                self._vectors.removed(namespace, removed)
                self._vectors.added(namespace, len(added))
        except ConstraintViolated:
            return False
        except AnswerLost:
            return True
        self._wake(added)
        return True


def _header(line: bytes) -> Header:
    """Raises `GuestError` where `line` is no header of a format that this program knows."""
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


def _parsed(lines: Sequence[bytes], version: int, report: Report) -> Iterator[Numbered]:
    for number, text in enumerate(lines, start=2):
        try:
            line = read(text)
        except BadLine as error:
            report.problems.append((number, str(error)))
            continue
        if isinstance(line, Header):
            report.problems.append((number, "kind: a header stands in the first line only"))
        elif not isinstance(line, End):
            yield number, line if version == FORMAT_VERSION else upgraded(line)
