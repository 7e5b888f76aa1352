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


async def last_turns(store: Store, user_id: str, session_id: str, turns: int) -> list[Event]:
    """The events of the last `turns` whole turns, oldest first.

    A turn of more than `_LAST_WINDOW` events does not fit and is left out.
    """
    window = _FIRST_WINDOW
    while True:
        events = await store.history(user_id, session_id, window)
        whole = _whole_turns(events, complete=len(events) < window)
        if len(events) < window or len(whole) > turns or window >= _LAST_WINDOW:
            return list(itertools.chain.from_iterable(whole[-turns:] if turns else []))
        window *= 4


def _whole_turns(events: Sequence[Event], *, complete: bool) -> list[list[Event]]:
    """`events` by turn; where the window may have cut into the first, without it."""
    turns = [list(group) for _, group in itertools.groupby(events, key=lambda e: e.turn_id)]
    return turns if complete else turns[1:]


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


def with_text(response: ModelResponse, text: str) -> ModelResponse:
    """`response` with `text` said after it."""
    return replace(response, parts=[*response.parts, TextPart(text)])


def tool_message(call_id: str, tool: str, text: str, *, is_error: bool) -> ModelRequest:
    outcome: Literal["failed", "success"] = "failed" if is_error else "success"
    return ModelRequest(parts=[ToolReturnPart(tool, text, call_id, outcome=outcome)])


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
