"""The streams of a command, by byte offsets: bounded buffers of its output, and a standard input
that stays open."""

import asyncio
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError
from wire.v1.shell_pb2 import OutputChunk

_READ_BYTES: Final = 65536
_SMALL_BYTES: Final = 1024
_JOIN_S: Final = 0.005
"""How long a pipe is not read after a small piece: it joins what is written meanwhile."""
DRAIN_MAX_BYTES: Final = 1024 * 1024
"""How much is still read after a command's end: the largest pipe that an unprivileged process
can have."""


class RingBuffer:
    """The newest `capacity` bytes of a stream, from offset `start` to offset `end`.

    Bytes from the offset `hold` on are kept even beyond the capacity.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._data = bytearray()
        self.start = 0

    @property
    def end(self) -> int:
        return self.start + len(self._data)

    def append(self, data: bytes, hold: int | None = None) -> None:
        self._data += data
        self.trim(hold)

    def trim(self, hold: int | None = None) -> None:
        """Drop the oldest bytes beyond the capacity, but none from `hold` on."""
        keep_from = self.end - self._capacity
        if hold is not None:
            keep_from = min(keep_from, hold)
        if keep_from > self.start:
            del self._data[: keep_from - self.start]
            self.start = keep_from

    def room(self, hold: int | None) -> int | None:
        """How many more bytes fit without losing one from `hold` on; None for no limit."""
        if hold is None:
            return None
        return max(0, self._capacity - (self.end - max(hold, self.start)))

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`, which must be at least `start`."""
        index = offset - self.start
        return bytes(self._data[index : index + limit])


