"""An audit log as it is read while the host writes it: its lines in pairs, what began and how it
ended, and verified from the first to the last byte.

Pairs leave damaged lines out: `verify` tells of them.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runner.audit.log import GENESIS, MISSING, Head, LogLine, LogLocation, opened

POLL_S: Final = 0.25
_BEGUN_MAX: Final = 10_000


@dataclass(frozen=True)
class Pairs:
    """The pairs of one kind in a user's log.

    Attributes:
        place: Where the log lies.
        begin: The event of a line that begins something.
        end: That of one that ends it; the line's "begin" is the number of the other one.
    """

    place: LogLocation
    begin: str
    end: str

    def backwards(self, cursor: int = 0) -> Iterator[tuple[LogLine, LogLine | None]]:
        """What began before the line `cursor` (0: all), newest first; None: it has not ended."""
        self.place.check()
        ends: dict[int, LogLine] = {}
        later: list[Path] = []
        for path in reversed(self.place.files()):
            if cursor and int(path.stem) >= cursor:
                later.insert(0, path)
                continue
            for link in self._links(reversed(_read(path).splitlines(keepends=True))):
                event, number = link.entry.get("event"), link.entry.get("begin")
                if event == self.end and isinstance(number, int):
                    ends[number] = link
                elif event == self.begin and (not cursor or link.number < cursor):
                    yield link, ends.pop(link.number, None) or self._end_in(later, link.number)

    async def follow(self) -> AsyncGenerator[tuple[LogLine, LogLine | None]]:
        """What begins and ends from now on: first alone, then with its end."""
        tail = _Tail(self.place)
        begun: dict[int, LogLine] = {}
        while True:
            for link in await asyncio.to_thread(tail.more):
                event, number = link.entry.get("event"), link.entry.get("begin")
                if event == self.begin:
                    begun[link.number] = link
                    if len(begun) > _BEGUN_MAX:
                        del begun[next(iter(begun))]
                    yield link, None
                elif event == self.end and isinstance(number, int):
                    began = begun.pop(number, None) or self._line(number)
                    if began is not None:
                        yield began, link
            await asyncio.sleep(POLL_S)

    def _links(self, lines: Iterable[bytes]) -> Iterator[LogLine]:
        marks = tuple(f'"event":"{event}"'.encode() for event in (self.begin, self.end))
        return _links(line for line in lines if any(mark in line for mark in marks))

    def _line(self, number: int) -> LogLine | None:
        before = [path for path in self.place.files() if int(path.stem) <= number]
        lines = _read(before[-1]).splitlines(keepends=True) if before else ()
        return next((link for link in _links(lines) if link.number == number), None)

    def _end_in(self, files: list[Path], number: int) -> LogLine | None:
        """The line in later files that ends what line `number` began."""
        mark = b'"begin":%d,' % number
        marked = (each for each in map(_read, files) if mark in each)
        lines = (line for each in marked for line in each.splitlines(keepends=True) if mark in line)
        return next((link for link in _links(lines) if link.entry.get("event") == self.end), None)


@dataclass
class _Tail:
    """The end of a log, from where it was first looked at."""

    place: LogLocation
    _path: Path | None = None
    _offset: int = 0
    _rest: bytes = field(default=b"")

    def __post_init__(self) -> None:
        self.place.check()
        if files := self.place.files():
            self._path, self._offset = files[-1], files[-1].stat().st_size

    def more(self) -> list[LogLine]:
        found: list[LogLine] = []
        for path in self.place.files():
            if self._path is not None and path < self._path:
                continue
            if path != self._path:
                self._path, self._offset, self._rest = path, 0, b""
            content = self._rest + _read(path, self._offset)
            self._offset += len(content) - len(self._rest)
            *lines, self._rest = content.split(b"\n")
            found += _links(line + b"\n" for line in lines)
        return found


def _links(lines: Iterable[bytes]) -> Iterator[LogLine]:
    for line in lines:
        try:
            yield opened(line)
        except ValueError:
            continue


def _read(path: Path, offset: int = 0) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:  # it was too old, and is gone
        return b""


_FINDINGS_MAX: Final = 100
AGAIN_S: Final = 0.2


@dataclass(frozen=True)
class Report:
    """What a verification found. `findings` are sentences; none: nothing was changed since it was
    written, as far as the log itself can tell."""

    user_id: str
    first: int
    last: int
    hash: str
    findings: tuple[str, ...]


def verify(place: LogLocation, *, known: tuple[int, str] | None = None) -> Report:
    """Check every byte of a log. A host may write to it meanwhile.

    Args:
        place: Where it lies.
        known: The number and the hash of a line, as `runner audit head` printed them before. Then a
            log that was written anew as a whole is found, too.

    Raises `WorkspaceError` if the directories are not ours, `OSError` if they cannot be read.
    """
    place.check()
    report = _verified(place, known)
    if report.findings:
        time.sleep(AGAIN_S)  # a line may have been in the middle of being written
        report = _verified(place, known)
    return report


def _verified(place: LogLocation, known: tuple[int, str] | None) -> Report:
    findings = [MISSING] if place.is_missing else []
    files, before = place.files(), Head()
    try:
        before = Head.read(place.head)
    except FileNotFoundError:
        findings += ["the log has no head"] if files or known else []
    except ValueError as error:
        findings.append(f"the head is damaged: {error}")
    wanted = [(before.last, before.hash, "the head says")]
    if known is not None:
        wanted.append((*known, "you know"))
        if not before.first <= known[0] <= before.last:
            findings.append(f"line {known[0]}, which you know, is not in the log any more")
    number, previous = before.first - 1, before.before
    for name, line in _lines(files, findings):
        try:
            link = opened(line)
        except ValueError as error:
            findings.append(f"{name}: the line after {number} is damaged: {error}")
            number, previous = number + 1, ""
            continue
        if link.number != number + 1:
            findings.append(f"{name}: line {link.number} follows line {number}")
        elif previous and link.previous != previous:
            findings.append(f"{name}: line {link.number} does not follow from the one before")
        number, previous = link.number, link.hash
        for at, digest, whose in wanted:
            if number == at and link.hash != digest:
                findings.append(f"{name}: line {number} is another one than {whose}")
        if link.entry.get("user") != place.user_id:
            findings.append(f"{name}: line {number} is of another user's log")
        if wrong := link.entry.get("wrong"):
            findings.append(f"at {link.entry.get('time')} the host found that {wrong}")
    if number < before.last:
        findings.append(f"the log ends with line {number}, and its head says {before.last}")
    if number > _last_of(place, before.last):
        findings.append(f"line {number} was added after the end that the head says")
    shown = findings[:_FINDINGS_MAX]
    return Report(place.user_id, before.first, number, previous or GENESIS, tuple(shown))


def _lines(files: list[Path], findings: list[str]) -> Iterator[tuple[str, bytes]]:
    """Every line with the name of its file, whether whole or not."""
    for path in files:
        with path.open("rb") as file:
            for index, line in enumerate(file):
                if index == 0 and not line.startswith(b'{"n":%d,' % int(path.stem)):
                    findings.append(f"{path.name} begins with another line than its name says")
                yield path.name, line


def _last_of(place: LogLocation, otherwise: int) -> int:
    try:
        return Head.read(place.head).last
    except (FileNotFoundError, ValueError):
        return otherwise
