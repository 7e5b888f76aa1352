"""What the tools answer with, for programs: the shape of each tool's `ToolOutput.data`.

A list is the `results` of an object, because clients expect one.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from guest.memory.models import Details
from guest.memory.notes.columns import DETAILS

TOLD_DETAILS: Final = tuple(name for name in DETAILS if name != "importance")
"""The details of a note that typed memory answers with."""


class _Stored(TypedDict):
    note_id: str
    message: str


class _Near(TypedDict):
    id: str
    text: str
    score: float


class _Saved(_Stored):
    searchable: str
    similar: list[_Near]


class _Updated(_Stored):
    version: int


class _Found(TypedDict):
    note_id: str
    text: str
    score: float
    source: str
    matched_by: str
    tags: list[str]
    created_at: str
    updated_at: str
    version: int


class _FoundNotes(TypedDict):
    results: list[_Found]


class _Context(TypedDict):
    context: str


class _Read(TypedDict):
    path: str
    size_bytes: int
    content: NotRequired[str]
    first_line: NotRequired[int]
    last_line: NotRequired[int]
    next_offset: NotRequired[int | None]
    binary: NotRequired[bool]
    kind: NotRequired[str]


class _Listed(TypedDict):
    path: str
    entries: list[dict[str, Any]]


class _Line(TypedDict):
    path: str
    line: int
    text: str


class _Matches(TypedDict):
    matches: list[_Line]
    files_searched: int


class _Deleted(TypedDict):
    path: str
    outcome: str


class _Written(_Deleted):
    bytes: int


class _Edited(TypedDict):
    path: str
    line: int
    bytes: int


class _Executed(TypedDict):
    exit_code: int
    stdout: str
    stderr: str
    duration_ms: int
    timed_out: bool
    truncated: bool


class _Remembered(TypedDict):
    remembered: bool
    memory_id: str
    memory_type: str
    message: str


if TYPE_CHECKING:
    _Memory = dict[str, Any]
else:
    _Memory = TypedDict(
        "_Memory",
        {"id": str, "content": str}
        | {name: type(getattr(Details(), name)) for name in TOLD_DETAILS}
        | {"timestamp": str, "access_count": int, "superseded_by": str | None},
    )


class _Recalled(TypedDict):
    count: int
    memories: list[_Memory]


class _Forgotten(TypedDict):
    forgotten: bool
    memory_id: str
    message: str
    reason: str


class _FoundKeyed(TypedDict):
    results: list[dict[str, Any]]


class _Keyed(_Updated):
    key: str


class _Scratchpad(TypedDict):
    content: str
    message: str
    note_id: NotRequired[str]


_RESULTS: Final[Mapping[str, type]] = {
    "memory_search": _FoundNotes,
    "memory_save": _Saved,
    "memory_update": _Updated,
    "memory_delete": _Stored,
    "memory_context": _Context,
    "file_read": _Read,
    "file_list": _Listed,
    "file_search": _Matches,
    "file_write": _Written,
    "file_edit": _Edited,
    "file_delete": _Deleted,
    "shell_exec": _Executed,
    "remember": _Remembered,
    "recall": _Recalled,
    "forget": _Forgotten,
    "search_memory": _FoundKeyed,
    "write_memory": _Keyed,
    "write_session_handoff": _Keyed,
    "scratch_note": _Scratchpad,
}


@cache
def result_schema(tool: str) -> dict[str, Any] | None:
    """The JSON Schema of what `tool` answers; None for a tool of somebody else."""
    shape = _RESULTS.get(tool)
    return None if shape is None else _plain(TypeAdapter(shape).json_schema())


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
