"""The beginning and the end of a command's output, as text that fits a tool result."""

import json
from dataclasses import dataclass
from typing import Final

from wire.text import visible

from guest.tools.base import EXCERPT_CONTEXT_CHARS, Excerpt, Spliced

CONTEXT_BYTES: Final = 8192
"""How much more than can be shown is stored, so that redaction sees both sides of a cut."""


class StreamEnds:
    """The first and the last `budget` bytes of a stream, each with `CONTEXT_BYTES` more.

    Its size does not grow with the stream. `place` is the offset at which to read on: the
    length of the stream, including bytes that the shell dropped before they could be read.
    """

    def __init__(self, budget: int) -> None:
        self._most = budget + CONTEXT_BYTES
        self._head = bytearray()
        self._tail = bytearray()
        self._head_is_done = False
        self.place = 0

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The end of the stream; it directly follows `head` if `gap` is 0."""
        return bytes(self._tail[-self._most :])

    @property
    def gap(self) -> int:
        """How many bytes between `head` and `tail` are missing."""
        return self.place - len(self._head) - len(self.tail)

    def add(self, offset: int, data: bytes) -> None:
        """Add `data`, which begins at `offset`.

        Bytes before `place` are ignored, because they were read before. Bytes between `place` and
        `offset` were dropped by the shell.
        """
        if offset > self.place:
            self._head_is_done = True
            self._tail.clear()
            self.place = offset
        data = data[self.place - offset :]
        self.place += len(data)
        if not self._head_is_done:
            room = self._most - len(self._head)
            self._head += data[:room]
            data = data[room:]
            self._head_is_done = len(self._head) == self._most
        self._tail += data
        if len(self._tail) > 2 * self._most:
            del self._tail[: -self._most]


_DOUBLED: Final = frozenset('"\\\n\t')


@dataclass(frozen=True)
class StreamView:
    """One stream in a result; `left_out` is roughly the number of bytes missing from it."""

    value: str | Spliced
    left_out: int = 0


def readable(data: bytes) -> str:
    """`data` as text with control characters escaped and all line ends as newlines."""
    text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return visible(text)


def both(stdout: StreamEnds, stderr: StreamEnds, budget: int) -> tuple[StreamView, StreamView]:
    """Both streams within `budget` bytes of JSON; each may take at least half of it."""
    first, second = _cost_of(stdout), _cost_of(stderr)
    return (
        _shown(stdout, max(budget // 2, budget - second)),
        _shown(stderr, max(budget // 2, budget - first)),
    )


def _cost_of(kept: StreamEnds) -> int:
    if kept.gap:
        return kept.place
    return _cost(readable(kept.head + kept.tail))


def _cost(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


def _shown(kept: StreamEnds, budget: int) -> StreamView:
    if kept.gap:
        head, tail = readable(kept.head), readable(kept.tail)
    else:
        whole = readable(kept.head + kept.tail)
        if _cost(whole) <= budget:
            return StreamView(whole)
        head = tail = whole
    first = _fitting(head, budget // 2)
    last = len(tail) - _fitting(tail[::-1], budget // 2)
    if kept.gap:
        left_out = kept.gap + len(head[first:].encode()) + len(tail[:last].encode())
    else:
        left_out = len(head[first:last].encode())
    mark = f"\n[… about {left_out} bytes left out …]\n"
    context = EXCERPT_CONTEXT_CHARS
    parts = (
        Excerpt(head[:first], after=head[first : first + context]),
        mark,
        Excerpt(tail[last:], before=tail[max(0, last - context) : last]),
    )
    return StreamView(Spliced(parts), left_out)


def _fitting(text: str, budget: int) -> int:
    """How many characters of `text` fit into `budget` bytes of JSON."""
    spent = 0
    for count, letter in enumerate(text):
        spent += 2 if letter in _DOUBLED else len(letter.encode())
        if spent > budget:
            return count
    return len(text)
