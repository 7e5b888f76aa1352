"""From what a user pointed at to the texts that are to be kept."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from guest.agent.guard.deeds import Call
from guest.agent.guard.intent import Wish
from guest.tools.base import ToolResult

MATERIAL_MAX_CHARS: Final = 200_000
_FILE_LINES: Final = 2000
_READING: Final = re.compile(
    r"\b(?:curl|wget|httpie|https?|lynx|w3m|links|cat|head|tail|less|more|pdftotext|html2text|pandoc"
    r"|jq|strings|sed -n)\b"
)
_HIDDEN: Final = re.compile(r"\$\w|\$\{")
_CUT_LINE: Final = "is too long for an answer"

ReadFile = Callable[[dict[str, object]], Awaitable[ToolResult]]
"""Calls `file_read` through the pipeline."""


@dataclass(frozen=True)
class Source:
    """A text to be kept. `name` says whose or what it is, as in "Stored: …, from NAME";
    empty for words that the user gave. `material` that nobody vouches for it. `left_out`
    says what of it is missing."""

    text: str
    name: str = ""
    material: bool = False
    left_out: str = ""


class NothingMeant(Exception):  # noqa: N818 - a condition that callers expect and handle
    """Nothing is there that the user could have pointed at; the message says what."""


async def sources_of(
    wish: Wish, calls: Iterable[Call], read_file: ReadFile, *, answer: str, previous: str
) -> list[Source]:
    """What `wish` means: its words; else what was read in this turn, text put into the
    message, the `previous` answer, or for what was ordered first, this one.

    Raises `NothingMeant`.
    """
    read, missing = _read(calls, wish.named)
    if wish.words and not (wish.named and read):
        return [Source(words) for words in wish.words]
    if wish.made and answer.strip() and not missing:
        return [Source(answer, "this answer")]
    if read and not (wish.told or wish.said):
        sources = [await _whole(call, read_file) for call in read]
        return [*sources[:-1], _without(sources[-1], missing)]
    if wish.rest and (wish.attached or wish.told):
        return [Source(wish.rest)]
    if wish.said:
        return [_said(previous)]
    if missing:
        raise NothingMeant(missing)
    if wish.result:
        if not answer.strip():
            raise NothingMeant("there is no answer to keep")
        return [Source(answer, "this answer")]
    if wish.rest:
        return [Source(wish.rest)]
    return [_said(previous)]


def _said(previous: str) -> Source:
    if not previous.strip():
        raise NothingMeant("nothing was said or read before that could be meant")
    return Source(previous, "my previous answer")


def _without(source: Source, missing: str) -> Source:
    told = "; ".join(filter(None, (source.left_out, missing)))
    return replace(source, left_out=told)


def _read(calls: Iterable[Call], named: tuple[str, ...]) -> tuple[list[Call], str]:
    """The calls that brought content, the last one of each source; of what the user has
    named only that, and what of it was not read, in words."""
    found = {name: call for call in calls if (name := _name(call))}
    if not named:
        return list(found.values()), ""
    meant = [name for name in found if any(_is_of(name, each) for each in named)]
    absent = [each for each in named if not any(_is_of(name, each) for name in meant)]
    missing = f"{', '.join(absent)} was not read in this turn" if absent else ""
    return [found[name] for name in meant], missing


def _is_of(name: str, named: str) -> bool:
    """Whether a call of `name` read what the user calls `named`: the address however it is
    written, or a file of that name; or a command that does not show what it reads."""
    if "://" not in named:
        return named.rsplit("/", 1)[-1] in name or _HIDDEN.search(name) is not None
    bare = re.sub(r"^https?://(?:www\.)?|/$", "", named)
    return bare in name or _HIDDEN.search(name) is not None


def _name(call: Call) -> str:
    """What `call` has read: a path or a command; empty where it is no content."""
    data = call.data
    if call.result.is_error or not isinstance(data, dict | None):
        return ""
    if call.tool == "file_read" and not (data or {}).get("binary"):
        return str(call.arguments.get("path", ""))
    command = str(call.arguments.get("command", ""))
    if call.tool == "shell_exec" and _READING.search(command):
        return command if data and data.get("stdout", "").strip() else ""
    return ""


async def _whole(call: Call, read_file: ReadFile) -> Source:
    data: dict[str, Any] = call.data or {}
    if call.tool == "shell_exec":
        left_out = "without its middle, which was not shown" if data.get("truncated") else ""
        name = next(iter(call.result.material), _name(call))
        return _bounded(str(data["stdout"]), name, left_out)
    path = str(data.get("path") or _name(call))
    whole = data.get("first_line") in (0, 1) and not data.get("next_offset")
    if whole and _CUT_LINE not in call.result.text:
        return _bounded(str(data["content"]), path, "")
    return await _file(path, str(data.get("content", "")), read_file)


async def _file(path: str, seen: str, read_file: ReadFile) -> Source:
    """The file from its beginning, range by range; `seen` is what is known of it if not."""
    content, offset, left_out = "", 1, ""
    while len(content) <= MATERIAL_MAX_CHARS:
        result = await read_file({"path": path, "offset": offset, "limit": _FILE_LINES})
        data = Call("file_read", {}, result).data
        if result.is_error or not isinstance(data, dict) or "content" not in data:
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
