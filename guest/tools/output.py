"""Renders results: every host path becomes a virtual path, and every secret is redacted."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from guest.errors import ToolError
from guest.memory.search.context_block import one_line
from guest.tools.base import Excerpt, Spliced, ToolOutput
from guest.tools.redaction.credentials import SENSITIVE_NAME
from guest.tools.redaction.scrubber import REDACTED, Scrubber, replaced

PRIVATE = "[private]"
WORKSPACE = "[workspace]"


class HostPaths:
    """Finds the workspace's paths in text. Immutable.

    `roots` maps names of virtual roots to host directories. `private` directories have no virtual
    name and become `[private]`; the directory that holds all roots becomes `[workspace]`. A root
    whose host path equals its virtual path (in a container) is left unchanged.
    """

    def __init__(
        self, roots: Mapping[str, str | PathLike[str]], private: Iterable[str | PathLike[str]] = ()
    ) -> None:
        names: dict[str, str] = {}
        if len(workspace := {Path(directory).parent for directory in roots.values()}) == 1:
            names |= dict.fromkeys(_spellings(workspace.pop()), WORKSPACE)
        for directory in private:
            names |= dict.fromkeys(_spellings(directory), PRIVATE)
        for name, directory in roots.items():
            names |= dict.fromkeys(_spellings(directory), f"/{name}")
        self._names = {path: name for path, name in names.items() if path != name and len(path) > 1}
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile(
            rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-]|\.\w)"
            if longest_first
            else r"(?!)"
        )

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """The host paths in `text` and their replacements; sorted, not overlapping."""
        return [(*m.span(), self._names[m.group()]) for m in self._pattern.finditer(text)]


def _spellings(directory: str | PathLike[str]) -> set[str]:
    given = fspath(directory).rstrip("/")
    return {given, str(Path(given).resolve())}


_SUMMARY_CHARS: Final = 300
_LINE_BREAKS: Final = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
"""Line breaks that JSON does not escape; quoted text must not start a line with them."""

_NOTES_SHARE: Final = 4
"""Notes may take up to a quarter of an answer, the result the rest."""


class Renderer:
    """Makes the final texts of one pipeline."""

    def __init__(self, scrubber: Scrubber, host_paths: HostPaths, max_output_bytes: int) -> None:
        self._scrubber = scrubber
        self._host_paths = host_paths
        self._max_bytes = max_output_bytes

    def output(self, output: ToolOutput, at_least_bytes: int = 0) -> str:
        """A result's text: JSON, then its `Note: ` lines, each on one line whatever it quotes.

        It may have `at_least_bytes`, even if the pipeline's limit is lower. A list that is too long
        ends after a whole item.
        """
        data = self._clean(output.data)
        max_bytes = max(self._max_bytes, at_least_bytes)
        tail = self._tail(output.notes, max_bytes)
        if _size(text := _json(data)) + _size(tail) <= max_bytes:
            return text + tail
        return _whole_items(data, tail, max_bytes) or _beginning(text, tail, max_bytes)

    def error(self, error: ToolError) -> str:
        """The text of an error: its message on one line, then its `Note: ` lines."""
        text = " ".join(self.text(str(error)).splitlines())
        tail = self._tail(error.notes, self._max_bytes)
        if _size(text) + _size(tail) <= self._max_bytes:
            return text + tail
        return _beginning(text, tail, self._max_bytes)

    def text(self, text: str) -> str:
        """`text` with virtual paths and without secrets."""
        return self._shown(text, 0, len(text))

    def question(self, text: str) -> str:
        """`text` for the person who decides on a call.

        It is complete: text that only looks like a secret stays, because a command could be
        disguised as one to hide from that person.
        """
        return self._scrubber.scrub_known(text)

    def line(self, text: str) -> str:
        """`text` as one short line for a person who watches."""
        line = one_line(self.text(text))
        return line if len(line) <= _SUMMARY_CHARS else f"{line[: _SUMMARY_CHARS - 1]}…"

    def _tail(self, notes: Iterable[str], max_bytes: int) -> str:
        lines = (f"\nNote: {one_line(self.text(note))}" for note in notes)
        return _cut("".join(lines), max_bytes // _NOTES_SHARE)

    def _clean(self, value: Any) -> Any:
        match value:
            case Excerpt():
                whole = value.before + value.text + value.after
                first = len(value.before)
                return self._shown(whole, first, first + len(value.text))
            case Spliced():
                return "".join(self._clean(part) for part in value.parts)
            case str():
                return self.text(value)
            case dict():
                return {key: self._field(key, item) for key, item in value.items()}
            case list() | tuple():
                return [self._clean(item) for item in value]
            case _:
                return value

    def _field(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and value and SENSITIVE_NAME.fullmatch(key):
            return REDACTED
        return self._clean(value)

    def _shown(self, text: str, first: int, last: int) -> str:
        """`text[first:last]`; replacements are found in the whole of `text`.

        Lone surrogates, which no text for a model can hold, become question marks.
        """
        if not text.isascii():
            text = text.encode(errors="replace").decode()
        spans = sorted([*self._scrubber.replacements(text), *self._host_paths.spans(text)])
        return replaced(text, spans, first, last)


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False).translate(_LINE_BREAKS)


def _whole_items(data: Any, tail: str, max_bytes: int) -> str:
    """`data` with as many first items of its only list as fit, their number, and `tail`; empty
    if there is no such list or no item fits."""
    fields = data if isinstance(data, dict) else {"": data}
    lists = [key for key, value in fields.items() if isinstance(value, list)]
    if len(lists) != 1:
        return ""
    (key,) = lists
    items = fields[key]

    def answer(count: int) -> str:
        shown = items[:count] if data is items else {**data, key: items[:count]}
        said = f"\nNote: only the first {count} of {len(items)} fit into one result"
        return _json(shown) + said + tail

    count = bisect_right(range(1, len(items)), max_bytes, key=lambda count: _size(answer(count)))
    return answer(count) if count else ""


def _beginning(text: str, tail: str, max_bytes: int) -> str:
    said = f"\nNote: the result has {_size(text)} bytes; only its beginning is shown"
    return _cut(text, max(0, max_bytes - _size(tail) - _size(said))) + said + tail


def _size(text: str) -> int:
    return len(text.encode())


def _cut(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` within `max_bytes` of UTF-8."""
    return text.encode()[:max_bytes].decode(errors="ignore")
