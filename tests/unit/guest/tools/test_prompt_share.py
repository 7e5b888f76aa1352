"""What rules and tools take of every request."""

from tool_snapshot import all_tools
from wire.tools import CORE, offered

from guest.agent.deferred import search_tool
from guest.agent.prompt.builder import instructions
from guest.agent.prompt.window import of_tools
from guest.agent.toolset import definition
from guest.memory.search.tokens import tokens_of

MOST = 1_600
"""By the estimate; docs/design/2026-11-27-twelve-tools.md has what tokenizers count."""


def test_the_rules_and_the_twelve_core_tools_take_no_more_of_a_request() -> None:
    tools = [each for each in all_tools() if each.name in offered((), ())]
    core = [definition(each) for each in tools if each.name in CORE] + search_tool(tools)
    assert len(core) == 12
    rules = tokens_of(instructions("", [each.name for each in tools]))
    assert MOST * 0.8 < rules + of_tools(core) <= MOST


def test_a_model_is_told_of_each_tool_in_a_line_without_bounds() -> None:
    for each in all_tools():
        told = definition(each)
        assert len(told.description or "") <= 110
        assert set(told.parameters_json_schema) <= {"type", "properties", "required"}
        for argument in told.parameters_json_schema["properties"].values():
            assert set(argument) <= {"type", "enum", "items", "description"}
