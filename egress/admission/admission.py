"""Admission: everything that wants to go out is decided, resolved and recorded here first.

A decision counts as long as what it let out lasts: it is made again when a passage is registered,
with nothing awaited in between, and at each change of the configuration, which ends every passage
that it forbids. So no wait for a person, a name server, the record or a server lies between a
decision and what goes out by it.

What no rule names may go out if a person allows it: people are asked here, too.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from wire.egress import hosts
from wire.egress.policy import Attempt, Verdict
from wire.identity import Party
from wire.text import visible_name
from wire.v1 import egress_pb2
from wire.v1 import egress_pb2 as pb

from egress.admission.allowance import Allowance
from egress.admission.record import HOST_CHARS, TEXT_CHARS, Caller, Record, RequestEntry
from egress.configuration import Configuration, State
from egress.outbound.upstreams import Upstream
from egress.refusals import Refused, not_ready
from egress.watch import NotReady, Watch

OPEN_MAX: Final = 8
"""How many questions of one session may be open at once."""
REFUSALS_MAX: Final = 1_000
LINGER_S: Final = 30.0
"""How long a question stays when nobody waits for it: a client that gave up may try again."""

_Key = tuple[str, str, str]


@dataclass(eq=False)
class _Question:
    """A question that is open. `waiting` is how many requests wait for it."""

    answer: "asyncio.Future[pb.EgressAnswer]"
    waiting: int = 0
    leaving: asyncio.TimerHandle | None = field(default=None)


class Questions:
    """Asks through the runner. One question is open for each session and rule, however many
    requests wait for it; a no counts for the rest of the turn."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._ids = count(1)
        self._open: dict[_Key, _Question] = {}
        self._refused: OrderedDict[tuple[_Key, str], str] = OrderedDict()

    async def ask(self, caller: Caller, attempt: Attempt, verdict: Verdict) -> Verdict:
        """The decision of a person on an attempt whose `verdict` is to ask.

        Raises `NotReady` where the runner is not there.
        """
        rule = verdict.asks_for
        if not caller.session_id or not rule:
            return Verdict("deny", rule, "nobody can be asked: the request belongs to no session")
        await self._watch.ready()
        key = (caller.role, caller.session_id, rule)
        if (reason := self._refused.get((key, caller.turn_id))) is not None:
            return Verdict("deny", rule, reason)
        question = self._open.get(key)
        if question is None or question.answer.done():
            if sum(of[:2] == key[:2] for of in self._open) >= OPEN_MAX:
                return Verdict("deny", rule, f"{OPEN_MAX} other questions of this session are open")
            question = self._open[key] = self._asked(caller, attempt, rule)
            question.answer.add_done_callback(lambda answer: self._close(key, answer))
        answer = await self._awaited(question)
        if not answer.allowed:
            reason = visible_name(answer.reason[:TEXT_CHARS]) or "a person said no"
            if caller.turn_id:
                self._remember((key, caller.turn_id), reason)
            return Verdict("deny", rule, reason)
        return Verdict("allow", rule, "a person allowed it for this session")

    def _close(self, key: _Key, answer: "asyncio.Future[pb.EgressAnswer]") -> None:
        if (question := self._open.get(key)) is not None and question.answer is answer:
            del self._open[key]

    def _asked(self, caller: Caller, attempt: Attempt, rule: str) -> _Question:
        return _Question(
            self._watch.ask(
                pb.EgressQuestion(
                    id=next(self._ids),
                    role=caller.role,
                    session_id=caller.session_id,
                    turn_id=caller.turn_id,
                    host=visible_name(attempt.host[:HOST_CHARS]),
                    port=attempt.port,
                    method=attempt.method,
                    path=visible_name(attempt.path.partition("?")[0][:TEXT_CHARS]),
                    rule=rule,
                )
            )
        )

    async def _awaited(self, question: _Question) -> pb.EgressAnswer:
        """Wait together with others. Who leaves last lets the question linger."""
        question.waiting += 1
        if question.leaving is not None:
            question.leaving.cancel()
            question.leaving = None
        try:
            return await asyncio.shield(question.answer)
        finally:
            question.waiting -= 1
            if not question.waiting and not question.answer.done():
                loop = asyncio.get_running_loop()
                question.leaving = loop.call_later(LINGER_S, question.answer.cancel)

    def _remember(self, refusal: tuple[_Key, str], reason: str) -> None:
        self._refused[refusal] = reason
        if len(self._refused) > REFUSALS_MAX:
            self._refused.popitem(last=False)


