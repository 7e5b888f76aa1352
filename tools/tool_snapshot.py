"""The tools' frozen contract: what models, MCP clients and scripts may rely on.

`python tools/tool_snapshot.py` rewrites `tests/contract/tools.json`. Run it only for an intended
change; reviewers look at the diff.
"""

import json
from pathlib import Path
from typing import Any, cast

from guest.tools.base import Tool
from guest.tools.files import file_tools
from guest.tools.memory.notes import memory_tools
from guest.tools.memory.typed import typed_memory_tools
from guest.tools.memory.working import working_memory_tools
from guest.tools.results import result_schema
from guest.tools.shell.tool import shell_tools

SNAPSHOT = Path(__file__).resolve().parent.parent / "tests" / "contract" / "tools.json"


def all_tools() -> list[Tool]:
    """Every tool, without a store or files: definitions need neither."""
    nothing = cast(Any, None)
    return [
        *memory_tools(nothing),
        *file_tools(nothing),
        *shell_tools(nothing),
        *typed_memory_tools(nothing),
        *working_memory_tools(nothing),
    ]


def current() -> dict[str, Any]:
    """Names, arguments with types, defaults and bounds, results, safety and timeout; no wording."""
    return {
        tool.name: {
            "safety": tool.safety.value,
            "timeout_s": tool.timeout,
            "arguments": without_words(tool.arguments.model_json_schema()),
            "result": result_schema(tool.name),
        }
        for tool in all_tools()
    }


def without_words(schema: Any) -> Any:
    """`schema` without its descriptions, in a fixed order."""
    if isinstance(schema, dict):
        return {
            key: without_words(value)
            for key, value in sorted(schema.items())
            if not (key == "description" and isinstance(value, str))
        }
    return [without_words(item) for item in schema] if isinstance(schema, list) else schema


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(current(), indent=1) + "\n")
    print(f"{len(current())} tools frozen in {SNAPSHOT}")
