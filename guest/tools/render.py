"""From a tool's output to the text a model gets: virtual paths, redacted, bounded.

Redaction comes before truncation, because a cut through a secret would leave a
part that nothing recognises (docs/design/2026-11-20-redact-before-truncating.md).
"""

import json
from typing import Any, Final

from guest.tools.base import Excerpt, Spliced, ToolOutput
from guest.tools.credentials import SENSITIVE_NAME
from guest.tools.host_paths import HostPaths
from guest.tools.scrub import REDACTED, Scrubber, replaced

_SUMMARY_CHARS: Final = 300
_LINE_BREAKS: Final = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
"""The only ones that JSON leaves as they are; what is quoted cannot begin a line so."""

_NOTES_SHARE: Final = 4
"""Notes may take up to a quarter of an answer; the result has the rest."""


class Renderer:
    """Makes the final texts of one pipeline."""

    def __init__(self, scrubber: Scrubber, host_paths: HostPaths, max_output_bytes: int) -> None:
        self._scrubber = scrubber
        self._host_paths = host_paths
        self._max_bytes = max_output_bytes

    def output(self, output: ToolOutput, at_least_bytes: int = 0) -> str:
        """The text of a result: JSON, then its `Note: ` lines, each one line whatever it quotes.

        It may have `at_least_bytes`, also where the pipeline's bound is lower.
        """
        text = json.dumps(self._clean(output.data), ensure_ascii=False).translate(_LINE_BREAKS)
        notes = [" ".join(self.text(note).split()) for note in output.notes]
        return self._bounded(text, notes, max(self._max_bytes, at_least_bytes))

    def error(self, message: str) -> str:
        """The text of a refusal."""
        return self._bounded(self.text(message), [], self._max_bytes)

    def text(self, text: str) -> str:
        """`text` with virtual paths and without secrets."""
        return self._shown(text, 0, len(text))

    def question(self, text: str) -> str:
        """`text` as a person has to see it who decides on it.

        Whole: what merely has the shape of a secret stays, because a command
        could be dressed up as one to hide from whoever approves it.
        """
        return self._scrubber.scrub_known(text)

    def line(self, text: str) -> str:
        """`text` as one short line for a person who watches."""
        line = " ".join(self.text(text).split())
        return line if len(line) <= _SUMMARY_CHARS else f"{line[: _SUMMARY_CHARS - 1]}…"

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
        """`text[first:last]`; what is to be replaced is found in the whole of `text`."""
        spans = sorted([*self._scrubber.replacements(text), *self._host_paths.spans(text)])
        return replaced(text, spans, first, last)

    def _bounded(self, text: str, notes: list[str], max_bytes: int) -> str:
        tail = "".join(f"\nNote: {note}" for note in notes)
        tail = _cut(tail, max_bytes // _NOTES_SHARE)
        total = len(text.encode())
        if total + len(tail.encode()) <= max_bytes:
            return text + tail
        said = f"\nNote: the result has {total} bytes; only its beginning is shown"
        room = max(0, max_bytes - len(tail.encode()) - len(said.encode()))
        return _cut(text, room) + said + tail


def _cut(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` within `max_bytes` of UTF-8."""
    return text.encode()[:max_bytes].decode(errors="ignore")
