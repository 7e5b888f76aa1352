"""Questions to people: what no rule names may go out if a person allows it."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from wire.egress.policy import Attempt, Verdict
from wire.text import visible_name
from wire.v1 import egress_pb2 as pb

from egress.admission.record import HOST_CHARS, TEXT_CHARS, Caller
from egress.watch import Watch

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
    requests wait for it; a no counts for the rest of the turn.
    """

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
