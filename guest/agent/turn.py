"""One turn as the loop and its surroundings see it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wire.v1 import gateway_pb2

from guest.tools.base import Approve, Tool, ToolContext, ToolResult

Progress = (
    gateway_pb2.TurnStarted
    | gateway_pb2.TextDelta
    | gateway_pb2.ToolCallStarted
    | gateway_pb2.ToolCallFinished
    | gateway_pb2.ApprovalRequested
    | gateway_pb2.MemoryReceipt
)
"""What may happen within a turn; the gateway numbers these into `TurnEvent`s."""

Outcome = gateway_pb2.TurnCompleted | gateway_pb2.TurnFailed
"""How a turn ends: exactly one, after all progress."""

Emit = Callable[[Progress], Awaitable[None]]
"""Hands progress to whoever watches; waits while they are slow (backpressure)."""


class Pipeline(Protocol):
    """The part of `guest.tools.pipeline.ToolPipeline` that turns need."""

    def tools(self) -> Sequence[Tool]: ...

    async def call(
        self,
        ctx: ToolContext,
        name: str,
        arguments: str | Mapping[str, object],
        approve: Approve | None = None,
    ) -> ToolResult: ...


@dataclass(frozen=True)
class TurnRequest:
    """Who says what, and where."""

    context: ToolContext
    text: str
