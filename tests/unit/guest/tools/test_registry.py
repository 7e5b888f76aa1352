"""The registry of tools: discovery, and what it refuses."""

import pytest
import tool_snapshot
from wire.tools import FAMILIES, TOOLS, offered

from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.tools.memory_tools import RIGHT
from tests.support.tools.pipelines import ALICE, echo, pipeline, registry, tool


def test_tools_are_found_by_name_and_all_together() -> None:
    """typed memory: discovery by `all` and `get(name)`."""
    tools = Registry(tool_snapshot.all_tools())
    assert len(tools.all()) == sum(map(len, FAMILIES.values()))
    for name in ("remember", "recall", "forget"):
        found = tools.get(name)
        assert found is not None
        assert found.name == name
        assert found in tools.all()
    assert tools.get("memorise") is None


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools have the same name: a"):
        registry(tool("a", echo), tool("a", echo))


def test_a_tool_of_no_family_is_refused() -> None:
    with pytest.raises(ValueError, match="echo belongs to no family of tools"):
        Registry([tool("echo", echo)])


def test_definitions_and_dispatch_are_of_the_same_registry() -> None:
    assert [each.name for each in pipeline(disabled=["echo"]).tools()] == [
        "slow_read",
        "slow_write",
        "bug",
        "broken",
        "mendable",
        "own_timeout",
        "run",
    ]


@pytest.mark.parametrize("name", sorted(RIGHT))
async def test_what_is_off_is_neither_listed_nor_callable(name: str) -> None:
    tools = Registry(tool_snapshot.all_tools())
    on = offered((), (name,))
    switched = ToolPipeline(tools, scrubber=Scrubber(), disabled=frozenset(TOOLS) - on)
    assert name not in {each.name for each in switched.tools()}
    result = await switched.call(ALICE, name, RIGHT[name])
    assert (result.is_error, result.text) == (True, f"{name} is switched off by the operator")
