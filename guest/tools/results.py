"""What the tools answer with, for programs: the shape of each tool's `ToolOutput.data`.

A list is the `results` of an object, because clients expect one.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from guest.memory.models import Details
from guest.memory.notes.columns import DETAILS

TOLD_DETAILS: Final = tuple(name for name in DETAILS if name not in ("importance", "due_at"))
"""The details of a note that typed memory answers with."""

FOUND: Final = "note_id text score source matched_by tags created_at updated_at version"
"""The fields of a hit that memory_search answers with."""


def _shape(name: str, fields: str, types: Mapping[str, Any]) -> Any:
    """An object with these `fields`, separated by spaces; one with "?" may be missing. What has
    none of the `types` is a text."""
    shape: dict[str, Any] = {}
    for field in fields.split():
        bare = field.removesuffix("?")
        kind = types.get(bare, str)
        shape[bare] = kind if bare == field else NotRequired[kind]
    return TypedDict(name, shape)  # type: ignore[operator]  # made when it is needed


_TYPES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("binary", "timed_out", "truncated", "running"), bool),
    **dict.fromkeys(("remembered", "forgotten"), bool),
    **dict.fromkeys(("version", "count", "access_count", "exit_code", "duration_ms"), int),
    **dict.fromkeys(("line", "bytes", "size_bytes", "first_line", "last_line"), int),
    **dict.fromkeys(("matches", "similar", "results", "memories", "entries"), list[dict[str, Any]]),
    **{name: type(getattr(Details(), name)) for name in TOLD_DETAILS},
    "files_searched": int,
    **dict.fromkeys(("total_bytes", "total_chars"), int),
    "next_offset": int | None,
    "score": float,
    **dict.fromkeys(("schedules", "runs"), list[dict[str, Any]]),
    **dict.fromkeys(("next", "tools"), list[str]),
    "budget_usd": float,
    "paused": bool,
    "superseded_by": str | None,
    "tags": list[str],
}
"""The types of fields, whichever tool answers with them."""
_LISTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "memory_search": ("results", "_Found", FOUND),
    "memory_save": ("similar", "_Near", "id text score"),
    "file_search": ("matches", "_Line", "path line text"),
    "web_search": ("results", "_Page", "title url text"),
    "reminder_list": ("results", "_Reminder", "note_id text due_at"),
    "recall": (
        "memories",
        "_Memory",
        f"id content {' '.join(TOLD_DETAILS)} timestamp access_count superseded_by",
    ),
}
"""Of a tool's list, its field, and the name and the fields of its items."""
_SCHEDULE: Final = "id name when time_zone next instructions tools? budget_usd? paused?"
_KEYED: Final = "note_id message version key"
_RESULTS: Final[Mapping[str, str]] = {
    "memory_search": "results next_cursor?",
    "memory_save": "note_id message searchable similar",
    "memory_update": "note_id message version",
    "memory_delete": "note_id message",
    "memory_context": "context",
    "file_read": "path size_bytes content? first_line? last_line? next_offset? binary? kind?",
    "file_list": "path entries",
    "file_search": "matches files_searched",
    "file_write": "path outcome bytes",
    "file_edit": "path line bytes",
    "file_delete": "path outcome",
    "shell_exec": "exit_code? stdout? stderr? duration_ms? timed_out? truncated? id? running?",
    "shell_output": "running output next_offset total_bytes exit_code? timed_out?",
    "shell_stop": "id message",
    "remember": "remembered memory_id memory_type message",
    "recall": "count memories",
    "reminder_set": "note_id message",
    "reminder_list": "results",
    "forget": "forgotten memory_id message reason",
    "search_memory": "results next_cursor?",
    "write_memory": _KEYED,
    "write_session_handoff": _KEYED,
    "scratch_note": "content message note_id?",
    "web_fetch": "url kind content? total_chars? next_offset?",
    "web_search": "results",
    "delegate": "sub_agent state answer",
    "schedule_create": _SCHEDULE,
    "schedule_list": "schedules",
    "schedule_update": _SCHEDULE,
    "schedule_delete": "deleted",
    "schedule_runs": "runs",
    "egress_propose": "answer",
}


@cache
def result_schema(tool: str) -> dict[str, Any] | None:
    """The JSON Schema of what `tool` answers; None for a tool of somebody else."""
    if tool not in _RESULTS:
        return None
    types = dict(_TYPES)
    if tool in _LISTS:
        field, name, items = _LISTS[tool]
        types[field] = list[_shape(name, items, _TYPES)]  # type: ignore[misc]
    return _plain(TypeAdapter(_shape(tool, _RESULTS[tool], types)).json_schema())


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` without the names of classes and fields, which say nothing more."""
    return {
        key: {name: _plain(each) for name, each in value.items()}
        if key in ("properties", "$defs")
        else _plain(value)
        if isinstance(value, dict)
        else value
        for key, value in schema.items()
        if key != "title"
    }


def data_of(text: str) -> Any:
    """The JSON at the beginning of a tool's answer; the text itself if the JSON is cut off, or
    nested too deep to be read."""
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return text
