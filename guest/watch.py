"""What the runner learns while the guest works: steps of turns and calls, with how long they took,
for export; and tool calls, which it records where no guest can reach them.

What a step tells is what it was and how it went: names, ids, counts. Nothing that a person or a
model wrote belongs into it; the runner drops every attribute that it does not know.
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from wire import trace
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb
from wire.v1.bootstrap_pb2 import Link

from guest.errors import GuestError, ToolError

SPANS_MAX: Final = 2048
BATCH: Final = 256
WAIT_S: Final = 2.0
"""How long a call waits until the runner has recorded it."""
CALLS_MAX: Final = 4096
TOGETHER_S: Final = 0.2
"""How long steps that ended wait for others, to be taken together."""


@dataclass
class Step:
    """A running step. Attributes set before its end are exported."""

    words: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    failed: bool = False


class Spans:
    """Steps that have ended and that the runner has not taken yet; none while nobody wants them.

    Of more than `SPANS_MAX`, the oldest are lost, and counted.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._ended: deque[pb.Span] = deque()
        self._lost = 0
        self.on_ended: Callable[[], None] = lambda: None

    @contextmanager
    def step(self, name: str, **words: str) -> Iterator[Step]:
        """What runs in the body, as a step of the one around it, or of the call that has arrived.
        Steps within it are told to the same place."""
        if not self.wanted:
            yield Step()
            return
        step, parent = Step(words), trace.here.get()
        place = trace.SpanContext.below(parent)
        here, collecting = trace.here.set(place), _collecting.set(self)
        started, began = time.time_ns(), time.perf_counter_ns()
        try:
            yield step
        except asyncio.CancelledError:
            step.words.setdefault("outcome", "cancelled")
            raise
        except BaseException:
            step.failed = True
            raise
        finally:
            trace.here.reset(here)
            _collecting.reset(collecting)
            self._add(
                pb.Span(
                    trace_id=place.trace_id,
                    span_id=place.span_id,
                    parent_span_id=parent.span_id if parent is not None else b"",
                    name=name,
                    start_unix_nano=started,
                    end_unix_nano=started + time.perf_counter_ns() - began,
                    words=step.words,
                    counts={key: max(0, count) for key, count in step.counts.items()},
                    failed=step.failed,
                )
            )

    def take(self) -> pb.SpanBatch | None:
        """Some of them, oldest first; None if there are none."""
        if not (self._ended or self._lost):
            return None
        lost, self._lost = self._lost, 0
        count = min(BATCH, len(self._ended))
        return pb.SpanBatch(spans=[self._ended.popleft() for _ in range(count)], lost=lost)

    def _add(self, span: pb.Span) -> None:
        if len(self._ended) >= SPANS_MAX:
            self._ended.popleft()
            self._lost += 1
        self._ended.append(span)
        self.on_ended()


_collecting: ContextVar[Spans | None] = ContextVar("spans", default=None)


@contextmanager
def step(name: str, otherwise: Spans | None = None, **words: str) -> Iterator[Step]:
    """A step within one that `Spans.step` has begun; outside of any it is told to `otherwise`."""
    spans = _collecting.get() or otherwise
    if spans is None:
        yield Step()
        return
    with spans.step(name, **words) as made:
        yield made


