"""The stream to the runner, which records what is asked of egress and asks people."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Final

from wire.v1 import egress_pb2 as pb

ALLOWED: Final = "allowed"
REFUSED: Final = "refused"
"""Reports of decisions to the runner."""
WAITING_MAX: Final = 4096
"""How many requests may wait for the runner at once."""
OPEN_WAIT_S: Final = 3.0
"""How long a request waits for the runner to listen."""
WAIT_S: Final = 15.0
"""How long one waits until it is written down."""


class NotReady(Exception):  # noqa: N818 - it is a state of this guest, and passes
    """Nothing may go out now. The message says why, for whoever wanted it."""


_LOST: Final = "the runner, which records what goes out, was lost; try again in a moment"
_UNHEARD: Final = "nobody records what goes out; runner status says how egress is"


class Watch:
    """The runner's ear. Events wait for it in order; nothing goes out while it does not listen.

    One stream counts at a time, the latest. When it ends, whoever waited for its reply gets
    `NotReady`. The end of a request waits for the next stream, because its beginning is recorded.
    """

    def __init__(self) -> None:
        self._events: deque[pb.EgressEvent] = deque()
        self._recorded: dict[int, asyncio.Future[None]] = {}
        self._answers: dict[int, asyncio.Future[pb.EgressAnswer]] = {}
        self._readable = asyncio.Event()
        self._opened = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the runner listens."""
        return self._reader is not None and not self._reader.done()

    def tell(self, event: pb.EgressEvent) -> None:
        """Tell what happened, without waiting."""
        self._events.append(event)
        self._readable.set()

    async def record(self, begun: pb.EgressBegun) -> None:
        """Tell what begins, and return when it is written down.

        Raises `NotReady` if it is not. A beginning that was told in vain is told to have ended.
        """
        await self.ready()
        written = self._recorded[begun.id] = asyncio.get_running_loop().create_future()
        event = pb.EgressEvent(begun=begun)
        self.tell(event)
        try:
            async with asyncio.timeout(WAIT_S):
                await written
        except (NotReady, TimeoutError, asyncio.CancelledError) as error:
            if any(each is event for each in self._events):
                self._events = deque(each for each in self._events if each is not event)
            elif begun.decision == ALLOWED:
                ended = pb.EgressEnded(id=begun.id, outcome="cut", reason="it did not go out")
                self.tell(pb.EgressEvent(ended=ended))
            if isinstance(error, TimeoutError):
                raise NotReady("the runner does not record what goes out: runner logs") from None
            raise
        finally:
            del self._recorded[begun.id]

    def ask(self, question: pb.EgressQuestion) -> "asyncio.Future[pb.EgressAnswer]":
        """Ask a person. The future fails with `NotReady` when the runner is lost; to cancel it
        withdraws the question. Raises `NotReady` where nobody listens."""
        if not self.is_open:
            raise NotReady(_UNHEARD)
        answer: asyncio.Future[pb.EgressAnswer] = asyncio.get_running_loop().create_future()
        self._answers[question.id] = answer
        answer.add_done_callback(lambda _: self._answered(question.id, answer))
        self.tell(pb.EgressEvent(question=question))
        return answer

    async def stream(
        self, replies: AsyncIterator[pb.EgressReply]
    ) -> AsyncGenerator[pb.EgressEvent]:
        """The events for a runner that answers with `replies`, until it leaves or another stream
        takes this one's place."""
        await self._take_over()
        reader = self._reader = asyncio.create_task(self._read(replies))
        reader.add_done_callback(lambda _: self._readable.set())
        self._opened.set()
        try:
            while not reader.done():
                while self._events and not reader.done():
                    yield self._events.popleft()
                self._readable.clear()
                if not (self._events or reader.done()):
                    await self._readable.wait()
        finally:
            reader.cancel()
            if self._reader is reader:
                self._lost()

    async def ready(self) -> None:
        """Wait a moment for a stream, as at the start or when one takes another's place.

        Raises `NotReady` if none comes.
        """
        try:
            async with asyncio.timeout(OPEN_WAIT_S):
                while not self.is_open:
                    self._opened.clear()
                    await self._opened.wait()
        except TimeoutError:
            raise NotReady(_UNHEARD) from None
        if len(self._recorded) + len(self._answers) >= WAITING_MAX:
            raise NotReady("too many requests wait to be recorded; try again in a moment")

    async def _take_over(self) -> None:
        """End an earlier stream."""
        if (earlier := self._reader) is not None:
            earlier.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({earlier})
            self._lost()

    def _lost(self) -> None:
        """Nobody will answer any more. What has not begun will not begin."""
        self._reader = None
        self._events = deque(
            each
            for each in self._events
            if each.WhichOneof("event") in ("begun", "ended", "renewed")
        )
        waiting: list[asyncio.Future[None] | asyncio.Future[pb.EgressAnswer]] = [
            *self._recorded.values(),
            *self._answers.values(),
        ]
        for each in waiting:
            if not each.done():
                each.set_exception(NotReady(_LOST))

    async def _read(self, replies: AsyncIterator[pb.EgressReply]) -> None:
        async for reply in replies:
            match reply.WhichOneof("reply"):
                case "recorded":
                    written = self._recorded.get(reply.recorded)
                    if written is not None and not written.done():
                        written.set_result(None)
                case "unrecorded":
                    written = self._recorded.get(reply.unrecorded.id)
                    if written is not None and not written.done():
                        written.set_exception(NotReady(reply.unrecorded.reason))
                case "answer":
                    answer = self._answers.get(reply.answer.question)
                    if answer is not None and not answer.done():
                        answer.set_result(reply.answer)

    def _answered(self, question: int, answer: "asyncio.Future[pb.EgressAnswer]") -> None:
        del self._answers[question]
        if not answer.cancelled():
            answer.exception()  # whoever waits gets it; nobody may
        elif self.is_open:
            self.tell(pb.EgressEvent(withdrawn=pb.EgressWithdrawn(question=question)))
