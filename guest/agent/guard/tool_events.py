"""A finished call as a line of the conversation that people read and search finds."""

import json
from collections.abc import Iterator
from typing import Any

from guest.agent.guard.deeds import MEMORY_TOOLS
from guest.memory.conversations.store import TOOL_INDEX_CHARS
from guest.tools.base import ToolResult


def event_text(tool: str, result: ToolResult) -> str:
    """What `tool` did, and the beginning of what it brought.

    Not of what memory tools bring: their notes are found by themselves, and must leave
    nothing behind here when they are forgotten.
    """
    line = f"{tool}: {result.summary}"
    if tool in MEMORY_TOOLS or result.is_error:
        return line
    brought = "\n".join(_strings(_data(result.text)))
    return f"{line}\n{brought}".strip()[:TOOL_INDEX_CHARS]


def _data(text: str) -> Any:
    """The result's JSON; the text itself where it is cut."""
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        return text


def _strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        if data.strip():
            yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _strings(value)
