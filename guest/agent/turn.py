"""The types of one turn, shared by the loop and its callers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wire.v1 import gateway_pb2 as pb

from guest.tools.base import Approve, Tool, ToolContext, ToolResult

Progress = (
    pb.TurnStarted
    | pb.TextDelta
    | pb.ToolCallStarted
    | pb.ToolCallFinished
    | pb.ApprovalRequested
    | pb.ApprovalDecided
    | pb.ClientCall
    | pb.MemoryReceipt
    | pb.Notice
)
"""What may happen within a turn; the gateway numbers these into `TurnEvent`s."""

Outcome = pb.TurnCompleted | pb.TurnIncomplete | pb.TurnFailed
"""How a turn ends: exactly one, after all progress."""

Emit = Callable[[Progress], Awaitable[None]]
"""Passes progress to whoever watches; never waits for them."""


Redact = Callable[[str, str], str]
"""Called with a session's id and a text: the text as the model of that session may see it, with
placeholders for secrets."""


class Pipeline(Protocol):
    """The part of `guest.tools.pipeline.ToolPipeline` that turns need."""

    def tools(self) -> Sequence[Tool]: ...

    def forget(self, user_id: str, session_id: str) -> None: ...

    async def call(
        self,
        ctx: ToolContext,
        name: str,
        arguments: str | Mapping[str, object],
        approve: Approve | None = None,
    ) -> ToolResult: ...


@dataclass(frozen=True)
class TurnRequest:
    """One message of a user, its session, and the model that it asks for; empty: the configured
    one. `retry` instead of a text: go on with the last answer, or ask the last question again."""

    context: ToolContext
    text: str
    model: str = ""
    retry: bool = False
