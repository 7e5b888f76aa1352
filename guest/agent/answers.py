"""Reads what a model answers: its thinking apart, calls that it wrote as text, and nothing at all.

A call in text is run like any other, except where it may be somebody else's: not if its words stand
in what was read, and only after a person's yes where something was read and it changes something
(docs/design/2026-11-27-calls-written-as-text.md).
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestContext

from guest.agent.call_origin import Words
from guest.agent.calls import checked
from guest.agent.deferred import FIND_TOOLS
from guest.agent.history import text_of
from guest.agent.models.errors import EmptyAnswer
from guest.agent.prompt import window
from guest.agent.reading import Reading, thinking_apart
from guest.agent.recorder import Run
from guest.agent.requests import RequestHooks
from guest.agent.text_calls import NOT_RUN, WRITTEN_AS_TEXT, TextCall, parse
from guest.agent.turn import READ_BY
from guest.tools.arguments import SchemaArguments
from guest.tools.base import Safety, Tool
from guest.tools.pipeline import ToolPipeline

_REAL: Final = "this model makes its calls properly otherwise; ask again"
_READ: Final = (
    "it stands in what was read, and not in your words; say in your own words what is to be done"
)
_NOBODY: Final = "something else was read before, and nobody is here to allow it"
_DENIED: Final = "something else was read before, and it was not allowed"
_ASKED: Final = (
    "the model wrote a call of {tool} as text, after it had read what you have not said; it runs "
    "only if you allow it"
)


class ReadAnswers(RequestHooks):
    """For the requests of one turn to a model.

    Args:
        pipeline: The agent's own tools, and those of servers.
        rules: What of the instructions is the runtime's.
        opening: The labels of models whose templates begin with thinking; gets what is found out.
    """

    def __init__(
        self, run: Run, pipeline: ToolPipeline, rules: str, label: str, opening: set[str]
    ) -> None:
        self._run = run
        self._tools = {tool.name: tool for tool in pipeline.tools()}
        self._rules = rules
        self._label = label
        self._opening = opening
        self._offered: frozenset[str] = frozenset()
        self._blank = 0

    def begin(self) -> Reading:
        return Reading(self._offered, opened=self._label in self._opening)

    async def prepare(self, request: ModelRequestContext) -> None:
        sent = request.model_request_parameters.function_tools
        offered = {*(tool.name for tool in sent), *self._tools}  # deferred ones may be called, too
        asked = self._run.request.text.casefold()
        named = any("_" in name and name.casefold() in asked for name in offered)
        wants_text = self._run.form or "json" in asked or named
        self._offered = frozenset(() if wants_text else offered)

    async def read(self, request: ModelRequestContext, response: ModelResponse) -> ModelResponse:
        read = await self._read(response, request)
        return checked(read, request.messages, self._run.refusals)

    async def _read(self, response: ModelResponse, request: ModelRequestContext) -> ModelResponse:
        response = replace(response, parts=self._split(response.parts))
        others = [part for part in response.parts if not isinstance(part, TextPart)]
        text = text_of(response)
        if response.finish_reason in ("length", "content_filter"):
            return response
        if calls := parse(text, self._offered):
            if response.tool_calls:
                return replace(response, parts=others)
            if why := await self._why_not(calls, request, response):
                tools = " and ".join(dict.fromkeys(call.name for call in calls))
                return replace(
                    response, parts=[*others, TextPart(NOT_RUN.format(tools=tools, why=why))]
                )
            return replace(response, parts=[*others, *map(_part, calls)])
        if response.tool_calls or text.strip():
            self._blank = 0
            return response
        self._blank += 1
        if self._blank > 1:
            raise EmptyAnswer
        return replace(response, parts=others)

    def _split(self, parts: Sequence[ModelResponsePart]) -> Sequence[ModelResponsePart]:
        """The parts, with the thinking that stands in their texts before them."""
        text = "".join(part.content for part in parts if isinstance(part, TextPart))
        known = self._label in self._opening
        answer, thought, unopened = thinking_apart(text, opened=known)
        if unopened:
            self._opening.add(self._label)
        if answer == text:
            return parts
        others = [part for part in parts if not isinstance(part, TextPart)]
        return [ThinkingPart(thought), *([TextPart(answer)] if answer else ()), *others]

    async def _why_not(
        self, calls: Sequence[TextCall], context: ModelRequestContext, response: ModelResponse
    ) -> str:
        """Why calls written as text must not run; empty if they may."""
        if any(_is_real(part, each, response) for each in context.messages for part in each.parts):
            return _REAL
        words = Words(self._others(context), self._run.said, self._run.vouched)
        for name, arguments in calls:
            tool, harmless = self._tools.get(name), self._is_harmless(name)
            free = () if harmless else set(arguments) - _references(tool)
            if (arguments or not harmless) and words.hold(name, arguments, free):
                return _READ
        for name, arguments in calls:
            if self._is_harmless(name):
                continue
            if self._run.has_read or words.touch(arguments):
                tool = self._tools.get(name)
                if tool is None or not self._run.has_person:
                    return _NOBODY
                await self._run.notice(_ASKED.format(tool=name))
                if not await self._run.allows(tool, arguments):
                    return _DENIED
        return ""

    def _is_harmless(self, name: str) -> bool:
        """Whether a tool is the agent's own, and changes nothing."""
        tool = self._tools.get(name)
        return name == FIND_TOOLS or (
            tool is not None
            and tool.safety is Safety.READ_ONLY
            and not issubclass(tool.arguments, SchemaArguments)
        )

    def _others(self, context: ModelRequestContext) -> Iterator[str]:
        """The texts of a request that are not the user's own words, nor the runtime's rules."""
        parameters = context.model_request_parameters
        for told in parameters.instruction_parts or ():
            yield told.content.replace(self._rules, "")
        for tool in parameters.function_tools:
            known = self._tools.get(tool.name)
            foreign = known is None or issubclass(known.arguments, SchemaArguments)
            if foreign and tool.name != FIND_TOOLS:
                yield f"{tool.description} {tool.parameters_json_schema}"
        for part in (part for each in context.messages for part in each.parts):
            if isinstance(part, ToolCallPart | ThinkingPart):
                continue
            if isinstance(part, TextPart) and part.provider_details == WRITTEN_AS_TEXT:
                continue  # a call that was made, told plainly
            if isinstance(part, ToolReturnPart):
                yield part.model_response_str()
                continue
            text = window.text_of(part).replace(READ_BY, "")  # ours; the path behind it is not
            for said in self._run.said:
                if said and text.endswith(said):
                    text = text.removesuffix(said)
                    break
            yield text


def _part(call: TextCall) -> ToolCallPart[Any]:
    made = ToolCallPart(call.name, call.arguments, f"text-{uuid.uuid4().hex}")
    return replace(made, provider_details=WRITTEN_AS_TEXT)


def _is_real(part: Any, message: ModelMessage, response: ModelResponse) -> bool:
    """Whether `part` is a call that the model of `response` has made properly."""
    return (
        isinstance(part, ToolCallPart | NativeToolCallPart)
        and isinstance(message, ModelResponse)
        and message.model_name == response.model_name
        and part.provider_details != WRITTEN_AS_TEXT
    )


def _references(tool: Tool | None) -> set[str]:
    """The arguments of a tool that name what is there already."""
    if tool is None:
        return set()
    return {path.field for path in tool.paths} | set(tool.stored.sought if tool.stored else ())