class CallReporter:
    """The events that the runner has not taken yet.

    With `required`, a call that may change something waits until its beginning is recorded, and is
    refused otherwise. Others wait for nobody: where there is no room for them, they are counted.
    Without it nothing is told: nobody records, because another orchestrator started this guest.
    `spans` are the steps of turns and calls, which the runner takes a few times a second if it
    wants any.
    """

    def __init__(self, *, required: bool) -> None:
        self._required = required
        self._events: deque[pb.CallReport] = deque()
        self._answers: dict[str, asyncio.Future[pb.CallReportReply]] = {}
        self._readable = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._lost = 0
        self._closed = False
        self._due: asyncio.TimerHandle | None = None
        self.spans = Spans()
        self.spans.on_ended = self._soon

    def recording(self, **begun: Any) -> "Recording":
        """The record of one call, which is not begun yet, by the fields of `CallBegun`."""
        return Recording(self, pb.CallBegun(**begun))

    async def begin(self, begun: pb.CallBegun) -> bool:
        """Tell that a call is about to run; false if nobody will know of it.

        Raises `GuestError` (UNAVAILABLE) if it must be recorded and is not.
        """
        if not (self._required and begun.must_be_recorded):
            return self.tell(begun)
        event = pb.CallReport(begun=begun)
        answer = self._answers[begun.call_id] = asyncio.get_running_loop().create_future()
        self._put(event, always=True)
        try:
            reply = await asyncio.wait_for(answer, WAIT_S)
        except (TimeoutError, asyncio.CancelledError) as error:
            if event in self._events:
                self._events.remove(event)
            else:
                self.end(pb.CallEnded(call_id=begun.call_id, outcome="cancelled"))
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _unrecorded("the runner does not answer", "", "runner status") from None
        finally:
            del self._answers[begun.call_id]
        if reply.refused:
            raise _unrecorded(reply.refused, reply.details, reply.resolution)
        return True

    async def tool_guest(self, server: str) -> Link:
        """Have the guest of an MCP server run; returns where it is. Raises `GuestError`."""
        if not self._required:
            raise GuestError(Code.UNAVAILABLE, "no runner is there to start its guest")
        wanted = pb.ToolGuestWanted(call_id=f"guest-{uuid.uuid4()}", server=server)
        reply = await self._answered(wanted.call_id, pb.CallReport(guest=wanted))
        if reply.refused:
            raise GuestError(
                Code.UNAVAILABLE, reply.refused, details=reply.details, resolution=reply.resolution
            )
        return reply.guest

    def leave_tool_guest(self, server: str) -> None:
        """Tell that it is needed no more."""
        self._put(pb.CallReport(guest=pb.ToolGuestWanted(server=server)), always=True)

    async def propose(self, proposal: pb.EgressProposal) -> str:
        """Have the runner ask a person to open hosts; what came of it. Raises `ToolError`."""
        proposal.call_id = f"proposal-{uuid.uuid4()}"
        reply = await self._answered(proposal.call_id, pb.CallReport(proposal=proposal))
        if reply.refused:
            raise ToolError(reply.refused)
        return reply.told

    async def _answered(self, call_id: str, event: pb.CallReport) -> pb.CallReportReply:
        """What the runner answers to an event, however long that takes."""
        answer: asyncio.Future[pb.CallReportReply] = asyncio.Future()
        self._answers[call_id] = answer
        self._put(event, always=True)
        try:
            return await answer
        finally:
            del self._answers[call_id]

    def tell(self, begun: pb.CallBegun) -> bool:
        """Tell of a call without waiting; false if nobody will know of it."""
        return self._required and self._put(pb.CallReport(begun=begun))

    def end(self, ended: pb.CallEnded) -> None:
        self._put(pb.CallReport(ended=ended), always=True)

    async def stream(
        self, replies: AsyncIterator[pb.CallReportReply]
    ) -> AsyncIterator[pb.CallReport]:
        """The events for a runner that answers with `replies`, until it leaves, another stream
        takes this one's place, or this is closed."""
        if self._reader is not None:
            self._reader.cancel()
        reader = self._reader = asyncio.create_task(self._read(replies))
        reader.add_done_callback(lambda _: self._readable.set())
        try:
            while not reader.done():
                while self._events and not reader.done():
                    yield self._events.popleft()
                self._readable.clear()
                if self._lost:
                    lost, self._lost = self._lost, 0
                    yield pb.CallReport(lost_calls=lost)
                while (batch := self.spans.take()) is not None:
                    yield pb.CallReport(spans=batch)
                if self._closed and not self._events:
                    return
                if not (self._events or reader.done() or self._closed):
                    await self._readable.wait()
        finally:
            reader.cancel()
            if self._reader is reader:
                self.spans.wanted = False

    def close(self) -> None:
        """End the stream when all events are taken."""
        self._closed = True
        self._readable.set()

    async def _read(self, replies: AsyncIterator[pb.CallReportReply]) -> None:
        async for reply in replies:
            if not reply.call_id:
                self.spans.wanted = reply.wants_spans
            answer = self._answers.get(reply.call_id)
            if answer is not None and not answer.done():
                answer.set_result(reply)

    def _soon(self) -> None:
        """Let steps that ended be taken, some together."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(TOGETHER_S, self._now)

    def _now(self) -> None:
        self._due = None
        self._readable.set()

    def _put(self, event: pb.CallReport, *, always: bool = False) -> bool:
        if len(self._events) >= CALLS_MAX and not always:
            self._lost += 1
            return False
        self._events.append(event)
        self._readable.set()
        return True


class Recording:
    """The record of one call: begun once, ended once. `outcome` is empty until it has ended."""

    def __init__(self, witness: CallReporter, begun: pb.CallBegun) -> None:
        self._witness = witness
        self._begun = begun
        self._begun.call_id = f"call-{uuid.uuid4()}"
        self._told: bool | None = None
        self.outcome = ""
        self.asked = False  # whether a person was asked before it ran
        self.granted = ""  # what a person has allowed before, if that allowed it
        self.receipt = ""  # what the run of a schedule took

    async def begin(self, about: str) -> None:
        """Tell that the call is about to run. Raises like `CallReporter.begin`."""
        self._begun.about = about
        self._told = False
        self._told = await self._witness.begin(self._begun)

    def end(self, outcome: str, duration_ms: int, note_ids: Sequence[str] = ()) -> None:
        """Tell how it has ended; also of one that did not come so far as to begin."""
        self.outcome = outcome
        if self._told is None:
            self._begun.must_be_recorded = False
            self._told = self._witness.tell(self._begun)
        if self._told:
            self._witness.end(
                pb.CallEnded(
                    call_id=self._begun.call_id,
                    outcome=outcome,
                    duration_ms=duration_ms,
                    note_ids=note_ids,
                    asked=self.asked,
                    granted=self.granted,
                    receipt=self.receipt,
                )
            )


def _unrecorded(why: str, details: str, resolution: str) -> GuestError:
    return GuestError(
        Code.UNAVAILABLE,
        f"the call is not run, because it cannot be recorded: {why}",
        details=details,
        resolution=resolution,
    )
