"""The tool calls of a user, as the audit log tells them to people."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from wire.errors import Code

from runner.audit.chain import Link, opened
from runner.audit.log import Place
from runner.config.models import Config
from runner.errors import HostError

LIMIT_MAX: Final = 1000
POLL_S: Final = 0.25

Outcome = Literal["running", "ok", "refused", "failed", "cancelled", "interrupted"]
"""How a call ended. `refused`: a rule, a person or the tool's own check said no; the model could
correct it. `failed`: an operator must act. `interrupted`: the guest died, or it cannot be told."""


@dataclass(frozen=True)
class Call:
    """One tool call.

    `about` is the command, the path or the note's id that it was made with, without secrets; empty
    where that would tell the text of a note. `notes` are the ids of notes that it changed.
    `number` is its line in the log, and what a cursor of `Calls.list` means.
    """

    number: int
    user_id: str
    call_id: str
    tool: str
    safety: str
    session_id: str
    turn_id: str
    channel: str
    actor: str
    about: str
    began_at: str
    outcome: Outcome = "running"
    duration_ms: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, begin: Link, end: Link | None = None) -> Self:
        """The call that a line began, and another one ended."""
        said, ended = begin.entry, end.entry if end is not None else {}
        return cls(
            number=begin.number,
            user_id=said.get("user", ""),
            call_id=said.get("call", ""),
            tool=said.get("tool", ""),
            safety=said.get("safety", ""),
            session_id=said.get("session", ""),
            turn_id=said.get("turn", ""),
            channel=said.get("channel", ""),
            actor=said.get("actor", ""),
            about=said.get("about", ""),
            began_at=said.get("time", ""),
            outcome=ended.get("outcome", "running"),
            duration_ms=ended.get("duration_ms", 0),
            notes=tuple(ended.get("notes", ())),
        )


@dataclass(frozen=True)
class Filter:
    """Which calls are meant; what is empty limits nothing. `since` is a time in RFC 3339."""

    tool: str = ""
    outcome: str = ""
    session_id: str = ""
    turn_id: str = ""
    channel: str = ""
    since: str = ""

    def __post_init__(self) -> None:
        if self.outcome and self.outcome not in get_args(Outcome):
            raise HostError(
                Code.INVALID_ARGUMENT,
                f"bad outcome: {self.outcome[:40]!r}",
                details=f"accepted: {', '.join(get_args(Outcome))}",
            )
        if self.since:
            _moment(self.since)

    def fits(self, call: Call) -> bool:
        names = ("tool", "outcome", "session_id", "turn_id", "channel")
        wanted = all(getattr(self, name) in ("", getattr(call, name)) for name in names)
        return wanted and not self.before(call)

    def before(self, call: Call) -> bool:
        """Whether the call is too old."""
        return bool(self.since) and _moment(call.began_at) < _moment(self.since)


@dataclass(frozen=True)
class Page:
    """Some calls, newest first, and where to go on; 0: that was all."""

    calls: tuple[Call, ...]
    next_cursor: int = 0


class Calls:
    """Reads a user's log while the host writes it. Damaged lines are left out: `verify` tells."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @classmethod
    def locate(cls, config: Config, user_id: str) -> Self:
        """Touches nothing on disk. Raises `WorkspaceError` for a bad user id."""
        return cls(Place.locate(config, user_id))

    def list(self, wanted: Filter | None = None, *, limit: int = 50, cursor: int = 0) -> Page:
        """The newest calls that fit. Blocks for a moment.

        Args:
            wanted: Which calls.
            limit: How many at most, from 1 to `LIMIT_MAX`.
            cursor: Only calls before this one, as the page before said.
        """
        wanted = wanted or Filter()
        if not 1 <= limit <= LIMIT_MAX:
            raise HostError(
                Code.INVALID_ARGUMENT,
                f"bad limit: {limit}",
                details=f"accepted: 1 to {LIMIT_MAX}",
            )
        found: list[Call] = []
        for call in self._backwards(cursor):
            if wanted.before(call):
                break
            if not wanted.fits(call):
                continue
            if len(found) == limit:
                return Page(tuple(found), found[-1].number)
            found.append(call)
        return Page(tuple(found))

    async def follow(self, wanted: Filter | None = None) -> AsyncIterator[Call]:
        """Every call that begins or ends from now on: first as running, then as it ended."""
        wanted = wanted or Filter()
        tail = _Tail(self._place)
        begun: dict[int, Link] = {}
        while True:
            for link in await asyncio.to_thread(tail.more):
                match link.entry:
                    case {"event": "begin"}:
                        begun[link.number] = link
                        call = Call.of(link)
                    case {"event": "end", "begin": int(number)}:
                        begin = begun.pop(number, None) or self._line(number)
                        if begin is None:
                            continue
                        call = Call.of(begin, link)
                    case _:
                        continue
                if wanted.fits(call):
                    yield call
            await asyncio.sleep(POLL_S)

    def _backwards(self, cursor: int) -> Iterator[Call]:
        """Calls before `cursor` (0: all), newest first."""
        self._place.check()
        files = self._place.files()
        ends: dict[int, Link] = {}
        later: list[Path] = []
        for path in reversed(files):
            if cursor and int(path.stem) >= cursor:
                later.insert(0, path)
                continue
            for link in _links(reversed(_read(path).splitlines(keepends=True))):
                match link.entry:
                    case {"event": "end", "begin": int(number)}:
                        ends[number] = link
                    case {"event": "begin"} if not cursor or link.number < cursor:
                        end = ends.pop(link.number, None) or _end_in(later, link.number)
                        yield Call.of(link, end)

    def _line(self, number: int) -> Link | None:
        """The line with this number."""
        before = [path for path in self._place.files() if int(path.stem) <= number]
        if before:
            for link in _links(_read(before[-1]).splitlines(keepends=True)):
                if link.number == number:
                    return link
        return None


@dataclass
class _Tail:
    """The end of a log, from where it was first looked at."""

    place: Place
    _path: Path | None = None
    _offset: int = 0
    _rest: bytes = field(default=b"")

    def __post_init__(self) -> None:
        self.place.check()
        if files := self.place.files():
            self._path, self._offset = files[-1], files[-1].stat().st_size

    def more(self) -> list[Link]:
        """The lines since the last time."""
        found: list[Link] = []
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


def _links(lines: Any) -> Iterator[Link]:
    for line in lines:
        try:
            yield opened(line)
        except ValueError:
            continue


def _end_in(files: list[Path], number: int) -> Link | None:
    """The line in later files that ends the call which line `number` began."""
    mark = b'"begin":%d,' % number
    for path in files:
        content = _read(path)
        if mark in content:
            lines = (line for line in content.splitlines(keepends=True) if mark in line)
            for link in _links(lines):
                if link.entry.get("event") == "end":
                    return link
    return None


def _read(path: Path, offset: int = 0) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:  # it was too old, and is gone
        return b""


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"bad time: {text[:40]!r}",
            details="accepted: a date and time such as 2026-11-20T08:00:00Z",
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
