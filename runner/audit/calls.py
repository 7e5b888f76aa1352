"""The tool calls of a user, read from the audit log for people."""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, Self, get_args

from wire.errors import Code

from runner.audit.log import LogLine, LogLocation
from runner.audit.reading import Pairs
from runner.config.models import Config
from runner.errors import HostError

LIMIT_MAX: Final = 1000
NETWORK: Final = "network"
"""What requests that egress let out or refused are called among the tools. They are listed only
where they are asked for by this name; `runner egress log` tells all about them."""
_TOOLS: Final = partial(Pairs, begin="begin", end="end")
_NETWORK: Final = partial(Pairs, begin="egress", end="egress-end")

Outcome = Literal["running", "ok", "refused", "failed", "cancelled", "interrupted"]
"""How a call ended. `refused`: a rule, a person or the tool's own check said no; the model could
correct it. `failed`: an operator must act. `interrupted`: the guest died, or it cannot be told."""
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "done": "ok",
    "refused": "refused",
    "limit": "refused",
    "credential": "refused",
    "failed": "failed",
    "cut": "interrupted",
}


def place_of(request: Mapping[str, Any]) -> str:
    """Where a request wanted to go, as an address without a query."""
    scheme, host, port = (request.get(name, "") for name in ("scheme", "host", "port"))
    usual = {"http": 80, "https": 443}.get(scheme) == port
    origin = host if usual or not port else f"{host}:{port}"
    return origin if scheme == "tunnel" else f"{scheme}://{origin}{request.get('path', '')}"


@dataclass(frozen=True)
class Call:
    """One tool call.

    `about` is the command, the path or the note's id that it was made with, without secrets; empty
    where that would tell the text of a note. `notes` are the ids of notes that it changed. `asked`:
    a person was asked before it ran; `granted`: what one had allowed before, which allowed it. The
    run of a schedule, with the tool "schedule", has a `receipt` of what it took.
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
    asked: bool = False
    granted: str = ""
    receipt: str = ""

    @classmethod
    def of(cls, begin: LogLine, end: LogLine | None = None) -> Self:
        """The call that a line began, and another one ended."""
        said, ended = begin.entry, end.entry if end is not None else {}
        outcome = ended.get("outcome", "running")
        if request := said.get("event") == "egress":
            refused = said.get("decision") == "refused"
            outcome = "refused" if refused else _OUTCOMES.get(outcome, "running")
        return cls(
            number=begin.number,
            user_id=said.get("user", ""),
            call_id=said.get("call", ""),
            tool=NETWORK if request else said.get("tool", ""),
            safety=said.get("safety", ""),
            session_id=said.get("session", ""),
            turn_id=said.get("turn", ""),
            channel=said.get("channel", ""),
            actor=said.get("role" if request else "actor", ""),
            about=f"{said.get('method', '')} {place_of(said)}"
            if request
            else said.get("about", ""),
            began_at=said.get("time", ""),
            outcome=outcome,
            duration_ms=ended.get("duration_ms", 0),
            notes=tuple(ended.get("notes", ())),
            asked=ended.get("asked") is True,
            granted=ended.get("granted", ""),
            receipt=ended.get("receipt", ""),
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
        return bool(self.since) and _moment(call.began_at) < _moment(self.since)


@dataclass(frozen=True)
class Page:
    """Some calls, newest first, and where to go on; 0: that was all."""

    calls: tuple[Call, ...]
    next_cursor: int = 0


class Calls:
    """Reads a user's log while the host writes it. Damaged lines are left out: `verify` tells."""

    def __init__(self, place: LogLocation) -> None:
        self._place = place

    @classmethod
    def locate(cls, config: Config, user_id: str) -> Self:
        """Touches nothing on disk. Raises `WorkspaceError` for a bad user id."""
        return cls(LogLocation.locate(config, user_id))

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
        for call in self.newest(wanted, cursor):
            if len(found) == limit:
                return Page(tuple(found), found[-1].number)
            found.append(call)
        return Page(tuple(found))

    def newest(self, wanted: Filter, cursor: int = 0) -> Iterator[Call]:
        """Those that fit, newest first; see `list`. Blocks."""
        for call in itertools.starmap(Call.of, self._pairs(wanted).backwards(cursor)):
            if wanted.before(call):
                return
            if wanted.fits(call):
                yield call

    async def follow(self, wanted: Filter | None = None) -> AsyncIterator[Call]:
        """Every call that begins or ends from now on: first as running, then as it ended."""
        wanted = wanted or Filter()
        async with aclosing(self._pairs(wanted).follow()) as pairs:
            async for begin, end in pairs:
                if wanted.fits(call := Call.of(begin, end)):
                    yield call

    def _pairs(self, wanted: Filter) -> Pairs:
        return _NETWORK(self._place) if wanted.tool == NETWORK else _TOOLS(self._place)


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
