"""A running turn's events on their way to one reader: bounded, numbered, ended by the outcome."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from wire.v1 import gateway_pb2

from guest.agent.turn import Outcome, Progress

CAPACITY: Final = 256

_FIELD_OF = {
    gateway_pb2.TurnStarted: "started",
    gateway_pb2.TextDelta: "text",
    gateway_pb2.ToolCallStarted: "tool_started",
    gateway_pb2.ToolCallFinished: "tool_finished",
    gateway_pb2.ApprovalRequested: "approval",
    gateway_pb2.TurnCompleted: "completed",
    gateway_pb2.TurnFailed: "failed",
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

    async def events(self) -> AsyncIterator[gateway_pb2.TurnEvent]:
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

    def _numbered(self, index: int, event: Progress | Outcome) -> gateway_pb2.TurnEvent:
        numbered = gateway_pb2.TurnEvent(turn_id=self._turn_id, index=index)
        getattr(numbered, _FIELD_OF[type(event)]).CopyFrom(event)
        return numbered
