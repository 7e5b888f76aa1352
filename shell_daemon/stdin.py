"""What a command reads: offset-idempotent writes into a bounded queue."""

import asyncio
import contextlib
import os
from typing import Final

from wire.errors import Code, WireError

_WAIT_S: Final = 5.0


class StandardInput:
    """A command's standard input.

    Bytes are accepted into a queue of `capacity`, and written to the pipe as
    the command reads. Nothing is ever written twice: every write names the
    offset it begins at.
    """

    def __init__(self, initial: bytes, keep_open: bool, capacity: int) -> None:
        self._queue = bytearray(initial)
        self._accepted = len(initial)
        self._capacity = capacity
        self._descriptor = -1
        self._why_closed = "" if keep_open else "it was closed by the caller"
        self._writing = False
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.wanted = bool(initial) or keep_open
        """Whether there is anything to read at all."""

    def attach(self, descriptor: int) -> None:
        """Begin to write into a pipe, which is closed after the last byte."""
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._write()

    async def write(self, offset: int, data: bytes, close: bool) -> int:
        """Accept what is new in `data`, which begins at `offset`; close it after
        the last byte if asked. Returns how many bytes were accepted in all.

        Where the queue is full that may be less than was sent: it waits for the
        command to read, but not for long, and the caller sends the rest again.
        Raises CONFLICT where bytes between are missing, and FAILED_PRECONDITION
        for new bytes when nobody can read them any more.
        """
        deadline = self._loop.time() + _WAIT_S
        while True:
            if offset > self._accepted:
                raise WireError(
                    Code.CONFLICT,
                    f"offset: {offset} is beyond the {self._accepted} bytes accepted so far",
                    details="standard input has no holes",
                    resolution=f"send from offset {self._accepted} on",
                )
            fresh = data[self._accepted - offset :]
            if not fresh:
                break
            if self._why_closed:
                raise WireError(
                    Code.FAILED_PRECONDITION,
                    f"standard input takes no more: {self._why_closed}",
                    details=f"{self._accepted} bytes were accepted",
                )
            if taken := fresh[: max(0, self._capacity - len(self._queue))]:
                self._accept(taken)
                break
            if not await self._wait(deadline):
                break
        if close and offset + len(data) <= self._accepted and not self._why_closed:
            self._shut("it was closed by the caller")
        return self._accepted

    def end(self) -> None:
        """The command has ended; what it did not read is dropped. Idempotent."""
        self._queue.clear()
        self._why_closed = self._why_closed or "the command has ended"
        self._close()
        self._changed.set()

    def _accept(self, data: bytes) -> None:
        self._queue += data
        self._accepted += len(data)
        self._write()

    def _shut(self, why: str) -> None:
        self._why_closed = why
        self._write()

    async def _wait(self, deadline: float) -> bool:
        """Whether the queue moved before `deadline`."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
                return True
        return False

    def _write(self) -> None:
        if self._descriptor < 0:
            return
        try:
            while self._queue:
                del self._queue[: os.write(self._descriptor, self._queue)]
                self._changed.set()
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._descriptor, self._write)
            return
        except BrokenPipeError:
            self._why_closed = self._why_closed or "the command closed it"
            self._queue.clear()
            self._changed.set()
        if self._why_closed:
            self._close()
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._descriptor)

    def _close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
