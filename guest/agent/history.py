"""Conversation events and the model's messages, into each other.

Every event's payload is one model message as pydantic-ai writes it, so a
session resumes after a restart exactly as the model saw it. What a killed or
cancelled turn left half-done is closed here, on the way back in.
"""

import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, cast

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

from guest.memory.types import Event

log = logging.getLogger(__name__)

_FIRST_WINDOW = 64
_LAST_WINDOW = 4096


class Store(Protocol):
    """The part of `guest.memory.conversation.Conversations` that turns need."""

    async def history(self, user_id: str, session_id: str, limit: int) -> list[Event]: ...

    async def append(
        self, user_id: str, session_id: str, *, turn_id: str, role: str, text: str, payload: str
    ) -> int: ...

    def unstored(self, session_id: str) -> str: ...


async def recent(
    store: Store, user_id: str, session_id: str, turns: int, after: int
) -> list[Event]:
    """The events of whole turns, oldest first: all since the event `after`, and of those
    before it as many as make `turns` turns.

    Of more than `_LAST_WINDOW` events the oldest are left out.
    """
    window = _FIRST_WINDOW
    while True:
        events = await store.history(user_id, session_id, window)
        all_there = len(events) < window
        whole = by_turn(events) if all_there else by_turn(events)[1:]
        reached = bool(whole) and 0 < whole[0][0].sequence <= after + 1
        if all_there or window >= _LAST_WINDOW or (reached and len(whole) >= turns):
            return list(itertools.chain.from_iterable(whole))
        window *= 4


def by_turn(events: Iterable[Event]) -> list[list[Event]]:
    """`events`, which are in order, by turn."""
    return [list(group) for _, group in itertools.groupby(events, key=lambda e: e.turn_id)]


def to_messages(events: Iterable[Event]) -> list[ModelMessage]:
    """The messages of `events`, made valid for any provider.

    A tool call that never got its result is answered as interrupted; a result
    without its call and an unreadable event are dropped.
    """
    messages: list[ModelMessage] = []
    for event in events:
        try:
            messages += ModelMessagesTypeAdapter.validate_json(event.payload)
        except ValidationError:
            log.warning("unreadable conversation event %d is left out", event.sequence)
    return repair_messages(messages)


def user_message(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def assistant_text(text: str) -> ModelResponse:
    """What a model had said when it was stopped."""
    return ModelResponse(parts=[TextPart(text)])


def tool_message(
    call_id: str, tool: str, text: str, *, is_error: bool, material: Sequence[str] = ()
) -> ModelRequest:
    """A call's result; `material` names what it brought that nobody vouched for."""
    outcome: Literal["failed", "success"] = "failed" if is_error else "success"
    metadata = {"material": list(material)} if material else None
    part = ToolReturnPart(tool, text, call_id, outcome=outcome, metadata=metadata)
    return ModelRequest(parts=[part])


def to_payload(message: ModelMessage) -> str:
    """`message` as an event's payload."""
    if isinstance(message, ModelResponse):
        message = replace(message, parts=[_storable_part(part) for part in message.parts])
    return ModelMessagesTypeAdapter.dump_json([message]).decode()


def _storable_part(part: ModelResponsePart) -> ModelResponsePart:
    if isinstance(part, TextPart | ThinkingPart):
        return replace(part, content=storable(part.content))
    if isinstance(part, ToolCallPart):
        call = cast("ToolCallPart[Any]", part)
        args = storable(call.args) if isinstance(call.args, str) else call.args
        return replace(call, tool_name=storable(call.tool_name), args=args)
    return part


def text_of(response: ModelResponse) -> str:
    """What a person reads of `response`; empty where it only calls tools."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def storable(text: str) -> str:
    """`text` without what a database cannot hold: NUL and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
