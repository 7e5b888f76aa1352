"""What is kept of one output stream: its beginning and its end, whatever its length."""

from typing import Final

CONTEXT_BYTES: Final = 8192
"""Kept beyond what can be shown, so that redaction sees around the cuts."""


class Kept:
    """The first and the last `budget` bytes of a stream, each with `CONTEXT_BYTES`
    more; memory does not grow with the stream.

    `total` counts every byte, those included that the shell had to drop before
    they could be read. `place` is the offset at which reading goes on.
    """

    def __init__(self, budget: int) -> None:
        self._most = budget + CONTEXT_BYTES
        self._head = bytearray()
        self._tail = bytearray()
        self._head_is_done = False
        self.place = 0

    @property
    def total(self) -> int:
        return self.place

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The end of the stream; it follows `head` at once where `gap` is 0."""
        return bytes(self._tail[-self._most :])

    @property
    def gap(self) -> int:
        """Bytes between `head` and `tail` that are gone."""
        return self.total - len(self._head) - len(self.tail)

    def add(self, offset: int, data: bytes) -> None:
        """Take in `data`, which begins at `offset`; what was read before is ignored,
        and what lies between was dropped by the shell."""
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
