"""Names, arguments, defaults and bounds of all tools are frozen."""

import json
import re
from typing import Any

import pytest
import tool_snapshot
from wire.tools import FAMILIES, TOOLS


def test_the_tools_are_what_was_frozen() -> None:
    frozen = json.loads(tool_snapshot.SNAPSHOT.read_text())
    assert tool_snapshot.current() == frozen, (
        "if this change was decided: .venv/bin/python tools/tool_snapshot.py"
    )


def test_the_guide_has_every_argument() -> None:
    assert tool_snapshot.GUIDE.read_text("utf-8") == tool_snapshot.guide(), (
        "run: .venv/bin/python tools/tool_snapshot.py"
    )


def test_every_tool_has_an_argument_that_tells_a_person_of_the_call() -> None:
    for tool in tool_snapshot.all_tools():
        telling = tool.arguments.telling or next(iter(tool.arguments.model_fields))
        assert tool.arguments.model_fields[telling].annotation is str, tool.name


def test_all_tools_are_there() -> None:
    assert [tool.name for tool in tool_snapshot.all_tools()] == [
        "memory_search",
        "memory_save",
        "memory_update",
        "memory_delete",
        "memory_context",
        "file_read",
        "file_list",
        "file_search",
        "file_write",
        "file_edit",
        "file_delete",
        "shell_exec",
        "shell_output",
        "shell_stop",
        "remember",
        "recall",
        "forget",
        "reminder_set",
        "reminder_list",
        "search_memory",
        "write_memory",
        "write_session_handoff",
        "scratch_note",
        "web_fetch",
        "web_search",
        "delegate",
        "schedule_create",
        "schedule_list",
        "schedule_update",
        "schedule_delete",
        "schedule_runs",
        "egress_propose",
    ]


@pytest.mark.parametrize("tool", tool_snapshot.all_tools(), ids=lambda tool: tool.name)
def test_a_schema_is_flat_closed_and_described(tool: Any) -> None:
    schema = tool.arguments.model_json_schema()
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert "$ref" not in json.dumps(schema)
    assert "$defs" not in schema
    assert len(tool.description) > 40


@pytest.mark.parametrize("tool", tool_snapshot.all_tools(), ids=lambda tool: tool.name)
def test_nobody_is_sent_to_a_tool_that_may_be_off(tool: Any) -> None:
    own = next(names for names in FAMILIES.values() if tool.name in names)
    others = "|".join(name for name in TOOLS if name not in own and "_" in name)
    assert re.findall(rf"\b({others})\b(?! if you have it)", tool.description) == []


def test_the_memory_bounds_of_the_contract() -> None:
    memory = tool_snapshot.current()
    search = memory["memory_search"]["arguments"]["properties"]
    assert (search["query"]["minLength"], search["query"]["maxLength"]) == (1, 2000)
    assert (search["top_k"]["minimum"], search["top_k"]["maximum"]) == (1, 20)
    assert search["top_k"]["default"] == 5
    assert search["include_conversation"]["default"] is False
    assert search["tags"]["maxItems"] == 16
    assert search["tags"]["items"]["maxLength"] == 64
    assert memory["memory_search"]["timeout_s"] == 15
    save = memory["memory_save"]["arguments"]["properties"]
    assert (save["content"]["minLength"], save["content"]["maxLength"]) == (1, 16_000)
    for name in ("memory_save", "memory_update", "memory_delete"):
        assert memory[name]["timeout_s"] == 10
        assert memory[name]["safety"] == "side_effecting"
