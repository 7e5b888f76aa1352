"""The tools' frozen contract: what models, MCP clients and scripts may rely on.

`python tools/tool_snapshot.py` rewrites `tests/contract/tools.json`, and in `docs/guide/tools.md`
the table of tools, where it keeps the last column, and the tables of arguments. Run it only for a
change that was decided; reviewers look at the diff.
"""

import json
import re
from pathlib import Path
from typing import Any, cast

from wire.tools import FAMILIES

from guest.gateway.delegation import Delegation
from guest.tools.base import Tool
from guest.tools.egress import proposing_tool
from guest.tools.files import file_tools
from guest.tools.memory.notes import memory_tools
from guest.tools.memory.reminders import reminder_tools
from guest.tools.memory.typed import typed_memory_tools
from guest.tools.memory.working import working_memory_tools
from guest.tools.results import result_schema
from guest.tools.schedules import schedule_tools
from guest.tools.shell.tool import shell_tools
from guest.tools.web import web_tools

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "tests" / "contract" / "tools.json"
GUIDE = ROOT / "docs" / "guide" / "tools.md"
TOOLS = "<!-- the table of tools begins -->", "<!-- the table of tools ends -->"
ARGUMENTS = "<!-- the tables of arguments begin -->", "<!-- and end -->"
_WORDS = re.compile(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", re.MULTILINE)
_KINDS = {"read_only": "ReadOnly", "side_effecting": "SideEffecting", "privileged": "Privileged"}


def all_tools() -> list[Tool]:
    """Every tool, without a store or files: definitions need neither."""
    nothing = cast(Any, None)
    return [
        *memory_tools(nothing),
        *file_tools(nothing),
        *shell_tools(nothing, nothing),
        *typed_memory_tools(nothing),
        *reminder_tools(nothing),
        *working_memory_tools(nothing),
        *web_tools(None, "", "https://searx.example"),
        Delegation(nothing, nothing).tool(),
        *schedule_tools(nothing),
        proposing_tool(nothing),
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
    """The chapter on tools with the table of tools and the tables of arguments as they are."""
    page = GUIDE.read_text("utf-8")
    words = dict(_WORDS.findall(page.partition(TOOLS[0])[2].partition(TOOLS[1])[0]))
    head = ("| tool | family | kind | seconds | what it does |", "|---|---|---|---|---|")
    rows = [_row(tool, words.get(tool.name, "")) for tool in all_tools()]
    page = _replaced(page, TOOLS, "\n".join((*head, *rows)))
    return _replaced(page, ARGUMENTS, "\n\n".join(map(_table, all_tools())))


def _replaced(page: str, marks: tuple[str, str], text: str) -> str:
    """`page` with `text` between two marks."""
    begin, end = marks
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"


def _row(tool: Tool, words: str) -> str:
    """A tool in the table of tools; what it does stands in the guide alone."""
    if not words:
        raise SystemExit(f"{GUIDE}: add a row for {tool.name} that says what it does")
    family = next(name for name, tools in FAMILIES.items() if tool.name in tools)
    as_asked = ", or as asked" if "timeout_s" in tool.arguments.model_fields else ""
    kind, seconds = _KINDS[tool.safety.value], f"{tool.timeout:g}{as_asked}"
    return f"| `{tool.name}` | `{family}` | {kind} | {seconds} | {words} |"


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
