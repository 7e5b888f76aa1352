"""What was read in a turn, whole, and in parts that are notes of their own."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from guest.tools.base import ToolResult
from guest.tools.results import data_of

MATERIAL_MAX_CHARS: Final = 200_000
_FILE_LINES: Final = 2000
_READING: Final = re.compile(
    r"\b(?:curl|wget|httpie|https?|lynx|w3m|links|cat|head|tail|less|more|pdftotext|html2text|pandoc"
    r"|jq|strings|sed -n)\b"
)
_CUT_LINE: Final = "is too long for an answer"
_HEADING_CHARS: Final = 120
_BREAKS: Final = ("\n\n", "\n", ". ", " ")

ReadFile = Callable[[dict[str, object]], Awaitable[ToolResult]]
"""Calls `file_read` through the pipeline."""


@dataclass(frozen=True)
class Call:
    """One call that has ended: with what it was made, and what came back."""

    tool: str
    arguments: dict[str, Any]
    result: ToolResult

    @property
    def data(self) -> dict[str, Any]:
        """The result without its `Note:` lines; empty where it is no JSON object."""
        data = data_of(self.result.text)
        return data if isinstance(data, dict) else {}

    @property
    def source(self) -> str:
        """The path or the command that was read; empty where the call brought no content."""
        if self.result.is_error or not self.data:
            return ""
        if self.tool == "file_read" and not self.data.get("binary"):
            return str(self.arguments.get("path", ""))
        command = str(self.arguments.get("command", ""))
        if self.tool == "shell_exec" and _READING.search(command):
            return command if str(self.data.get("stdout", "")).strip() else ""
        return ""


@dataclass(frozen=True)
class Source:
    """A text to be kept.

    Attributes:
        text: The text itself.
        name: Whose or what it is, as in "From NAME:"; empty for the user's own words.
        material: Whether nobody vouches for it.
        left_out: What of it is missing, in words.
    """

    text: str
    name: str = ""
    material: bool = False
    left_out: str = ""


async def read_in(calls: Iterable[Call], read_file: ReadFile) -> list[Source]:
    """What these calls have read, each source once and whole."""
    found = {name: call for call in calls if (name := call.source)}
    return [await _whole(call, read_file) for call in found.values()]


async def _whole(call: Call, read_file: ReadFile) -> Source:
    data = call.data
    if call.tool == "shell_exec":
        left_out = "without its middle, which was not shown" if data.get("truncated") else ""
        name = next(iter(call.result.material), call.source)
        return _bounded(str(data["stdout"]), name, left_out)
    path = str(data.get("path") or call.source)
    whole = data.get("first_line") in (0, 1) and not data.get("next_offset")
    if whole and _CUT_LINE not in call.result.text:
        return _bounded(str(data["content"]), path, "")
    return await _file(path, str(data.get("content", "")), read_file)


async def _file(path: str, seen: str, read_file: ReadFile) -> Source:
    """The file from its beginning, range by range; `seen` is what is known of it if not."""
    content, offset, left_out = "", 1, ""
    while len(content) <= MATERIAL_MAX_CHARS:
        arguments: dict[str, object] = {"path": path, "offset": offset, "limit": _FILE_LINES}
        result = await read_file(arguments)
        data = Call("file_read", {}, result).data
        if result.is_error or "content" not in data:
            return _bounded(content or seen, path, f"the rest could not be read: {result.summary}")
        content += str(data["content"])
        if _CUT_LINE in result.text:
            left_out = "lines that are too long to be read were cut"
            content += "\n"
        if not data.get("next_offset"):
            break
        offset = int(data["next_offset"])
    return _bounded(content, path, left_out)


def _bounded(text: str, name: str, left_out: str) -> Source:
    if len(text) > MATERIAL_MAX_CHARS:
        text = text[:MATERIAL_MAX_CHARS]
        left_out = f"only its first {MATERIAL_MAX_CHARS:,} characters"
    return Source(text, name, material=True, left_out=left_out)


def parts_of(source: Source, room: int) -> list[str]:
    """`source` as notes of at most `room` characters, always the same ones, cut between
    paragraphs where that is possible. Each says where it is from, and which part it is;
    the user's own words stay as they are."""
    text = source.text.strip()
    if not source.name:
        return [text[:room]]
    pieces = list(_pieces(text, room - _HEADING_CHARS))
    name = f"From {_short(source.name)}"
    if len(pieces) == 1:
        return [f"{name}:\n\n{pieces[0]}"]
    return [
        f"{name}, part {number} of {len(pieces)}:\n\n{piece}"
        for number, piece in enumerate(pieces, 1)
    ]


def _pieces(text: str, room: int) -> Iterator[str]:
    while len(text) > room:
        cut = next((at for end in _BREAKS if (at := text.rfind(end, room // 2, room)) > 0), room)
        yield text[:cut].strip()
        text = text[cut:].strip()
    if text:
        yield text


def _short(name: str) -> str:
    name = re.sub(r"\s+", " ", name)
    return name if len(name) <= _HEADING_CHARS // 2 else f"{name[: _HEADING_CHARS // 2 - 1]}…"
