"""Leaves out what a provider refuses, foreign tools, pictures and the role of tools, so that a turn
goes on without.

A provider refuses a whole request for one tool whose schema it does not take. Most name the tool or
its place in the request. What they name stays left out; if they name none, all foreign tools are
left out for that turn. Which models take pictures is known of few; each provider refuses a picture
in words of its own.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from pydantic_ai import ModelAPIError, RetryModelRequest
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAuthenticationError,
    ModelNotFoundError,
    ModelRequestRejectedError,
)
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from guest.agent.models.errors import is_too_long
from guest.agent.prompt.recall import marked
from guest.agent.receipts.ledger import parsed
from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from guest.agent.repetition import AGAIN
from guest.agent.requests import RequestHooks
from guest.agent.text_calls import WRITTEN_AS_TEXT
from guest.memory.search.context_block import marked_local
from guest.tools.arguments import SchemaArguments
from guest.tools.base import Arguments, Tool

log = logging.getLogger(__name__)

_OTHER_CAUSES: Final = (ModelAuthenticationError, ModelNotFoundError)
_PLACE: Final = re.compile(r"tools[.\[](\d+)(?:\]?\.function_declarations\[(\d+))?", re.ASCII)
_ATTEMPTS_MAX: Final = 5
_PICTURE_WORDS: Final = re.compile(
    r"image|vision|multi-?modal|mmproj|content (type|must be a string)", re.I
)
_ROLE_WORDS: Final = re.compile(r"\broles?\b.*\b(alternate|supported|user|tool)|tool.*\brole", re.I)
_STATUSES: Final = (400, 404, 415, 422, 500)
_NEXT: Final = "Answer the user with this result, or call the next tool if more is asked for."
_NOT_SHOWN: Final = "(A picture is not shown to you: this model takes none. Say so.)"

Refused = set[tuple[str, type[Arguments]]]
"""By a model's label the arguments of tools that its provider has refused."""


class LeaveOutRefused(RequestHooks):
    """For the requests of one turn to the model `label`.

    Args:
        refused: What was refused before; gets what is refused now.
    """

    def __init__(
        self,
        label: str,
        tools: Iterable[Tool],
        refused: Refused,
        notice: Callable[[str], Awaitable[None]],
    ) -> None:
        self._label = label
        self._foreign = {
            tool.name: tool.arguments
            for tool in tools
            if issubclass(tool.arguments, SchemaArguments)
        }
        self._refused = refused
        self._notice = notice
        self._out = {
            name for name, arguments in self._foreign.items() if (label, arguments) in refused
        }
        self._sent: list[str] = []
        self._untold = ""

    async def prepare(self, request: ModelRequestContext) -> None:
        parameters = request.model_request_parameters
        offered = [each for each in parameters.function_tools if each.name not in self._out]
        self._sent = [each.name for each in offered]
        request.model_request_parameters = replace(parameters, function_tools=offered)

    async def mend(self, request: ModelRequestContext, error: Exception) -> None:
        foreign = [name for name in self._sent if name in self._foreign]
        said = _refusal(error)
        if not foreign or not said:
            raise error
        named = [name for name in foreign if name in _named(said, self._sent)]
        if named and request.attempt < _ATTEMPTS_MAX:
            self._refused |= {(self._label, self._foreign[name]) for name in named}
            await self._tell(f"{self._label} refuses {', '.join(named)}, which is left out")
        else:
            named = foreign
            self._untold = (
                f"{self._label} refuses a tool and does not say which; those of MCP servers are "
                "left out in this turn"
            )
        self._out |= set(named)
        raise RetryModelRequest from error

    async def read(self, _: ModelRequestContext, response: ModelResponse) -> ModelResponse:
        if self._untold:
            await self._tell(self._untold)
            self._untold = ""
        return response

    async def _tell(self, text: str) -> None:
        log.warning("%s", text)
        await self._notice(text)


def _refusal(error: Exception) -> str:
    """What a provider has said that refuses the request itself; empty if none does."""
    for each in () if is_too_long(error) else _each(error):
        if isinstance(each, ModelRequestRejectedError) and not isinstance(each, _OTHER_CAUSES):
            return str(each)
    return ""


def _each(error: Exception) -> Sequence[Exception]:
    """The errors of all models of a chain, or the one."""
    return error.exceptions if isinstance(error, FallbackExceptionGroup) else (error,)