@dataclass(eq=False)
class OutboundRequest:
    """Something that goes out. The `addresses` of its host are unknown for an upstream, and behind
    a proxy. `forbidden` says why it may go on no longer; empty if it may."""

    caller: Caller
    attempt: Attempt
    configuration: Configuration
    entry: RequestEntry
    upstream: Upstream | None
    addresses: tuple[str, ...]
    forbidden: str = ""
    _scope: asyncio.Timeout | None = field(default=None, repr=False)

    @property
    def opens_every_host(self) -> bool:
        """Whether its caller may open a tunnel to any host."""
        policy = self.configuration.policies.get(self.caller.role)
        return policy is not None and policy.opens_every_host(self.attempt.port)

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[None]:
        """What goes out does so inside of this. Raises `Refused` as soon as it is forbidden."""
        try:
            async with asyncio.timeout(0 if self.forbidden else None) as self._scope:
                yield
        except TimeoutError:
            if self.forbidden:
                raise Refused(403, "policy", self.forbidden) from None
            raise
        finally:
            self._scope = None

    def forbid(self, why: str) -> None:
        """End it."""
        if not self.forbidden:
            self.forbidden = why
            if self._scope is not None:
                self._scope.reschedule(0)


class Admission:
    """Decides by the current configuration, asks people, counts, and reports to the runner."""

    def __init__(self, state: State, watch: Watch, allowance: Allowance) -> None:
        self.state = state
        self.tell = watch.tell
        self._allowance = allowance
        self._record = Record(watch)
        self._questions = Questions(watch)
        self._open: set[OutboundRequest] = set()

    def counters(self) -> egress_pb2.EgressCountersReply:
        """What was let out and refused so far."""
        return self._record.counters()

    async def admit(
        self, caller: Caller, attempt: Attempt, *, upstream: Upstream | None = None
    ) -> OutboundRequest:
        """Return when `attempt`, with the host in its one spelling, may go out and its beginning is
        recorded; the caller of this calls `end` then, and awaits nothing before
        `OutboundRequest.lasting`. An upstream needs no rule, has no limits, and lies where the
        operator says. Raises `Refused`."""
        try:
            return await self._admit(caller, attempt, upstream)
        except NotReady as error:
            raise not_ready(str(error)) from None

    async def _admit(
        self, caller: Caller, attempt: Attempt, upstream: Upstream | None
    ) -> OutboundRequest:
        verdict = self._decide(caller, attempt, upstream)
        while rule := verdict.asks_for:
            verdict = await self._questions.ask(caller, attempt, verdict)
            if verdict.decision == "allow":
                verdict = self._decide(caller, attempt, upstream)
                if verdict.asks_for == rule:  # a yes to what is not asked any more opens nothing
                    grant = egress_pb2.EgressGrant(rule=rule, session_id=caller.session_id)
                    self.state.current.policies[caller.role].grant(grant)
                    verdict = self._decide(caller, attempt, upstream)
        configuration = self.state.current
        name = upstream.name if upstream else ""
        refused: Refused | None = None
        addresses: tuple[str, ...] = ()
        if verdict.decision != "allow":
            shown = hosts.shown(attempt.host, attempt.port)
            refused = Refused(403, "policy", f"{shown} is not allowed: {verdict.reason}")
        elif not upstream:
            try:
                if why := self._allowance.admit(caller, attempt.host):
                    raise Refused(429, "limit", why)
                addresses = await configuration.outside.dialer.resolve(attempt.host)
            except Refused as error:
                refused = error
        if refused is not None:
            no = Verdict("deny", verdict.rule, refused.why)
            await self._record.begin(caller, attempt, no, upstream=name)
            refused.recorded = True
            raise refused
        address = addresses[0] if addresses else ""
        entry = await self._record.begin(caller, attempt, verdict, upstream=name, address=address)
        passage = OutboundRequest(caller, attempt, configuration, entry, upstream, addresses)
        if why := self._why_not(passage):
            await entry.end("cut", why)
            refused = Refused(403, "policy", why)
            refused.recorded = True
            raise refused
        passage.configuration = self.state.current
        self._open.add(passage)
        return passage

    async def refuse(self, caller: Caller, attempt: Attempt, refused: Refused) -> None:
        """Record what was refused, unless it is."""
        if not refused.recorded:
            refused.recorded = True
            with suppress(NotReady):
                await self._record.begin(caller, attempt, Verdict("deny", "", refused.why))

    def passed(self, passage: OutboundRequest, *, sent: int = 0, received: int = 0) -> str:
        """Count bytes. Returns why nothing may follow; empty if it may."""
        passage.entry.sent += sent
        passage.entry.received += received
        if passage.upstream is not None:
            return ""
        return self._allowance.count(passage.caller, passage.attempt.host, sent, received)

    async def end(self, passage: OutboundRequest, outcome: str, reason: str = "") -> None:
        """It is over. Only the first end counts."""
        self._open.discard(passage)
        await passage.entry.end(outcome, reason)

    def connect(self, caller: Caller) -> None:
        """Count a connection, until `disconnect`. Raises `Refused`."""
        if why := self._allowance.connect(caller.role):
            raise Refused(429, "limit", why)

    def disconnect(self, caller: Caller) -> None:
        self._allowance.disconnect(caller.role)

    def review(self) -> None:
        """End what the configuration that counts now would not let out."""
        for passage in tuple(self._open):
            if why := self._why_not(passage):
                passage.forbid(why)

    def _decide(self, caller: Caller, attempt: Attempt, upstream: Upstream | None) -> Verdict:
        """The verdict of the configuration that counts now. Raises `Refused` where none does."""
        configuration = self.state.current
        if upstream is None:
            read = configuration.interception.wants(attempt.host, attempt.port)
            if caller.role == Party.SHELL and attempt.scheme == ("tunnel" if read else "https"):
                return Verdict("deny", "", "whether its requests are read has changed; try again")
            policy = configuration.policies[caller.role]
            return policy.decide(attempt, caller.session_id, caller.turn_id)
        rule = f"upstream {upstream.name}"
        if configuration.upstreams.has(upstream):
            return Verdict("allow", rule, "")
        return Verdict("deny", rule, f"the settings name no server {upstream.name} there any more")

    def _why_not(self, passage: OutboundRequest) -> str:
        """Why what was let out may not go on by the configuration that counts now."""
        try:
            verdict = self._decide(passage.caller, passage.attempt, passage.upstream)
            if verdict.decision != "allow":
                return f"it is not allowed any more: {verdict.reason}"
            current, attempt = self.state.current, passage.attempt
            if current.outside.dialer.proxy != passage.configuration.outside.dialer.proxy:
                return "the proxy that it would go by has changed; try again"
            current.outside.dialer.check(attempt.host, passage.addresses)
            before, now = (
                each.credentials.hidden(attempt.host, attempt.port).forms
                for each in (passage.configuration, current)
            )
            of_commands = passage.caller.role == Party.SHELL
            if of_commands and passage in self._open and not set(before) <= set(now):
                return "a key for its host was changed or taken away"
        except Refused as refused:
            return refused.why
        return ""
