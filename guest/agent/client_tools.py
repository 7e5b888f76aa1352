"""Tools of the client's program: the model may call them, and the client runs them.

What they give back is material: nobody vouches for it.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import RunContext, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from guest.agent.history import storable
from guest.agent.toolset import ARGUMENTS, AsWritten, TurnDeps
from guest.agent.turn import Answer, AskClient, ClientTool
from guest.tools.base import ToolResult

_SUMMARY_CHARS = 200


class ClientToolset(AbstractToolset[TurnDeps]):
    """The tools of one turn's client."""

    def __init__(self, tools: Sequence[ClientTool]) -> None:
        self._tools = tools

    @property
    def id(self) -> str:
        return "client"

    async def get_tools(self, ctx: RunContext[TurnDeps]) -> dict[str, ToolsetTool[TurnDeps]]:
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.schema,
                    sequential=True,
                ),
                max_retries=ctx.max_retries,
                args_validator=AsWritten(),
            )
            for tool in self._tools
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[TurnDeps],
        tool: ToolsetTool[TurnDeps],  # noqa: ARG002 - the client has it
    ) -> str:
        turn, call_id = ctx.deps, ctx.tool_call_id or ""
        result = await turn.call_client(call_id, name, tool_args[ARGUMENTS])
        if result.is_error:
            raise ToolFailed(result.text)
        return result.text


async def result_of(
    ask: AskClient | None, redact: Callable[[str], str], call_id: str, tool: str, arguments: Any
) -> ToolResult:
    """The result of a call that the client runs."""
    began = time.monotonic()
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        read = None
    if ask is not None and isinstance(read, dict):
        written = storable(redact(json.dumps(read, ensure_ascii=False)))
        answer = await ask(call_id, tool, written)
    else:
        answer = Answer("the arguments must be a JSON object", is_error=True)
    if answer is None:
        answer = Answer("the client's program has not answered this call in time", is_error=True)
    text = storable(redact(answer.output))
    return ToolResult(
        text=text,
        is_error=answer.is_error,
        summary=next(iter(text.splitlines()), "")[:_SUMMARY_CHARS],
        duration_ms=round((time.monotonic() - began) * 1000),
        material=(f"{tool}, a tool of the client",),
    )