def _named(said: str, sent: list[str]) -> set[str]:
    """The tools that an error names, or whose places in the request it names."""
    words = set(re.findall(r"[\w-]+", said, re.ASCII))
    places = (max(int(number or 0) for number in found) for found in _PLACE.findall(said))
    return {name for name in sent if name in words} | {
        sent[place] for place in places if place < len(sent)
    }


@dataclass
class _Rewriting(RequestHooks):
    """Sends the model `label` rewritten messages, once its provider has refused them as they are.

    Args:
        known: The labels of models that refuse such messages.
        rewritten: Makes a message that they take.
        words: What a provider says that refuses one.
        learn: Adds the label to `known`.
    """

    label: str
    known: Container[str]
    rewritten: Callable[[ModelMessage], ModelMessage]
    words: re.Pattern[str]
    learn: Callable[[], Awaitable[None]]

    async def prepare(self, request: ModelRequestContext) -> None:
        if self.label in self.known:
            request.messages = [*map(self.rewritten, request.messages)]

    async def mend(self, request: ModelRequestContext, error: Exception) -> None:
        changes = any(self.rewritten(each) != each for each in request.messages)
        if self.label in self.known or not changes or not any(map(self._is_refusal, _each(error))):
            raise error
        await self.learn()
        raise RetryModelRequest from error

    def _is_refusal(self, error: Exception) -> bool:
        is_answer = isinstance(error, ModelAPIError)
        refused = is_answer and getattr(error, "status_code", 400) in _STATUSES
        return refused and bool(self.words.search(str(error)))


class LeaveOutPictures(_Rewriting):
    """For the requests of one turn to the model `label`. When its provider refuses a picture,
    `refused` gets why none is shown, and it is told."""

    def __init__(
        self, label: str, refused: dict[str, str], tell: Callable[[str], Awaitable[None]]
    ) -> None:
        async def learn() -> None:
            refused[label] = f"{label} takes no pictures"
            await tell(refused[label])

        super().__init__(label, refused, _without, _PICTURE_WORDS, learn)


class TellPlainly(_Rewriting):
    """For the requests of one turn to the model `label`. When a server's chat template has no role
    for tools, calls and results are told as texts of the other two; `plain` gets the label. So they
    are to a model that writes its calls as text: it goes on in the form that it finds, and makes no
    call after one that it has not written so."""

    def __init__(self, label: str, plain: set[str]) -> None:
        async def learn() -> None:
            plain.add(label)

        super().__init__(label, plain, _plainly, _ROLE_WORDS, learn)

    async def prepare(self, request: ModelRequestContext) -> None:
        parts = (part for message in request.messages for part in message.parts)
        if any(getattr(part, "provider_details", None) == WRITTEN_AS_TEXT for part in parts):
            await self.learn()
        await super().prepare(request)


def _brought(part: "ToolReturnPart[Any]") -> tuple[str, str]:
    """What a call has brought, and what comes next."""
    text, again, _ = part.model_response_str().partition(f"\nNote: {AGAIN}")
    return text, AGAIN if again else _NEXT


def _plainly(message: ModelMessage) -> ModelMessage:
    parts = [
        TextPart(
            json.dumps({"name": part.tool_name, "arguments": parsed(part.args)}),
            provider_details=WRITTEN_AS_TEXT,
        )
        if isinstance(part, ToolCallPart)
        else UserPromptPart(
            f"{FROM_THE_RUNTIME} {part.tool_name} gives:\n"
            f"{marked_local(marked(_brought(part)[0]), part.metadata or ())}\n{_brought(part)[1]}"
        )
        if isinstance(part, ToolReturnPart)
        else part
        for part in message.parts
    ]
    made: ModelMessage = replace(cast(Any, message), parts=parts)
    return made


def _without(message: ModelMessage) -> ModelMessage:
    """`message` without pictures."""
    if not isinstance(message, ModelRequest):
        return message
    parts: list[Any] = [
        replace(
            part, content=[_NOT_SHOWN if isinstance(e, BinaryContent) else e for e in part.content]
        )
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
        else replace(cast(Any, part), content=f"{part.model_response_str()}\nNote: {_NOT_SHOWN}")
        if isinstance(part, ToolReturnPart) and part.files
        else part
        for part in message.parts
    ]
    return replace(message, parts=parts)
