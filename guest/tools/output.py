"""Renders results: every host path becomes a virtual path, and a placeholder stands for every
secret."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from wire.text import shortened

from guest.errors import ToolError
from guest.memory.search.context_block import one_line
from guest.tools.base import Excerpt, Spliced, ToolOutput
from guest.tools.redaction.credentials import SENSITIVE_NAME
from guest.tools.redaction.placeholders import SessionSecrets
from guest.tools.redaction.scrubber import REDACTED, Scrubber, Secret, joined, occurrences, replaced

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
        own = [directory for name, directory in roots.items() if "/" not in name]
        if len(workspace := {Path(directory).parent for directory in own}) == 1:
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
_WORDS_CHARS: Final = 80
_LINE_BREAKS: Final = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
"""Line breaks that JSON does not escape; quoted text must not start a line with them."""

_NOTES_SHARE: Final = 4
"""Notes may take up to a quarter of an answer, the result the rest."""

_DATA_SHARE: Final = 8
"""How many times as long as an answer the data for programs may be."""


@dataclass(frozen=True)
class Reader:
    """The model of one session, which sees each secret as its placeholder.

    `in_files`: what it reads can be read by commands, too.
    """

    secrets: SessionSecrets
    in_files: bool = False

    def found(self, text: str) -> Iterable[Secret]:
        """Secrets that were shown before, without what they were recognised by there."""
        for secret in self.secrets.distinct():
            for start, end in occurrences(text, secret):
                yield Secret(start, end, known=False)

    def word(self, secret: str) -> str:
        return self.secrets.placeholder(secret, in_files=self.in_files)


@dataclass(frozen=True)
class Rendered:
    """A result as `text` for a model, and as `data_json`, one object, for a program.

    Where the text shows only the beginning of the data, the object has all of it, or is empty if
    it is much too long. `items` is how many items of the data's only list the text shows, the last
    of them perhaps in part.
    """

    text: str
    data_json: str = ""
    items: int = 0


class Renderer:
    """Makes the final texts of one pipeline: for a `Reader`, or for people and logs, who see every
    secret as `[redacted]`."""

    def __init__(self, scrubber: Scrubber, host_paths: HostPaths, max_output_bytes: int) -> None:
        self._scrubber = scrubber
        self._host_paths = host_paths
        self._max_bytes = max_output_bytes

    def output(self, output: ToolOutput, reader: Reader, at_least_bytes: int = 0) -> Rendered:
        """A result. Its text is JSON, then its `Note: ` lines, each on one line whatever it quotes.

        It may have `at_least_bytes`, even if the pipeline's limit is lower. A list that is too long
        ends after a whole item.
        """
        data = self._clean(output.data, reader)
        max_bytes = max(self._max_bytes, at_least_bytes)
        items = len(_only_list(data) or ())

        def tail(count: int) -> str:
            cursor = output.cursor_after(count)
            more = (f"there is more, if these are not enough: cursor {cursor}",) if cursor else ()
            return self._tail((*more, *output.notes), reader, max_bytes)

        def complete(data: Any, count: int) -> str:
            cursor = output.cursor_after(count)
            return _object(data, {"next_cursor": cursor} if cursor else {})

        if _size(text := _json(data)) + _size(tail(items)) <= max_bytes:
            return Rendered(text + tail(items), complete(data, items), items)
        if (whole := _whole_items(data, tail, complete, max_bytes)) is not None:
            return whole
        shown = complete(data, items) if _size(text) <= _DATA_SHARE * max_bytes else ""
        return Rendered(_beginning(text, tail(1), max_bytes), shown, 1)

    def error(self, error: ToolError, reader: Reader) -> str:
        """The text of an error: its message on one line, then its `Note: ` lines."""
        text = " ".join(self.text(str(error), reader).splitlines())
        tail = self._tail(error.notes, reader, self._max_bytes)
        if _size(text) + _size(tail) <= self._max_bytes:
            return text + tail
        return _beginning(text, tail, self._max_bytes)

    def text(self, text: str, reader: Reader | None = None) -> str:
        """`text` with virtual paths and without secrets."""
        return self._shown(text, 0, len(text), reader)

    def question(self, text: str) -> str:
        """`text` for the person who decides on a call.

        It is complete: text that only looks like a secret stays, because a command could be
        disguised as one to hide from that person.
        """
        return self._scrubber.scrub_known(text)

    def line(self, text: str) -> str:
        """`text` as one short line for a person who watches."""
        return shortened(one_line(self.text(text)), _SUMMARY_CHARS - 1)

    def printed(self, output: ToolOutput) -> str:
        """What a command printed, for a person who watches."""
        pieces = (self._clean(piece, None).rstrip("\n") for piece in output.printed)
        return _cut("\n".join(filter(None, pieces)), self._max_bytes)

    def _tail(self, notes: Iterable[str], reader: Reader, max_bytes: int) -> str:
        lines = (f"\nNote: {one_line(self.text(note, reader))}" for note in notes)
        return _cut("".join(lines), max_bytes // _NOTES_SHARE)

    def _clean(self, value: Any, reader: Reader | None) -> Any:
        match value:
            case Excerpt():
                whole = value.before + value.text + value.after
                first = len(value.before)
                last = first + len(value.text)
                return self._shown(whole, first, last, reader, quotes=True)
            case Spliced():
                return "".join(self._clean(part, reader) for part in value.parts)
            case str():
                return self._shown(value, 0, len(value), reader, quotes=True)
            case dict():
                return {key: self._field(key, item, reader) for key, item in value.items()}
            case list() | tuple():
                return [self._clean(item, reader) for item in value]
            case _:
                return value

    def _field(self, key: str, value: Any, reader: Reader | None) -> Any:
        if isinstance(value, str) and value and SENSITIVE_NAME.fullmatch(key):
            return REDACTED
        return self._clean(value, reader)

    def _shown(
        self, text: str, first: int, last: int, reader: Reader | None, *, quotes: bool = False
    ) -> str:
        """`text[first:last]`; replacements are found in the whole of `text`.

        Of a secret that is cut, a placeholder stands for the part that would be shown. A host path
        that overlaps a secret is part of it. With `quotes`, `[redacted]` in the text itself gets a
        placeholder of its own: alone it stands for secrets of the launch. Lone surrogates, which no
        text for a model can hold, become question marks.
        """
        if not text.isascii():
            text = text.encode(errors="replace").decode()
        found = self._scrubber.found(text)
        if reader is not None:
            of_text = occurrences(text, REDACTED) if quotes else ()
            literal = (Secret(start, end, known=False) for start, end in of_text)
            found = joined([*found, *reader.found(text), *literal])
        paths = ((start, end, False, name) for start, end, name in self._host_paths.spans(text))
        spans: list[tuple[int, int, bool, str]] = []
        for start, end, known, name in sorted([*((*one, "") for one in found), *paths]):
            if spans and start < spans[-1][1]:
                before = spans[-1]
                spans[-1] = (before[0], max(end, before[1]), known or before[2], "")
            else:
                spans.append((start, end, known, name))
        words = [
            (
                start,
                end,
                name or self._word(text[max(start, first) : min(end, last)], known, reader),
            )
            for start, end, known, name in spans
            if end > first and start < last
        ]
        return replaced(text, words, first, last)

    def _word(self, secret: str, known: bool, reader: Reader | None) -> str:
        return REDACTED if known or reader is None else reader.word(secret)


def first_words(text: str) -> str:
    """The beginning of a note in one line, as receipts and questions show it."""
    return shortened(one_line(text), _WORDS_CHARS)


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False).translate(_LINE_BREAKS)


def _object(data: Any, more: dict[str, str]) -> str:
    """`data` as the JSON of one object: what is none is its `results`."""
    return _json((data if isinstance(data, dict) else {"results": data}) | more)


def _whole_items(
    data: Any,
    tail: Callable[[int], str],
    complete: Callable[[Any, int], str],
    max_bytes: int,
) -> Rendered | None:
    """`data` with as many first items of its only list as fit, as text with its `tail` and
    `complete`; None if there is no such list or no item fits."""
    items = _only_list(data)
    if items is None:
        return None
    key = "" if data is items else next(name for name in data if data[name] is items)

    def shown(count: int) -> Any:
        return items[:count] if data is items else {**data, key: items[:count]}

    def answer(count: int) -> str:
        said = f"\nNote: only the first {count} of {len(items)} fit into one result"
        return _json(shown(count)) + said + tail(count)

    count = bisect_right(range(1, len(items)), max_bytes, key=lambda count: _size(answer(count)))
    return Rendered(answer(count), complete(shown(count), count), count) if count else None


def _only_list(data: Any) -> list[Any] | None:
    values = data.values() if isinstance(data, dict) else (data,)
    lists = [value for value in values if isinstance(value, list)]
    return lists[0] if len(lists) == 1 else None


def _beginning(text: str, tail: str, max_bytes: int) -> str:
    said = f"\nNote: the result has {_size(text)} bytes; only its beginning is shown"
    return _cut(text, max(0, max_bytes - _size(tail) - _size(said))) + said + tail


def _size(text: str) -> int:
    return len(text.encode())


def _cut(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` within `max_bytes` of UTF-8."""
    return text.encode()[:max_bytes].decode(errors="ignore")
