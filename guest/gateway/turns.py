"""The running turns: one per session, cancellable, with their events and approvals."""

import asyncio
import functools
import logging
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from typing import Final, Protocol

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2 as pb

from guest.agent import failures
from guest.agent.turn import Emit, Outcome, Progress, TurnRequest
from guest.errors import GuestError
from guest.gateway import convert
from guest.memory.conversations.sessions import InUse
from guest.memory.models import SessionNotFound
from guest.tools.base import Approve, Tool, ToolContext

CAPACITY: Final = 256

_FIELD_OF = {
    pb.TurnStarted: "started",
    pb.TextDelta: "text",
    pb.ToolCallStarted: "tool_started",
    pb.ToolCallFinished: "tool_finished",
    pb.ApprovalRequested: "approval",
    pb.MemoryReceipt: "receipt",
    pb.Notice: "notice",
    pb.TurnCompleted: "completed",
    pb.TurnIncomplete: "incomplete",
    pb.TurnFailed: "failed",
}


class EventStream:
    """`put` waits while the reader is `CAPACITY` events behind; `finish` never waits,
    so that a turn ends on time even when nobody reads."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._waiting: deque[Progress] = deque()
        self._outcome: Outcome | None = None
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    async def put(self, progress: Progress) -> None:
        while len(self._waiting) >= CAPACITY:
            self._writable.clear()
            await self._writable.wait()
        self._waiting.append(progress)
        self._readable.set()

    def finish(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._readable.set()

    async def events(self) -> AsyncIterator[pb.TurnEvent]:
        """Every event in order, the outcome last. For one reader."""
        index = 0
        while True:
            while self._waiting:
                progress = self._waiting.popleft()
                self._writable.set()
                yield self._numbered(index, progress)
                index += 1
            if self._outcome is not None:
                yield self._numbered(index, self._outcome)
                return
            self._readable.clear()
            await self._readable.wait()

    def _numbered(self, index: int, event: Progress | Outcome) -> pb.TurnEvent:
        numbered = pb.TurnEvent(turn_id=self._turn_id, index=index)
        getattr(numbered, _FIELD_OF[type(event)]).CopyFrom(event)
        return numbered


log = logging.getLogger(__name__)

REMEMBERED_TURN_IDS: Final = 1024
_WIND_DOWN_S = 1.0


class Loop(Protocol):
    """`guest.agent.turn_loop.TurnLoop`."""

    async def run(
        self, request: TurnRequest, emit: Emit, approve: Approve | None = None
    ) -> Outcome: ...


class Turn:
    """A started turn. The events of its `stream` end with its outcome."""

    def __init__(self, request: TurnRequest) -> None:
        self.request = request
        self.stream = EventStream(request.context.turn_id)
        self.began = time.monotonic()
        self.task: asyncio.Task[Outcome] | None = None
        self.cancelling = False

    def cancel(self) -> bool:
        """Cancel the turn; false if it has already ended."""
        if self.task is None or self.task.done():
            return False
        if not self.cancelling:
            self.cancelling = True
            self.task.cancel()
        return True


class Turns:
    """All turns of one user's gateway."""

    def __init__(
        self, user_id: str, loop: Loop, in_use: InUse, *, remembered_ids: int = REMEMBERED_TURN_IDS
    ) -> None:
        self._user_id = user_id
        self._remembered_ids = remembered_ids
        self._loop = loop
        self._in_use = in_use
        self._by_session: dict[str, Turn] = {}
        self._by_id: dict[str, Turn] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._approvals: dict[str, asyncio.Future[bool]] = {}
        self._closed = False

    async def start(
        self,
        session_id: str,
        text: str,
        turn_id: str,
        channel: str,
        model: str = "",
        *,
        retry: bool = False,
    ) -> Turn:
        """Start a turn; with `retry`, without a text of its own.

        Raises `WireError`: CONFLICT if the session is running another turn or being forgotten,
        ALREADY_EXISTS for a turn id seen before, UNAVAILABLE after `close`.
        """
        turn_id = turn_id or f"turn-{uuid.uuid4()}"
        await self._wait_for_leaving(session_id)
        if turn_id in self._seen:
            raise GuestError(
                Code.ALREADY_EXISTS,
                f"turn {turn_id!r} exists already",
                resolution="choose a new turn_id, or leave it empty",
            )
        if self._closed:
            raise GuestError(Code.UNAVAILABLE, "the agent is shutting down")
        with convert.checked():
            self._in_use.take(session_id, f"turn {turn_id!r}")
        context = ToolContext(self._user_id, session_id, turn_id, channel, asked=text)
        turn = Turn(TurnRequest(context, text, model, retry))
        self._by_session[session_id] = self._by_id[turn_id] = turn
        self._seen[turn_id] = None
        if len(self._seen) > self._remembered_ids:
            self._seen.popitem(last=False)
        turn.task = asyncio.create_task(self._drive(turn), name=turn_id)
        turn.task.add_done_callback(functools.partial(self._ended, turn))
        return turn

    def cancel(self, turn_id: str) -> bool:
        turn = self._by_id.get(turn_id)
        return turn is not None and turn.cancel()

    def answer(self, approval_id: str, *, approved: bool) -> bool:
        """Answer an open approval; false if nobody waits for it any more."""
        waiting = self._approvals.get(approval_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(approved)
        return True

    async def close(self) -> None:
        """Cancel every turn and wait until each is recorded. No turn starts afterwards."""
        self._closed = True
        tasks = [turn.task for turn in self._by_id.values() if turn.task is not None]
        for turn in list(self._by_id.values()):
            turn.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_WIND_DOWN_S)

    async def _wait_for_leaving(self, session_id: str) -> None:
        """A client that left and returns finds its old turn cancelled, not blocking the session."""
        leaving = self._by_session.get(session_id)
        if leaving is not None and leaving.cancelling and leaving.task is not None:
            await asyncio.wait([leaving.task], timeout=_WIND_DOWN_S)

    async def _drive(self, turn: Turn) -> Outcome:
        request = turn.request
        started = pb.TurnStarted(session_id=request.context.session_id, model=request.model)
        await turn.stream.put(started)
        try:
            return await self._loop.run(request, turn.stream.put, self._approver(turn))
        except WireError as error:
            return failures.from_wire_error(error)
        except SessionNotFound:
            return failures.forgotten()

    def _ended(self, turn: Turn, task: asyncio.Task[Outcome]) -> None:
        """Clean up after a turn, however it ended, even before its first step."""
        context = turn.request.context
        self._in_use.release(context.session_id)
        self._by_session.pop(context.session_id, None)
        self._by_id.pop(context.turn_id, None)
        outcome: Outcome
        if task.cancelled():
            outcome = failures.failed(Code.CANCELLED, "the turn was cancelled")
        elif (error := task.exception()) is not None:
            log.error("turn failed unexpectedly", exc_info=error)
            outcome = failures.failed(Code.INTERNAL, "internal error", "runner logs")
        else:
            outcome = task.result()
        turn.stream.finish(outcome)
        log.info(
            "turn ended",
            extra={
                "session": context.session_id,
                "turn": context.turn_id,
                "duration_ms": round((time.monotonic() - turn.began) * 1000),
                "outcome": getattr(outcome, "code", _FIELD_OF[type(outcome)]),
            },
        )

    def _approver(self, turn: Turn) -> Approve:
        async def approve(_: ToolContext, tool: Tool, arguments_json: str) -> bool:
            approval_id = f"approval-{uuid.uuid4()}"
            waiting = asyncio.get_running_loop().create_future()
            self._approvals[approval_id] = waiting
            try:
                await turn.stream.put(
                    pb.ApprovalRequested(
                        approval_id=approval_id, tool=tool.name, arguments_json=arguments_json
                    )
                )
                return bool(await waiting)
            finally:
                del self._approvals[approval_id]

        return approve
