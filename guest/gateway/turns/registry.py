"""The turns of one user: started by anybody, followed by any number, cancelled by name."""

import asyncio
import functools
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from wire.errors import Code, WireError
from wire.text import shortened
from wire.v1 import gateway_pb2 as pb

from guest.agent import failures
from guest.agent.turn import (
    Answer,
    AskClient,
    Outcome,
    TurnRequest,
)
from guest.egress_client import on_behalf_of
from guest.errors import GuestError, StorageError, ToolError
from guest.gateway import convert
from guest.gateway.turns.approvals import Approval, Approvals, ClientCalls
from guest.gateway.turns.events import EventLog
from guest.gateway.turns.records import TEXT_CHARS, Record, TurnRecords, began_by, state_of
from guest.memory.conversations.sessions import InUse
from guest.memory.models import SessionNotFound, is_temporary, now
from guest.memory.storage.availability import is_away
from guest.memory.usage import UNITS_PER_DOLLAR, Amount
from guest.tools.base import Approve, Ending, Offer, Tool, ToolContext
from guest.watch import Spans

if TYPE_CHECKING:
    from guest.agent.turn_loop import TurnLoop

log = logging.getLogger(__name__)

RUNNING_MAX: Final = 256
REMEMBERED_TURN_IDS: Final = 1024
KEPT_TURNS: Final = 64
KEPT_BYTES: Final = 32 * 1024 * 1024
KEPT_S: Final = 600.0
_LISTED_MAX: Final = 100
_WIND_DOWN_S = 1.0
_TASK_CHARS: Final = 100


class Turn:
    """A started turn.

    Attributes:
        events: What has happened, the outcome last.
        waiting: How many of its calls wait for a person or a client.
        asked: What else a person is asked on its behalf; none of it outlives the turn.
        delegated: How many sub-agents it has begun.
        outcome: How it ended; None while it runs.
    """

    def __init__(self, request: TurnRequest, loop: "TurnLoop") -> None:
        self.request = request
        self.loop = loop
        self.events = EventLog(request.context.turn_id)
        self.began = time.monotonic()
        self.started_at = now()
        self.ended = 0.0
        self.ended_at = ""
        self.waiting = 0
        self.asked: set[Approval] = set()
        self.delegated = 0
        self.outcome: Outcome | None = None
        self.task: asyncio.Task[Outcome] | None = None
        self.cancelling = False

    @property
    def state(self) -> str:
        """As in `Turn.state` of the contract."""
        if self.outcome is not None:
            return state_of(self.outcome)
        return "waiting" if self.waiting else "running"

    def is_in(self, session_id: str) -> bool:
        """Whether it is a turn of this session; of "", whether lists of all turns have it."""
        own = self.request.context.session_id
        if session_id:
            return own == session_id
        return not (self.request.untraced or is_temporary(own))

    def cancel(self) -> bool:
        """Cancel the turn; false if it has already ended."""
        if self.task is None or self.task.done():
            return False
        if not self.cancelling:
            self.cancelling = True
            self.task.cancel()
        return True

    def to_message(self) -> pb.Turn:
        context = self.request.context
        origin = self.request.origin
        return pb.Turn(
            turn_id=context.turn_id,
            session_id=context.session_id,
            state=self.state,
            text=self.request.text[:TEXT_CHARS],
            channel=context.channel,
            model=self.request.model,
            started_at=self.started_at,
            ended_at=self.ended_at,
            events=self.events.count,
            **began_by(asdict(origin) if origin else {}),
        )


