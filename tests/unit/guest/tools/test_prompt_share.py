"""What the tools that are offered by default take of every request."""

from pydantic_ai.tools import ToolDefinition
from tool_snapshot import all_tools
from wire.tools import offered

from guest.agent.prompt.window import of_tools

MOST = 4_000
"""Tokens; docs/design/2026-11-26-families-of-tools.md."""


def test_the_tools_of_the_default_set_take_no_more_of_a_request() -> None:
    tools = [each for each in all_tools() if each.name in offered((), ())]
    told = [
        ToolDefinition(
            name=each.name,
            description=each.description,
            parameters_json_schema=each.arguments.model_json_schema(),
        )
        for each in tools
    ]
    assert MOST * 0.8 < of_tools(told) <= MOST
