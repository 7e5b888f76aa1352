"""What arrives at the servers of an internet."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["packet", "question", "handshake", "request", "bytes"]


@dataclass(frozen=True)
class Arrival:
    """One thing that arrived: the first packet of a connection or a datagram, a question for a
    name, a TLS handshake for a name, a request, or bytes that are none.

    `to` is the name that was asked for, or the address and port; `what` is the rest in words, such
    as "GET /path".
    """

    kind: Kind
    to: str
    what: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def holds(self, text: str) -> bool:
        """Whether `text` stands anywhere in it."""
        known = (self.to, self.what, *self.headers, *self.headers.values())
        return any(text in each for each in known) or text.encode() in self.body


class Arrivals:
    """All that arrived, in order. Servers add to it from a thread of their own; `catch_up` returns
    when it has taken in what lies on the cable."""

    def __init__(self, catch_up: Callable[[], None] = lambda: None) -> None:
        self.all: list[Arrival] = []
        self._catch_up = catch_up

    def add(self, arrival: Arrival) -> None:
        self.all.append(arrival)

    def of(self, kind: Kind, to: str = "") -> list[Arrival]:
        return [each for each in self.all if each.kind == kind and to in ("", each.to)]

    @contextmanager
    def during(self) -> Iterator["Arrivals"]:
        """What arrives from now on, filled in at the end."""
        seen = Arrivals()
        self._catch_up()
        begun = len(self.all)
        try:
            yield seen
        finally:
            self._catch_up()
            seen.all = self.all[begun:]

    def wait_for(self, holds: Callable[[Arrival], bool], within_s: float = 30.0) -> Arrival:
        """The first that `holds`, when it has arrived. Raises `TimeoutError`."""
        deadline = time.monotonic() + within_s
        while True:
            for each in self.all:
                if holds(each):
                    return each
            if time.monotonic() > deadline:
                raise TimeoutError(f"of {len(self.all)} arrivals none is the one")
            time.sleep(0.01)
