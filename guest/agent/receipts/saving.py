"""The few saves that the runtime makes by itself: those that cannot be mistaken.

"Remember that …" and "remember: …" at the beginning of a message give the words. "Save
this" and its like, as the whole message or its last sentence, point at what was read in
this turn, or else at the previous answer. Everything else is the model's to understand. What was
read is saved whole, in parts that are notes of their own.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from wire.text import shortened

from guest.agent.receipts.ledger import Ledger
from guest.memory.models import Receipt, is_temporary
from guest.tools.base import ToolContext, ToolResult
from guest.tools.memory.provenance import BEGINNING, POINTS
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
        """The result without its `Note:` lines; empty if it is not a JSON object."""
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
    name = shortened(re.sub(r"\s+", " ", source.name), _HEADING_CHARS // 2 - 1)
    name = f"From {name}"
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


_TOOLS: Final = {"memory_save": 4000, "remember": 2000, "write_memory": 4000}
"""What can save, the first choice first, and the longest note that each is given."""
_TEMPORARY: Final = "this conversation is temporary and keeps nothing"
_OFF: Final = "every tool that saves is off in [tools] of runner.toml"
_FAILURES_MAX: Final = 3
_WORDS_MAX_CHARS: Final = 500
"""What is longer in one line was pasted, and may be anybody's words."""
_COMMENT_MAX_WORDS: Final = 12
PREVIOUS: Final = "my previous answer"
_QUESTION: Final = re.compile("[?？]|[吗呢么]$")

_TELLS: Final = re.compile(
    r"\b(?:I|I'\w+|me|my|mine|we|our|ich|mir|mein\w*|wir|unser\w*|je|j'\w+|m'\w+|moi|mon|ma|mes|nous"
    r"|notre|yo|mi|mis|nuestr\w+|he|io|mio|mia|ho|eu|meu|minha|nosso|nossa|ik|mij|mijn|wij|onze|ja"
    r"|mój|moja|moje|mam|я|мне|меня|мой|моя|моё|мы|наш\w*)\b|[我私僕俺]|\d|https?:|(?<!\w)/\w",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Request:
    """What a message asks for in words that cannot be mistaken.

    Attributes:
        words: What is to be kept; empty where the message points at something else.
        previous: Whether that may be the previous answer. Otherwise only what was read in
            this turn is meant.
    """

    words: str = ""
    previous: bool = False


def request_in(message: str) -> Request | None:
    """The request that `message` makes beyond doubt; None where there is any doubt."""
    text = message.strip()
    if points := POINTS.fullmatch(text):
        before, mark = points["before"].strip(), points["mark"]
        own_sentence = not before or mark not in (",", ";", "，", "、")
        return Request(previous=own_sentence and not _tells_something(before))
    line = text.split("\n", 1)[0].strip()
    begins = BEGINNING.match(line)
    if begins is None or _QUESTION.search(line) or len(line) > _WORDS_MAX_CHARS:
        return None
    words = line[begins.end() :].strip()
    return Request(words) if any(map(str.isalnum, words)) else None


def _tells_something(before: str) -> bool:
    """Whether what stands before "save this" may itself be what is to be kept."""
    return len(before.split()) > _COMMENT_MAX_WORDS or _TELLS.search(before) is not None


class Saver:
    """Saves on the runtime's behalf, through the same pipeline as every other call.

    Args:
        offered: The names of the tools that are on.
        context: Makes the context of a call at this point of the turn.
    """

    def __init__(
        self, ledger: Ledger, offered: Sequence[str], context: Callable[[], ToolContext]
    ) -> None:
        self._ledger = ledger
        self._tool = next((name for name in _TOOLS if name in offered), "")
        self._context = context

    async def save(
        self,
        request: Request,
        calls: Sequence[Call],
        previous: str,
        tell: Callable[[Receipt], Awaitable[None]],
    ) -> None:
        """Save what `request` means, and `tell` of each receipt.

        Args:
            calls: The calls of this turn, which may have read what is meant.
            previous: The answer of the turn before; empty where there is none.
        """
        for source in await self._sources(request, calls, previous):
            await self._save(source, tell)

    async def _sources(
        self, request: Request, calls: Sequence[Call], previous: str
    ) -> list[Source]:
        if request.words:
            return [Source(request.words)]
        if read := await read_in(calls, self._read_file):
            return read
        return [Source(previous, PREVIOUS)] if request.previous and previous.strip() else []

    async def _read_file(self, arguments: dict[str, object]) -> ToolResult:
        context = replace(self._context(), actor="automatic")
        return await self._ledger.call(context, "file_read", arguments)

    async def _save(self, source: Source, tell: Callable[[Receipt], Awaitable[None]]) -> None:
        if not self._tool:
            temporary = is_temporary(self._context().session_id)
            return await tell(self._ledger.lost(_TEMPORARY if temporary else _OFF))
        context = replace(self._context(), actor="automatic")
        if source.material:
            context = replace(context, material=(source.name,))
        elif source.name:
            context = replace(context, link=source.name)
        else:
            context = replace(context, material=())  # the user's own words
        parts = parts_of(source, _TOOLS[self._tool])
        failures = 0
        for number, part in enumerate(parts, 1):
            result = await self._ledger.call(context, self._tool, _arguments(self._tool, part))
            about = _about(source, number, len(parts))
            for receipt in result.receipts:
                await tell(self._ledger.annotate(receipt, about))
            failures = failures + 1 if result.is_error else 0
            if failures == _FAILURES_MAX and number < len(parts):
                skipped = f"parts {number + 1} to {len(parts)} of {source.name} were not tried"
                return await tell(self._ledger.lost(skipped))
        return None


def _arguments(tool: str, content: str) -> dict[str, object]:
    if tool != "write_memory":
        return {"content": content}
    key = f"kept-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    return {"key": key, "content": content}


def _about(source: Source, number: int, parts: int) -> str:
    """Which part of what a note is; empty for the user's own words."""
    if not source.name:
        return ""
    which = f", part {number} of {parts}" if parts > 1 else ""
    left_out = f"; {source.left_out}" if source.left_out else ""
    return f"from {source.name}{which}{left_out}"
