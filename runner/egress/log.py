"""The requests that egress let out and refused, as the audit log tells them to people, and what
each host has taken on this day, as far as it is in the record."""

import copy
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, Self

from wire import zones
from wire.v1 import egress_pb2

from runner.audit.calls import place_of
from runner.audit.log import LogLine, LogLocation
from runner.audit.reading import Pairs
from runner.config.models import Config


@dataclass(frozen=True)
class Request:
    """One request, tunnel or refusal. `number` is its line in the log, and what a cursor means.

    It began `at` this time, in RFC 3339, UTC. The `path` is without the query, and empty where it
    cannot be read, as `status` is 0. `decision` is "allowed" or "refused", by this `rule`, as the
    operator writes it. The `outcome` of what was allowed is "running", "done", "cut", "limit",
    "credential", "refused" or "failed"; of a refusal, "refused"; the `reason` says why. `sent` and
    `received` are bytes, to the outside and from there."""

    number: int
    at: str
    role: str
    session_id: str
    turn_id: str
    upstream: str
    method: str
    scheme: str
    host: str
    port: int
    path: str
    address: str
    decision: str
    rule: str
    outcome: str
    reason: str
    status: int
    sent: int
    received: int
    duration_ms: int

    @classmethod
    def of(cls, begin: LogLine, end: LogLine | None = None) -> Self:
        """The request that a line began, and another one ended."""
        said: dict[str, Any] = dict(begin.entry)
        ended: dict[str, Any] = dict(end.entry) if end is not None else {}
        refused = said.get("decision") != "allowed"
        texts = ("upstream", "method", "scheme", "host", "path", "address", "rule", "role")
        return cls(
            number=begin.number,
            at=said.get("time", ""),
            session_id=said.get("session", ""),
            turn_id=said.get("turn", ""),
            port=said.get("port", 0),
            decision="refused" if refused else "allowed",
            outcome="refused" if refused else ended.get("outcome", "running"),
            reason=said.get("reason", "") or ended.get("reason", ""),
            **{name: said.get(name, "") for name in texts},
            **{name: ended.get(name, 0) for name in ("status", "sent", "received", "duration_ms")},
        )

    @property
    def place(self) -> str:
        """Where it wanted to go, as an address."""
        return place_of(vars(self))


@dataclass(frozen=True)
class Wanted:
    """Which requests are meant; what is empty limits nothing.

    Attributes:
        host: The host itself, or a host below it.
        refused: Only what was refused, at once or later.
    """

    role: str = ""
    host: str = ""
    session_id: str = ""
    turn_id: str = ""
    refused: bool = False

    def fits(self, request: Request) -> bool:
        names = ("role", "session_id", "turn_id")
        return (
            all(getattr(self, name) in ("", getattr(request, name)) for name in names)
            and (not self.host or f".{request.host}".endswith(f".{self.host}"))
            and (not self.refused or request.outcome in ("refused", "limit", "credential"))
        )


class Requests:
    """Reads the requests in a user's log while the host writes it."""

    def __init__(self, place: LogLocation) -> None:
        self._pairs = Pairs(place, "egress", "egress-end")

    @classmethod
    def locate(cls, config: Config, user_id: str) -> Self:
        """Touches nothing on disk. Raises `WorkspaceError` for a bad user id."""
        return cls(LogLocation.locate(config, user_id))

    def list(self, wanted: Wanted | None = None, *, limit: int = 50) -> list[Request]:
        """The newest requests that fit, newest first. Blocks for a moment."""
        wanted = wanted or Wanted()
        return list(itertools.islice(filter(wanted.fits, self.newest()), limit))

    def newest(self) -> Iterator[Request]:
        """All requests, newest first, read as far as they are asked for."""
        return itertools.starmap(Request.of, self._pairs.backwards())

    async def follow(self, wanted: Wanted | None = None) -> AsyncGenerator[Request]:
        """Every request that ends or is refused from now on."""
        wanted = wanted or Wanted()
        async with aclosing(self._pairs.follow()) as pairs:
            async for begin, end in pairs:
                request = Request.of(begin, end)
                if request.outcome != "running" and wanted.fits(request):
                    yield request


HOSTS_MAX: Final = 10_000


class Spent:
    """The requests and bytes of today, by role and host; a day is one of the host's time zone.

    It begins with what the record says of today. Hosts beyond `HOSTS_MAX` are left out. `today`
    returns the day.
    """

    def __init__(self, place: LogLocation, today: Callable[[], date] = zones.today) -> None:
        self._today = today
        self._day = today()
        self._hosts: dict[tuple[str, str], egress_pb2.EgressSpent] = {}
        for request in Requests(place).newest():
            if datetime.fromisoformat(request.at).astimezone().date() < self._day:
                break
            if request.decision == "allowed":
                self.add(request.role, request.host, 1, request.sent + request.received)

    def add(self, role: str, host: str, requests: int, moved: int) -> None:
        self._notice_day()
        if (role, host) not in self._hosts and len(self._hosts) >= HOSTS_MAX:
            return
        spent = self._hosts.setdefault(
            (role, host),
            egress_pb2.EgressSpent(role=role, host=host, day=self._day.isoformat()),
        )
        spent.requests += requests
        spent.bytes += moved

    def today(self) -> list[egress_pb2.EgressSpent]:
        """A copy of what was counted today."""
        self._notice_day()
        return copy.deepcopy([*self._hosts.values()])

    def _notice_day(self) -> None:
        if (today := self._today()) != self._day:
            self._day = today
            self._hosts.clear()
