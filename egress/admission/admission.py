"""Admission: everything that wants to go out is decided, resolved and recorded here first."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from wire.egress import hosts
from wire.egress.policy import Attempt, Verdict
from wire.v1 import egress_pb2

from egress.admission.allowance import Allowance
from egress.admission.questions import Questions
from egress.admission.record import Entry, Record
from egress.caller import Caller
from egress.configuration import Configuration, State
from egress.refusals import Refused, not_ready
from egress.watch import NotReady, Watch


@dataclass(eq=False)
class Passage:
    """Something that goes out. `cut` is called with the reason if it may not any longer. What is
    not `limited` goes to a server that the settings name."""

    caller: Caller
    attempt: Attempt
    configuration: Configuration
    entry: Entry
    limited: bool
    cut: Callable[[str], None] | None = None


class Admission:
    """Decides by the configuration that counts, asks people, counts, and tells the runner."""

    def __init__(self, state: State, watch: Watch, allowance: Allowance) -> None:
        self._state = state
        self._allowance = allowance
        self._record = Record(watch)
        self._questions = Questions(watch, self._grant)
        self._open: set[Passage] = set()

    @property
    def state(self) -> State:
        return self._state

    def counters(self) -> egress_pb2.EgressCountersReply:
        """What was let out and refused so far."""
        return self._record.counters()

    async def admit(self, caller: Caller, attempt: Attempt, *, upstream: str = "") -> Passage:
        """Return when `attempt` may go out and its beginning is recorded; the caller of this calls
        `end` then.

        Args:
            caller: Who wants it.
            attempt: What it wants, with the host in its one spelling.
            upstream: The name of the server of the configuration that it is for. Such a server
                needs no rule, has no limits, and lies where the operator says.

        Raises `Refused`.
        """
        try:
            return await self._admit(caller, attempt, upstream)
        except NotReady as error:
            raise not_ready(str(error)) from None

    async def _admit(self, caller: Caller, attempt: Attempt, upstream: str) -> Passage:
        configuration = self._state.current
        verdict = (
            Verdict("allow", f"upstream {upstream}", "")
            if upstream
            else configuration.policies[caller.role].decide(attempt, caller.session_id)
        )
        if verdict.decision == "ask":
            verdict = await self._questions.ask(caller, attempt, verdict)
            configuration = self._state.current
        refused, address = None, ""
        if verdict.decision != "allow":
            shown = hosts.shown(attempt.host, attempt.port)
            refused = Refused(403, "policy", f"{shown} is not allowed: {verdict.reason}")
        elif not upstream:
            try:
                self._count(caller, attempt.host)
                addresses = await configuration.outside.dialer.resolve(attempt.host)
                address = addresses[0] if addresses else ""
            except Refused as error:
                refused = error
        if refused is not None:
            no = Verdict("deny", verdict.rule, refused.why)
            await self._record.begin(caller, attempt, no, upstream=upstream)
            refused.recorded = True
            raise refused
        entry = await self._record.begin(
            caller, attempt, verdict, upstream=upstream, address=address
        )
        passage = Passage(caller, attempt, configuration, entry, limited=not upstream)
        self._open.add(passage)
        return passage

    async def refuse(self, caller: Caller, attempt: Attempt, refused: Refused) -> None:
        """Record what was refused, unless it is."""
        if not refused.recorded:
            refused.recorded = True
            with suppress(NotReady):
                await self._record.begin(caller, attempt, Verdict("deny", "", refused.why))

    def passed(self, passage: Passage, *, sent: int = 0, received: int = 0) -> str:
        """Count bytes. Returns why nothing may follow; empty if it may."""
        passage.entry.sent += sent
        passage.entry.received += received
        if not passage.limited:
            return ""
        return self._allowance.count(passage.caller, passage.attempt.host, sent, received)

    async def end(self, passage: Passage, outcome: str, reason: str = "") -> None:
        """It is over. Only the first end counts."""
        self._open.discard(passage)
        await passage.entry.end(outcome, reason)

    def connect(self, caller: Caller) -> None:
        """Count a connection at a door, until `disconnect`. Raises `Refused`."""
        if why := self._allowance.connect(caller.role):
            raise Refused(429, "limit", why)

    def disconnect(self, caller: Caller) -> None:
        self._allowance.disconnect(caller.role)

    def review(self) -> None:
        """Cut what the configuration that counts now would not let out. Requests go on to their
        end; tunnels, which have none, are cut."""
        try:
            policies = self._state.current.policies
        except Refused as refused:
            for passage in [each for each in self._open if each.cut is not None]:
                _cut(passage, refused.why)
            return
        for passage in [each for each in self._open if each.cut is not None]:
            verdict = policies[passage.caller.role].decide(
                passage.attempt, passage.caller.session_id
            )
            if verdict.decision != "allow":
                _cut(passage, f"it is not allowed any more: {verdict.reason}")

    def _count(self, caller: Caller, host: str) -> None:
        if why := self._allowance.admit(caller, host):
            raise Refused(429, "limit", why)

    def _grant(self, role: str, grant: egress_pb2.EgressGrant) -> None:
        self._state.current.policies[role].grant(grant)


def _cut(passage: Passage, why: str) -> None:
    assert passage.cut is not None
    passage.cut(why)
