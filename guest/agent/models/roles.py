"""The roles of messages as every chat template takes them.

A local server renders a conversation with the model's own template. Many templates refuse two
messages of a user in a row, a user's message behind the result of a tool, an answer without text
or with two calls, and a system message that is not the first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from guest.agent.receipts.second_chance import FROM_THE_RUNTIME

NO_ANSWER: Final = "(No answer.)"
"""Stands where a user's message must not follow: behind a message, or a tool's result, that the
model has not answered."""


def alternating(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """The messages with every role but a tool's at most once in a row.

    What stands beside a user's message is in one text with it. A system message becomes a user's
    text that says whose it is.
    """
    made: list[ModelMessage] = []
    for message in _one_call_each(messages):
        last = made[-1] if made else None
        if isinstance(message, ModelResponse):
            answer = _with_text(message)
            if isinstance(last, ModelResponse):
                made[-1] = _with_parts(last, [*last.parts, *answer.parts])
            else:
                made.append(answer)
            continue
        results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        said: list[Any] = [part for part in message.parts if not isinstance(part, ToolReturnPart)]
        if results:
            made.append(_with_parts(message, results))
        if said:
            if results or (isinstance(last, ModelRequest) and _gives_results(last)):
                made.append(ModelResponse(parts=[TextPart(NO_ANSWER)]))
            elif isinstance(last, ModelRequest):
                made.pop()
                said = [*last.parts, *said]
            made.append(_with_parts(message, [_joined(said)]))
    return made


def _one_call_each(messages: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """The messages, with each call right before its result. Calls behind a model's thoughts stay
    together, because some providers demand thoughts before each answer then."""
    apart: dict[str, ToolCallPart] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            thought = any(isinstance(part, ThinkingPart) for part in message.parts)
            apart = {} if thought else {call.tool_call_id: call for call in message.tool_calls[1:]}
            yield _with_parts(message, [part for part in message.parts if not _is_in(apart, part)])
            continue
        parts: list[ModelRequestPart] = []
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and part.tool_call_id in apart:
                if parts:
                    yield _with_parts(message, parts)
                yield ModelResponse(parts=[apart.pop(part.tool_call_id)])
                parts = []
            parts.append(part)
        yield _with_parts(message, parts)


def _is_in(calls: Mapping[str, ToolCallPart], part: Any) -> bool:
    return isinstance(part, ToolCallPart) and calls.get(part.tool_call_id) is part


def _with_parts(message: ModelMessage, parts: Sequence[Any]) -> Any:
    return replace(cast(Any, message), parts=parts)


def _gives_results(request: ModelRequest) -> bool:
    return any(isinstance(part, ToolReturnPart) for part in request.parts)


def _with_text(answer: ModelResponse) -> ModelResponse:
    blank = all(
        isinstance(part, ThinkingPart) or (isinstance(part, TextPart) and not part.content.strip())
        for part in answer.parts
    )
    if not blank:
        return answer
    thoughts = [part for part in answer.parts if isinstance(part, ThinkingPart)]
    return replace(answer, parts=[*thoughts, TextPart(NO_ANSWER)])


def _joined(parts: Sequence[Any]) -> UserPromptPart:
    """One part of a user's message with the texts and pictures of all."""
    items: list[UserContent] = []
    for part in parts:
        content = part.content
        if isinstance(part, SystemPromptPart):
            content = f"{FROM_THE_RUNTIME} {content}"
        for item in [content] if isinstance(content, str) else content:
            if isinstance(item, str) and items and isinstance(items[-1], str):
                items[-1] = f"{items[-1]}\n\n{item}"
            else:
                items.append(item)
    return UserPromptPart(items[0] if len(items) == 1 and isinstance(items[0], str) else items)