class RingFile(RingBuffer):
    """The same in a file without a name in `directory`: the newest `capacity` bytes, whoever reads.
    If the disk takes no more, all is dropped."""

    def __init__(self, capacity: int, directory: Path) -> None:
        self._capacity, self.start, self._end = capacity, 0, 0
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)

    @property
    def end(self) -> int:
        return self._end

    def append(self, data: bytes, hold: int | None = None) -> None:
        try:
            for part, place in self._parts(self._end, len(data)):
                if os.pwrite(self._file, data[part], place) < part.stop - part.start:
                    raise OSError
        except OSError:
            self.start = self._end + len(data)
        self._end += len(data)
        self.trim(hold)

    def trim(self, hold: int | None = None) -> None:  # noqa: ARG002
        """Drop the oldest bytes beyond the capacity."""
        self.start = max(self.start, self._end - self._capacity)

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`, which must be at least `start`."""
        parts = self._parts(offset, max(0, min(limit, self._end - offset)))
        return b"".join(os.pread(self._file, part.stop - part.start, at) for part, at in parts)

    def _parts(self, offset: int, size: int) -> list[tuple[slice, int]]:
        """Where a piece of at most the capacity stands, as its parts and their places."""
        place = offset % self._capacity
        first = min(size, self._capacity - place)
        return [(slice(0, first), place), (slice(first, size), 0)]


class Cursor:
    """One reader's place in one stream."""

    def __init__(self, buffer: RingBuffer, offset: int, moved: Callable[[], None]) -> None:
        self._buffer = buffer
        self._moved = moved
        self.offset = offset

    def next(self, limit: int) -> OutputChunk | None:
        """The bytes after the last `advance`, or None if there are none yet."""
        offset = max(self.offset, self._buffer.start)
        data = self._buffer.read(offset, limit)
        return OutputChunk(offset=offset, data=data) if data else None

    def advance(self, chunk: OutputChunk) -> None:
        self.offset = chunk.offset + len(chunk.data)
        self._moved()


class OutputStream:
    """One of a command's two output pipes; calls `changed` when bytes arrive."""

    def __init__(self, buffer: RingBuffer, changed: Callable[[], None]) -> None:
        self._buffer = buffer
        self._changed = changed
        self._cursors: set[Cursor] = set()
        self._descriptor = -1
        self._paused = False
        self._sealed = False
        self._loop = asyncio.get_running_loop()

    @property
    def total(self) -> int:
        """Bytes written so far, dropped ones included."""
        return self._buffer.end

    def read(self, offset: int, limit: int) -> OutputChunk:
        """What there is from `offset` on, or from where it begins."""
        offset = min(max(offset, self._buffer.start), self.total)
        return OutputChunk(offset=offset, data=self._buffer.read(offset, limit))

    def attach(self, descriptor: int) -> None:
        """Start to read from a pipe; the stream closes it at its end."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._watch()

    def add(self, data: bytes) -> None:
        """Append bytes that come from the daemon itself."""
        self._buffer.append(data, self._hold())
        self._changed()

    @contextmanager
    def cursor(self, offset: int) -> Iterator[Cursor]:
        """A cursor at `offset`; while it is open, unread bytes are kept."""
        cursor = Cursor(self._buffer, offset, self._resume)
        self._cursors.add(cursor)
        try:
            yield cursor
        finally:
            self._cursors.discard(cursor)
            self._buffer.trim(self._hold())
            self._resume()

    def seal(self) -> None:
        """Read what the pipe of an ended command still holds, and keep nothing after that.

        If a process that the command left behind still writes to the pipe, its output is read
        and thrown away.
        """
        drained = 0
        while self._descriptor >= 0 and drained < DRAIN_MAX_BYTES:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                break
            drained += len(data)
            self._take(data)
        self._sealed = True
        self._resume()

    def close(self) -> None:
        """Stop reading; what was read stays. Idempotent."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _resume(self) -> None:
        """Read on if the pipe was paused and there is room, or nothing is kept any more."""
        if self._paused and self._room() != 0:
            self._paused = False
            self._watch()

    def _watch(self) -> None:
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._readable)

    def _readable(self) -> None:
        if (room := self._room()) == 0:
            self._paused = True
            self._loop.remove_reader(self._descriptor)
            return
        try:
            data = os.read(self._descriptor, min(_READ_BYTES, room or _READ_BYTES))
        except BlockingIOError:
            return
        if 0 < len(data) < min(_SMALL_BYTES, room or _SMALL_BYTES):
            self._loop.remove_reader(self._descriptor)
            self._loop.call_later(_JOIN_S, self._watch)
        if not self._sealed:
            self._take(data)
        elif not data:
            self.close()

    def _take(self, data: bytes) -> None:
        if data:
            self._buffer.append(data, self._hold())
            self._changed()
        else:
            self.close()

    def _room(self) -> int | None:
        """How many bytes may be read now; None for no limit."""
        return None if self._sealed else self._buffer.room(self._hold())

    def _hold(self) -> int | None:
        return min((cursor.offset for cursor in self._cursors), default=None)


class InputStream:
    """A pipe to a command's standard input. Nothing is kept here: a write waits for the command."""

    def __init__(self) -> None:
        self.total = 0
        """Bytes that the pipe has taken."""
        self._descriptor = -1
        self._writing = asyncio.Lock()
        self._waiting: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    def attach(self, descriptor: int) -> None:
        """Write to a pipe from now on; the stream closes it."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def write(self, offset: int, data: bytes) -> None:
        """Write what of `data`, which begins at `offset`, was not taken yet.

        Raises `WireError`: INVALID_ARGUMENT for an offset beyond `total`, FAILED_PRECONDITION if
        the command reads no more.
        """
        async with self._writing:
            if offset > self.total:
                raise WireError(
                    Code.INVALID_ARGUMENT,
                    f"offset: {offset} is beyond what was written",
                    details=f"accepted: up to {self.total}",
                )
            end = offset + len(data)
            while self.total < end:
                if self._descriptor < 0:
                    raise WireError(Code.FAILED_PRECONDITION, "standard input is closed")
                try:
                    self.total += os.write(self._descriptor, data[self.total - offset :])
                except BlockingIOError:
                    await self._writable()
                except BrokenPipeError:
                    self.close()

    def close(self) -> None:
        """Let the command read the end of file. Idempotent."""
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        self._wake()

    async def _writable(self) -> None:
        self._waiting = self._loop.create_future()
        self._loop.add_writer(self._descriptor, self._wake)
        try:
            await self._waiting
        finally:
            if self._descriptor >= 0:
                self._loop.remove_writer(self._descriptor)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
