"""What a model is told of the tools: a line each, and the arguments that matter.

The rest of a tool's arguments is accepted from a model, too, and is in the schemas that other
programs get. What every request carries is paid for by everybody, most of all on a machine without
a GPU (docs/design/2026-11-27-twelve-tools.md).
"""

import functools
from collections.abc import Mapping
from typing import Any, Final

from guest.tools.base import Arguments, Tool

BRIEF: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    "memory_search": (
        "Finds what the user has asked you to keep.",
        {
            "query": "",
            "top_k": "1 to 20",
            "include_conversation": "also what was said in earlier conversations",
            "since": "first day, YYYY-MM-DD",
            "until": "last day",
        },
    ),
    "memory_save": ("Keeps a new fact.", {"content": "one fact, in a full sentence"}),
    "memory_update": (
        "Replaces a note's text.",
        {"note_id": "from memory_search", "content": "the whole new text"},
    ),
    "memory_delete": ("Deletes a note for ever.", {"note_id": "from memory_search"}),
    "memory_context": ("Gives the notes on a subject as one text.", {"query": ""}),
    "file_list": ("Lists a directory.", {"path": "default /shared"}),
    "file_search": ("Finds text in files.", {"query": "", "path": "default /shared"}),
    "file_read": ("Reads a file.", {"path": "for example /shared/notes.txt"}),
    "file_write": ("Writes a whole file.", {"path": "", "content": ""}),
    "file_edit": ("Replaces text in a file.", {"path": "", "old": "occurs once", "new": ""}),
    "file_delete": ("Deletes a file.", {"path": ""}),
    "shell_exec": ("Runs a shell command.", {"command": "starts in /shared"}),
    "remember": (
        "Keeps a statement with its type, how sure it is, and why. Give a rationale for decisions.",
        {"content": "one statement, in a full sentence", "type": "", "confidence": "0 to 1"}
        | {"rationale": "why"},
    ),
    "recall": (
        "Gives what was remembered, by relevance, or the newest first. Tell the rationale when "
        "the user asks why.",
        {"query": "", "type": ""},
    ),
    "forget": (
        "Marks something remembered as replaced; nothing is erased. Remember what holds now first.",
        {"memory_id": "from recall", "reason": "", "replacement_id": "of what holds now"},
    ),
    "search_memory": (
        "Finds keyed and plain notes.",
        {"query": "", "since": "first day, YYYY-MM-DD", "until": "last day"},
    ),
    "write_memory": (
        "Keeps a note under a fixed key of its own, for what changes often.",
        {"key": "for example project-plan", "content": "", "mode": ""},
    ),
    "write_session_handoff": (
        "Leaves a handoff for the next session, when work ends unfinished or the user asks.",
        {"content": "what is done, what is open, what comes next"},
    ),
    "scratch_note": (
        "Your scratchpad for the task at hand. Clear it when the task is done.",
        {"mode": "", "content": ""},
    ),
}
_OF_A_TYPE: Final = ("type", "enum", "items")


@functools.lru_cache(maxsize=512)
def _schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Cached: making it takes as long as the rest of a request."""
    return arguments.model_json_schema()


def brief(tool: Tool) -> tuple[str, dict[str, Any]]:
    """The description and the schema of `tool` for a model."""
    schema = _schema(tool.arguments)
    if tool.name not in BRIEF:
        return tool.description, schema
    description, told = BRIEF[tool.name]
    whole = schema.get("properties", {})
    properties = {
        name: {key: value for key, value in whole[name].items() if key in _OF_A_TYPE}
        | ({"description": what} if what else {})
        for name, what in told.items()
        if name in whole
    }
    required = [name for name in schema.get("required", ()) if name in told]
    short: dict[str, Any] = {"type": "object", "properties": properties}
    return description, short | ({"required": required} if required else {})
