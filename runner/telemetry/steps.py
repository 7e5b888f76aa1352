"""Steps that a guest tells of, checked: names and attributes are those of this table, or dropped.

So no sentence travels as an attribute. A guest that was taken over could still spell something in
ids; it has no other way out through here.
"""

import re
import time
from dataclasses import dataclass
from typing import Final, Self

from wire.limits import ID_PATTERN
from wire.v1 import gateway_pb2 as pb

NAMES: Final = frozenset({"turn", "model", "tool", "memory", "shell"})
_ID: Final = rf"({ID_PATTERN})?"
_WORDS: Final = {
    "tool": r"[a-z][a-z0-9_-]{0,79}",
    "safety": r"(read_only|side_effecting|privileged)?",
    "outcome": r"[a-z_]{0,32}",
    "channel": _ID,
    "session": _ID,
    "turn": _ID,
    "operation": r"(save|update|search|embed|rerank)",
    "kind": "(memory|typed_memory|working_memory)",
    "note_id": _ID,
    "model": r"[a-z]{1,16}:?[A-Za-z0-9._:/@-]{0,100}",
}
WORDS: Final = {name: re.compile(pattern, re.ASCII) for name, pattern in _WORDS.items()}
COUNTS: Final = frozenset({"input_tokens", "output_tokens", "cached_tokens"})
_COUNT_MAX: Final = 10**12
_PAST_NS: Final = 2 * 86_400 * 10**9
_FUTURE_NS: Final = 60 * 10**9


@dataclass(frozen=True)
class Step:
    """A step that has ended. Times are in nanoseconds since 1970."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start: int
    end: int
    words: dict[str, str]
    counts: dict[str, int]
    failed: bool

    @classmethod
    def of(cls, span: pb.Span) -> Self | None:
        """None for what is no step that a guest of ours tells."""
        now = time.time_ns()
        start, end = span.start_unix_nano, span.end_unix_nano
        lengths = len(span.trace_id), len(span.span_id), len(span.parent_span_id)
        if span.name not in NAMES or lengths[:2] != (16, 8) or lengths[2] not in (0, 8):
            return None
        if not (any(span.trace_id) and any(span.span_id)):
            return None
        if not now - _PAST_NS < start <= end < now + _FUTURE_NS:
            return None
        words = {
            key: text
            for key, text in span.words.items()
            if text and key in WORDS and WORDS[key].fullmatch(text)
        }
        counts = {
            key: count
            for key, count in span.counts.items()
            if key in COUNTS and count <= _COUNT_MAX
        }
        return cls(
            span.name,
            int.from_bytes(span.trace_id),
            int.from_bytes(span.span_id),
            int.from_bytes(span.parent_span_id),
            start,
            end,
            words,
            counts,
            span.failed,
        )

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end - self.start) / 1e9
