"""Estimates the size of a request, and divides the window among its parts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequestPart,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition
from wire.settings import AgentSettings

from guest.memory.search.tokens import tokens_of

_PER_MESSAGE: Final = 4
_PER_TOOL: Final = 8
_IMAGE_TOKENS: Final = 1_600
"""Of one image, about as many as providers count for a large one."""
_SUMMARY_TOKENS: Final = 1000
_SHARE_OF_NOTE: Final = 8
"""A handoff, scratchpad or summary takes at most one part in this many."""


@dataclass(frozen=True)
class Window:
    """The limits of a request, in estimated tokens.

    `size` is the maximum. If the turns shown take more than `trigger` of what rules and tools leave
    of it, the oldest are summarised until the rest takes at most `target`.
    """

    size: int
    trigger: int
    target: int

    @classmethod
    def of(cls, settings: AgentSettings, size: int = 0, fixed: int = 0) -> "Window":
        """The window of `size`, or as configured, with rules and tools of `fixed` tokens."""
        size = size or settings.context_window
        left = max(0, size - fixed)
        return cls(size, int(left * settings.summary_trigger), int(left * settings.summary_target))

    @property
    def note(self) -> int:
        """The maximum for one of the fixed notes."""
        return self.size // _SHARE_OF_NOTE

    @property
    def summary(self) -> int:
        """The maximum for the summary of earlier turns."""
        return min(_SUMMARY_TOKENS, self.note)


def of_messages(messages: Iterable[ModelMessage]) -> int:
    """The size of messages, without the copies of the instructions in some of them."""
    return sum(_PER_MESSAGE + sum(map(of_part, message.parts)) for message in messages)


def of_part(part: ModelRequestPart | ModelResponsePart) -> int:
    images = sum(isinstance(each, BinaryContent) for each in _items(part))
    return _PER_MESSAGE + tokens_of(text_of(part)) + images * _IMAGE_TOKENS


def _items(part: ModelRequestPart | ModelResponsePart) -> Sequence[object]:
    """The texts and files of a user's part, or the files of a result, that has both."""
    if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
        return part.content
    return part.files if isinstance(part, ToolReturnPart) else ()


def of_tools(tools: Sequence[ToolDefinition]) -> int:
    return sum(
        _PER_TOOL
        + tokens_of(f"{tool.name}{tool.description}{json.dumps(tool.parameters_json_schema)}")
        for tool in tools
    )


def text_of(part: ModelRequestPart | ModelResponsePart) -> str:
    """Everything of a part that is sent to a provider, as one text."""
    if isinstance(part, TextPart):
        return part.content
    if isinstance(part, ThinkingPart):
        return f"{part.content}{part.signature or ''}"
    if part.part_kind == "builtin-tool-return":
        return str(part.content)[::2]  # encrypted: a model reads less than half of it
    if isinstance(part, ToolReturnPart):
        return f"{part.tool_name}{part.tool_call_id}{part.model_response_str()}"
    if isinstance(part, ToolCallPart):
        call = cast("ToolCallPart[Any]", part)
        args = call.args if isinstance(call.args, str) else json.dumps(call.args, default=str)
        return f"{call.tool_name}{call.tool_call_id}{args}"
    if isinstance(part, UserPromptPart) and isinstance(part.content, str):
        return part.content
    if items := _items(part):
        return "".join(each for each in items if isinstance(each, str))
    return repr(part)  # rare; an overestimate