@dataclass(repr=False, eq=False)
class Turns:
    """All turns of one user's gateway. `temporary` records those of temporary conversations. `late`
    gives what sub-agents of a session have answered too late, `spent` what turns took.

    A turn that has ended is kept with its events for `KEPT_S`, as long as no more than `KEPT_TURNS`
    and `KEPT_BYTES` are kept; afterwards its record answers for it.
    """

    in_use: InUse
    records: TurnRecords
    approvals: Approvals
    spans: Spans | None = None
    temporary: TurnRecords | None = None
    remembered_ids: int = REMEMBERED_TURN_IDS
    late: Callable[[str], Awaitable[tuple[Ending, ...]]] | None = None
    spent: Callable[[Sequence[tuple[str, str]]], Awaitable[Mapping[str, Amount]]] | None = None

    def __post_init__(self) -> None:
        self._temporary = self.temporary or self.records
        self._spans = self.spans or Spans()
        self._client_calls = ClientCalls(self.approvals.wait_s)
        self._by_session: dict[str, Turn] = {}
        self._running: dict[str, Turn] = {}
        self._ended: OrderedDict[str, Turn] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._closed = False

    async def start(self, request: TurnRequest, loop: "TurnLoop") -> Turn:
        """Start a turn, which `loop` runs; one without an id gets one.

        Raises `WireError`: CONFLICT if the session is running another turn or being forgotten,
        ALREADY_EXISTS for a turn id seen before, RESOURCE_EXHAUSTED if `RUNNING_MAX` turns run,
        UNAVAILABLE after `close`.
        """
        session_id, given = request.context.session_id, request.context.turn_id
        turn_id = given or f"turn-{uuid.uuid4()}"
        await self._wait_for_cancelled(session_id)
        if given and (given in self._seen or await self._is_recorded(given)):
            raise _known(given)
        if turn_id in self._seen:
            raise _known(turn_id)
        if self._closed:
            raise GuestError(Code.UNAVAILABLE, "the agent is shutting down")
        if len(self._running) >= RUNNING_MAX:
            raise GuestError(
                Code.RESOURCE_EXHAUSTED,
                f"{RUNNING_MAX} turns run already",
                resolution="wait for one to end, or cancel some",
            )
        context = replace(request.context, turn_id=turn_id)
        turn = Turn(replace(request, context=context), loop)
        if not request.untraced:
            with convert.checked():
                self.in_use.take(session_id, f"turn {turn_id!r}")
            self._by_session[session_id] = turn
        self._running[turn_id] = turn
        self._seen[turn_id] = None
        if len(self._seen) > self.remembered_ids:
            self._seen.popitem(last=False)
        turn.task = asyncio.create_task(self._drive(turn), name=turn_id)
        turn.task.add_done_callback(functools.partial(self._finish, turn))
        return turn

    async def follow(self, turn_id: str, after: int) -> AsyncIterator[pb.TurnEvent]:
        """The events of a turn from the index `after` on, the outcome last.

        Raises `WireError`: NOT_FOUND for a turn that never began; what the store fails with.
        """
        turn = self._find(turn_id)
        if turn is None:
            record = await self._find_record(turn_id)
            if record is None:
                raise GuestError(
                    Code.NOT_FOUND,
                    f"turn not found: {turn_id}",
                    details="it has never begun, or its session was forgotten",
                    resolution="start it, or list the turns",
                )
            for event in await self._records_of(record.session_id).events(record, after):
                yield event
            return
        async for event in turn.events.follow(after):
            yield event

    async def list(self, session_id: str = "", *, running_only: bool = False) -> list[pb.Turn]:
        """Turns that run and, unless `running_only`, those that ended lately; newest first. While
        a memory server is away, those of earlier launches are missing."""
        self._drop_ended()
        turns = [*self._running.values(), *(() if running_only else self._ended.values())]
        listed = [turn.to_message() for turn in turns if turn.is_in(session_id)]
        if not running_only:
            known = {turn.turn_id for turn in listed}
            records = await self._latest(session_id)
            listed += [each.to_message() for each in records if each.turn_id not in known]
        listed = sorted(listed, key=lambda turn: turn.started_at, reverse=True)[:_LISTED_MAX]
        if self.spent is not None:
            with suppress(StorageError):
                amounts = await self.spent([(turn.session_id, turn.turn_id) for turn in listed])
                for turn in listed:
                    amount = amounts.get(turn.turn_id, Amount(0, 0))
                    turn.cost_usd = amount.of("usd") / UNITS_PER_DOLLAR
                    turn.tokens = amount.of("tokens")
        return listed

    @property
    def any_runs(self) -> bool:
        return bool(self._running)

    def running(self, turn_id: str) -> Turn | None:
        return self._running.get(turn_id)

    def works(self, session_id: str) -> bool:
        """Whether a turn of this session runs."""
        return session_id in self._by_session

    def knows(self, turn_id: str) -> bool:
        """Whether a turn runs, or is kept with its events."""
        return self._find(turn_id) is not None

    def is_followed(self, turn_id: str) -> bool:
        turn = self._find(turn_id)
        return turn is not None and turn.events.followers > 0

    def cancel(self, turn_id: str) -> bool:
        turn = self._running.get(turn_id)
        return turn is not None and turn.cancel()

    async def ask(self, asked: pb.AskRequest) -> pb.ApprovalDecided:
        """Ask a person for something that a turn needs, while it goes on; those who follow it see
        the question. Without a `turn_id` the question is the session's alone.

        Raises `GuestError`: FAILED_PRECONDITION where that turn does not run in this session,
        RESOURCE_EXHAUSTED where too many wait.
        """
        session_id, turn_id = asked.session_id, asked.turn_id
        turn = self._running.get(turn_id)
        if turn_id and (
            turn is None or turn.cancelling or turn.request.context.session_id != session_id
        ):
            raise GuestError(
                Code.FAILED_PRECONDITION,
                "the turn that it was for does not run any more",
                details=turn_id,
            )
        approval = self.approvals.ask(
            pb.ApprovalRequested(
                tool=asked.tool,
                arguments_json=asked.arguments_json,
                turn_id=turn_id,
                session_id=session_id,
                channel=turn.request.context.channel if turn is not None else "",
                question=asked.question,
            ),
            tuple(Offer(text, "", "") for text in asked.offers),
        )
        if turn is not None:
            turn.asked.add(approval)
            try:
                with turn.request.context.pause.asking():
                    return await self._decided(turn, approval)
            finally:
                turn.asked.discard(approval)
        try:
            await asyncio.wait([approval.decided])
        finally:
            self.approvals.withdraw(approval)
        return approval.decided.result()

    def answer_call(self, turn_id: str, call_id: str, answer: Answer) -> bool:
        return self._client_calls.answer(turn_id, call_id, answer)

    async def stop(self, session_id: str) -> None:
        """Cancel the turn of a session, if one runs, and wait briefly until it has ended."""
        turn = self._by_session.get(session_id)
        if turn is not None and turn.cancel() and turn.task is not None:
            await asyncio.wait([turn.task], timeout=_WIND_DOWN_S)

    def forget(self, session_id: str) -> None:
        """Drop what is kept of the turns of a session."""
        for turn_id, turn in list(self._ended.items()):
            if turn.request.context.session_id == session_id:
                del self._ended[turn_id]

    async def close(self) -> None:
        """Interrupt every turn and wait until each is recorded. No turn starts afterwards."""
        self._closed = True
        tasks = [turn.task for turn in self._running.values() if turn.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_WIND_DOWN_S)

    def _records_of(self, session_id: str) -> TurnRecords:
        return self._temporary if is_temporary(session_id) else self.records

    async def _find_record(self, turn_id: str) -> Record | None:
        return await self._temporary.find(turn_id) or await self.records.find(turn_id)

    async def _latest(self, session_id: str) -> Sequence[Record]:
        try:
            return await self._records_of(session_id).latest(session_id)
        except WireError as error:
            if not is_away(error):
                raise
            return ()

    async def _is_recorded(self, turn_id: str) -> bool:
        try:
            return await self._find_record(turn_id) is not None
        except WireError as error:
            if not is_away(error):
                raise
            return False  # turns go on while a memory server is away

    async def _wait_for_cancelled(self, session_id: str) -> None:
        """Who cancels a turn and asks anew need not wait until the old one is recorded."""
        leaving = self._by_session.get(session_id)
        if leaving is not None and leaving.cancelling and leaving.task is not None:
            await asyncio.wait([leaving.task], timeout=_WIND_DOWN_S)

    async def _drive(self, turn: Turn) -> Outcome:
        context = turn.request.context
        known = {"channel": context.channel, "session": context.session_id, "turn": context.turn_id}
        if context.schedule and turn.request.origin:
            known |= {"schedule": context.schedule, "slot": turn.request.origin.slot}
        made_for = on_behalf_of(context.session_id, context.turn_id)
        with self._spans.step("turn", **known) as step, made_for:
            outcome = await self._run(turn)
            step.failed = isinstance(outcome, pb.TurnFailed)
            step.words["outcome"] = getattr(outcome, "code", "ok")
            step.counts["cost"] = turn.request.account.of("usd")  # in billionths of a US dollar
            if isinstance(outcome, pb.TurnIncomplete):
                step.words["outcome"] = "incomplete"
            return outcome

    async def _run(self, turn: Turn) -> Outcome:
        request, loop = turn.request, turn.loop
        context = request.context
        turn.events.add(pb.TurnStarted(session_id=context.session_id, model=request.model))
        try:
            if self.late is not None and not request.untraced:
                request = replace(request, late=await self.late(context.session_id))
            if request.untraced:
                return await loop.answer_untraced(request, turn.events.put)
            outcome = await loop.run(
                request, turn.events.put, self._approver(turn), self._asker(turn)
            )
        except WireError as error:
            return failures.from_wire_error(error)
        except SessionNotFound:
            return failures.forgotten()
        if isinstance(outcome, pb.TurnFailed):
            if outcome.code == Code.CANCELLED and not turn.cancelling:
                outcome.MergeFrom(failures.interrupted())
            await self._records_of(context.session_id).note_end(context, outcome)
        return outcome

    def _finish(self, turn: Turn, task: asyncio.Task[Outcome]) -> None:
        """Clean up after a turn, however it ended, even before its first step."""
        context = turn.request.context
        if not turn.request.untraced:
            self.in_use.release(context.session_id)
            self._by_session.pop(context.session_id, None)
        del self._running[context.turn_id]
        outcome: Outcome
        if task.cancelled():
            outcome = failures.cancelled() if turn.cancelling else failures.interrupted()
        elif (error := task.exception()) is not None:
            log.error("turn failed unexpectedly", exc_info=error)
            outcome = failures.failed(Code.INTERNAL, "internal error", "runner logs")
        else:
            outcome = task.result()
        for approval in tuple(turn.asked):
            self.approvals.withdraw(approval)
            turn.events.add(approval.decided.result())
        turn.outcome, turn.ended, turn.ended_at = outcome, time.monotonic(), now()
        turn.events.finish(outcome)
        turn.request = replace(turn.request, attachments=())
        self._ended[context.turn_id] = turn
        self._drop_ended()
        log.info(
            "turn ended",
            extra={
                "session": context.session_id,
                "turn": context.turn_id,
                "duration_ms": round((turn.ended - turn.began) * 1000),
                "outcome": getattr(outcome, "code", turn.state),
            },
        )

    def _find(self, turn_id: str) -> Turn | None:
        self._drop_ended()
        return self._running.get(turn_id) or self._ended.get(turn_id)

    def _drop_ended(self) -> None:
        """Let go of the oldest turns beyond the bounds, but for the one that ended last."""
        total = sum(turn.events.bytes for turn in self._ended.values())
        oldest = time.monotonic() - KEPT_S
        for turn_id, turn in list(self._ended.items())[:-1]:
            if len(self._ended) <= KEPT_TURNS and total <= KEPT_BYTES and turn.ended > oldest:
                break
            del self._ended[turn_id]
            total -= turn.events.bytes

    async def _decided(self, turn: Turn, approval: Approval) -> pb.ApprovalDecided:
        """Wait for a person on behalf of a turn; whoever waits no more withdraws the approval."""
        turn.waiting += 1
        turn.events.add(approval.request)
        try:
            await asyncio.wait([approval.decided])
        finally:
            self.approvals.withdraw(approval)
            turn.waiting -= 1
            turn.events.add(approval.decided.result())
        return approval.decided.result()

    def _asker(self, turn: Turn) -> AskClient:
        async def ask(call: pb.ClientCall) -> Answer | None:
            turn.waiting += 1
            try:
                turn_id = turn.request.context.turn_id
                return await self._client_calls.ask(turn_id, call, turn.events.put)
            finally:
                turn.waiting -= 1

        return ask

    def _approver(self, turn: Turn) -> Approve:
        origin = turn.request.origin

        async def approve(context: ToolContext, tool: Tool, arguments_json: str) -> bool:
            if origin is None or origin.kind != "delegation":
                asking, question = turn, ""
            elif (parent := self._running.get(origin.turn_id)) is None or parent.cancelling:
                raise ToolError(
                    f"{tool.name} needs approval, and the turn that could ask for it has ended"
                )
            else:  # the question is the parent's, and ends with it
                asking = parent
                task = shortened(" ".join(turn.request.text.split()), _TASK_CHARS)
                question = f"a sub-agent asks: allow {tool.name}? Its task: {task}"
            approval = self.approvals.ask(
                pb.ApprovalRequested(
                    tool=tool.name,
                    arguments_json=arguments_json,
                    turn_id=asking.request.context.turn_id,
                    session_id=asking.request.context.session_id,
                    channel=context.channel,
                    question=question,
                ),
                context.offers if asking is turn else (),
            )
            if asking is not turn:
                asking.asked.add(approval)
                turn.waiting += 1
            try:
                decision = await self._decided(asking, approval)
            finally:
                if asking is not turn:
                    asking.asked.discard(approval)
                    turn.waiting -= 1
            if decision.by == "expiry":
                raise ToolError(
                    f"{tool.name} was not approved: nobody answered within "
                    f"{self.approvals.wait_s:g} seconds"
                )
            return decision.approved

        return approve


def _known(turn_id: str) -> GuestError:
    return GuestError(
        Code.ALREADY_EXISTS,
        f"turn {turn_id!r} exists already",
        resolution="follow it (FollowTurn), or choose a new turn_id for another one",
    )
