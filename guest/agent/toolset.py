"""Offers the tool pipeline to pydantic-ai.

Definitions come from the pipeline, and every call goes to it with the arguments exactly as the
model wrote them. The pipeline validates, so that a bad argument is answered like any other tool
error and the model can correct it. The client's own tools are offered beside it: the model may call
them, the client runs them, and nobody vouches for what they give back.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_ai import RunContext, ToolFailed, ToolReturn, WebSearchTool
from pydantic_ai.messages import BinaryContent
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from wire.v1 import gateway_pb2 as pb

from guest.agent.deferred import brief, search_tool
from guest.agent.history import storable
from guest.agent.meter import SEARCHES
from guest.agent.recorder import Run
from guest.agent.turn import ClientTool
from guest.memory.models import LOCAL
from guest.tools.arguments import arguments_text, told
from guest.tools.base import Safety, Tool, ToolResult
from guest.tools.files.exchange import HEAD_BYTES, kind_of

ARGUMENTS = "arguments"


class AsWritten:
    """An argument "validator" that passes everything on unchecked."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> dict[str, Any]:  # noqa: A002
        return {ARGUMENTS: input if isinstance(input, str) else input.decode(errors="replace")}

    def validate_python(self, input: Any, **_: Any) -> dict[str, Any]:  # noqa: A002
        return {ARGUMENTS: input}


class _Toolset(AbstractToolset[Run]):
    """Tools whose calls are made with the arguments as the model wrote them."""

    def definitions(self, turn: Run) -> Iterable[ToolDefinition]:
        raise NotImplementedError

    async def run(self, turn: Run, call_id: str, name: str, arguments: Any) -> ToolResult:
        raise NotImplementedError

    async def get_tools(self, ctx: RunContext[Run]) -> dict[str, ToolsetTool[Run]]:
        return {
            each.name: ToolsetTool(
                toolset=self,
                tool_def=each,
                max_retries=ctx.max_retries,
                args_validator=AsWritten(),
            )
            for each in self.definitions(ctx.deps)
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Run],
        tool: ToolsetTool[Run],  # noqa: ARG002 - it is looked up by its name
    ) -> ToolReturn:
        result = await self.run(ctx.deps, ctx.tool_call_id or "", name, tool_args[ARGUMENTS])
        if result.is_error and not result.local:  # a failure bears no mark
            raise ToolFailed(result.text)
        pictures = [
            BinaryContent(each, media_type=kind_of(each[:HEAD_BYTES])) for each in result.pictures
        ]
        return ToolReturn(
            [result.text, *pictures] if pictures else result.text,
            metadata={LOCAL: result.local} if result.local else None,
        )


class PipelineToolset(_Toolset):
    id = "oxydra"

    def definitions(self, turn: Run) -> Iterable[ToolDefinition]:
        tools = turn.pipeline.tools()
        return [*map(definition, tools), *search_tool(tools)]

    async def run(self, turn: Run, call_id: str, name: str, arguments: Any) -> ToolResult:
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        shown, telling = storable(turn.redact(text)), self._telling(turn, name)
        await turn.begin(
            pb.ToolCallStarted(
                call_id=call_id,
                tool=name,
                arguments_json=shown,
                telling=telling,
                arguments_text=arguments_text(shown),
                told=told(shown, telling),
            )
        )
        return await turn.call(call_id, name, arguments)

    def _telling(self, turn: Run, name: str) -> str:
        """The argument by which a person recognises a call."""
        for tool in turn.pipeline.tools():
            if tool.name == name:
                return tool.arguments.telling or next(iter(tool.arguments.model_fields), "")
        return ""


def definition(tool: Tool) -> ToolDefinition:
    """The definition of `tool` for a provider. None is one that a provider enforces: a model may
    use arguments that it is not told of, and an enforced foreign schema is refused more often."""
    told, schema = brief(tool)
    return ToolDefinition(
        name=tool.name,
        description=told,
        parameters_json_schema=schema,
        sequential=tool.safety is not Safety.READ_ONLY and not tool.in_turn,
        strict=False,
        unless_native=tool.name if tool.name == "web_search" else None,
    )


def search_of_provider(ctx: RunContext[Run]) -> WebSearchTool | None:
    """A model's search by its provider, if the turn may have it, as often as it still may."""
    run, left = ctx.deps, SEARCHES - ctx.deps.searches
    wanted = any(each.name == "web_search" and each.in_turn for each in run.pipeline.tools())
    may = wanted and left > 0 and not run.form
    return WebSearchTool(max_uses=left, optional=True) if may else None


class ClientToolset(_Toolset):
    id = "client"

    def __init__(self, tools: Sequence[ClientTool]) -> None:
        self._tools = tools

    def definitions(self, turn: Run) -> Iterable[ToolDefinition]:  # noqa: ARG002 - all have these
        return [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=tool.schema,
                sequential=True,
            )
            for tool in self._tools
        ]

    async def run(self, turn: Run, call_id: str, name: str, arguments: Any) -> ToolResult:
        return await turn.call_client(call_id, name, arguments)
