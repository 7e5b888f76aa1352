"""The tools' frozen contract: what models, MCP clients and scripts may rely on.

`python tools/tool_snapshot.py` rewrites `tests/contract/tools.json`, and the tables of arguments in
`docs/guide/tools.md`. Run it only for an intended change; reviewers look at the diff.
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

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "tests" / "contract" / "tools.json"
GUIDE = ROOT / "docs" / "guide" / "tools.md"
BEGIN, END = "<!-- the tables of arguments begin -->", "<!-- and end -->"


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


def guide() -> str:
    """The chapter on tools with the tables of arguments as they are."""
    before, _, rest = GUIDE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    tables = "\n\n".join(_table(tool) for tool in all_tools())
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def _table(tool: Tool) -> str:
    schema = tool.arguments.model_json_schema()
    required = schema.get("required", ())
    rows = [
        f"| `{name}` | {_accepted(each)} | "
        f"{'required' if name in required else _default(each)} | {each.get('description', '')} |"
        for name, each in schema["properties"].items()
    ]
    head = ("| argument | accepted | default | meaning |", "|---|---|---|---|")
    return "\n".join((f"**`{tool.name}`**", "", *head, *rows))


def _default(schema: dict[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else "absent"


def _accepted(schema: dict[str, Any]) -> str:
    """What a field accepts, in words."""
    if "anyOf" in schema:  # a value, or nothing
        return next(filter(None, map(_accepted, schema["anyOf"])))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "string":
            words = "text" + _between(schema, "minLength", "maxLength", " characters")
            return f"{words} like `{schema['pattern']}`" if "pattern" in schema else words
        case "array":
            items = _between(schema, "minItems", "maxItems", "")
            return f"list{items} of {_accepted(schema['items'])}"
        case "boolean":
            return "`true`, `false`"
        case "integer":
            return "whole number" + _between(schema, "minimum", "maximum", "")
        case "number":
            return "number" + _between(schema, "minimum", "maximum", "")
    return ""


def _between(schema: dict[str, Any], low: str, high: str, unit: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if least is not None and most is not None:
        return f" from {least:,} to {most:,}{unit}"
    if most is not None:
        return f" up to {most:,}{unit}"
    return f" from {least:,}{unit}" if least is not None else ""


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(current(), indent=1) + "\n")
    GUIDE.write_text(guide(), "utf-8")
    print(f"{len(current())} tools frozen in {SNAPSHOT}")
