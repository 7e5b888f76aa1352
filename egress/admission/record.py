"""The record of everything that goes out or is refused, kept by the runner."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Final

from wire.egress.policy import Attempt, Verdict
from wire.text import visible_name
from wire.v1 import egress_pb2 as pb

from egress.credentials.bodies import holds_placeholder
from egress.watch import ALLOWED, REFUSED, Watch

HOST_CHARS: Final = 255
TEXT_CHARS: Final = 300
HOSTS_MAX: Final = 1_000
OTHERS: Final = "…"
"""What stands for a role's hosts beyond `HOSTS_MAX` in the counters."""
REFUSALS_AT_ONCE: Final = 1_000
REFUSALS_PER_S: Final = 0.5
"""Refusals of one role that are written down: as many at once, and so many more each second."""
LEFT_OUT_S: Final = 0.1
"""How long one that is left out takes."""


@dataclass(frozen=True)
class Caller:
    """The guest that asks, and the session and turn that it says it works for."""

    role: str
    session_id: str = ""
    turn_id: str = ""


class Record:
    """Tells the runner of each request, and waits until it is written down.

    Refusals are written down as well; of a role that is refused again and again, most are left out
    and only counted, so that it cannot fill the disk of the record. The next one says how many.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._ids = count(1)
        self._open: set[RequestEntry] = set()
        self._counts: dict[str, dict[str, pb.EgressCount]] = {}
        self._patience: dict[str, _RefusalThrottle] = {}

    async def begin(
        self,
        caller: Caller,
        attempt: Attempt,
        verdict: Verdict,
        *,
        upstream: str = "",
        address: str = "",
    ) -> "RequestEntry":
        """Return when the runner has written down what is about to go out, or was refused: whatever
        is not allowed has ended with this. Raises `NotReady` when it is not written down: then
        nothing may go out."""
        allowed = verdict.decision == "allow"
        host = _told(attempt.host, HOST_CHARS)
        left_out = 0
        if not allowed:
            patience = self._patience.setdefault(caller.role, _RefusalThrottle())
            if not patience.allows():
                counted = self._count_of(caller.role, host)
                counted.refused += 1
                await asyncio.sleep(LEFT_OUT_S)
                return RequestEntry(0, counted, lambda *_: None)
            left_out, patience.left_out = patience.left_out, 0
        reason = f"{left_out} refusals before it are left out; " if left_out else ""
        reason += visible_name(verdict.reason[:TEXT_CHARS])
        begun = pb.EgressBegun(
            id=next(self._ids),
            role=caller.role,
            session_id=caller.session_id,
            turn_id=caller.turn_id,
            upstream=upstream,
            method=attempt.method or "CONNECT",
            scheme=attempt.scheme,
            host=host,
            port=attempt.port,
            path=_told(attempt.path.partition("?")[0], TEXT_CHARS),
            decision=ALLOWED if allowed else REFUSED,
            rule=verdict.rule,
            reason="" if allowed else reason,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            address=address,
        )
        await self._watch.record(begun)
        counted = self._count_of(caller.role, host)
        if not allowed:
            counted.refused += 1
            return RequestEntry(begun.id, counted, lambda *_: None)
        counted.requests += 1
        entry = RequestEntry(begun.id, counted, self._end)
        self._open.add(entry)
        return entry

    def counters(self) -> pb.EgressCountersReply:
        """What was let out and refused so far, with what runs now."""
        reply = pb.EgressCountersReply(open=len(self._open))
        now = {
            id(each): reply.counts.add(
                role=each.role,
                host=each.host,
                requests=each.requests,
                refused=each.refused,
                sent=each.sent,
                received=each.received,
            )
            for of_role in self._counts.values()
            for each in of_role.values()
        }
        for entry in self._open:
            now[id(entry.counted)].sent += entry.sent
            now[id(entry.counted)].received += entry.received
        return reply

    @property
    def open(self) -> Iterable["RequestEntry"]:
        """What has begun and not ended."""
        return tuple(self._open)

    def _end(self, entry: "RequestEntry", outcome: str, reason: str) -> None:
        self._open.discard(entry)
        entry.counted.sent += entry.sent
        entry.counted.received += entry.received
        self._watch.tell(
            pb.EgressEvent(
                ended=pb.EgressEnded(
                    id=entry.id,
                    sent=entry.sent,
                    received=entry.received,
                    status=entry.status,
                    outcome=outcome,
                    reason=visible_name(reason[:TEXT_CHARS]),
                    duration_ms=round((time.monotonic() - entry.began) * 1000),
                )
            )
        )

    def _count_of(self, role: str, host: str) -> pb.EgressCount:
        counts = self._counts.setdefault(role, {})
        if host not in counts and len(counts) >= HOSTS_MAX:
            host = OTHERS
        return counts.setdefault(host, pb.EgressCount(role=role, host=host))


@dataclass(eq=False)
class RequestEntry:
    """A request or tunnel that is written down. Whoever forwards it counts the bytes, sets the
    `status` of an answer that can be read, and says how it ended."""

    id: int
    counted: pb.EgressCount
    on_end: Callable[["RequestEntry", str, str], None]
    sent: int = 0
    received: int = 0
    status: int = 0
    began: float = field(default_factory=time.monotonic)
    ended: bool = False

    async def end(self, outcome: str, reason: str = "") -> None:
        """Tell how it ended: "done", "cut", "limit", "credential", "refused" or "failed". It waits
        for nobody; only the first end counts."""
        if not self.ended:
            self.ended = True
            self.on_end(self, outcome, reason)


def _told(text: str, chars: int) -> str:
    """What a client has written, as it is recorded: without placeholders of credentials."""
    if holds_placeholder(text.encode("utf-8", "surrogateescape")):
        return OTHERS
    return visible_name(text[:chars])


class _RefusalThrottle:
    """Lets `REFUSALS_AT_ONCE` pass, and then `REFUSALS_PER_S`; counts the others."""

    def __init__(self) -> None:
        self._credit = float(REFUSALS_AT_ONCE)
        self._credited = time.monotonic()
        self.left_out = 0

    def allows(self) -> bool:
        now = time.monotonic()
        earned = (now - self._credited) * REFUSALS_PER_S
        self._credit = min(REFUSALS_AT_ONCE, self._credit + earned)
        self._credited = now
        if self._credit < 1:
            self.left_out += 1
            return False
        self._credit -= 1
        return True
