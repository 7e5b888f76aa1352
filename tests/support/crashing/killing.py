"""Kill a child that reports what it does, and read all of what it said."""

import itertools
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

Line = dict[str, Any]
"""What a child says: a JSON object."""
_END_S: Final = 60.0
"""How long the end of a pipe is waited for, after its writer has ended."""


class Lines:
    """The lines that a process writes to a pipe; `hear` is called with each, once."""

    def __init__(self, reader: "Connection[object, object]", hear: Callable[[Line], None]) -> None:
        self._reader = reader
        self._hear = hear
        self._unheard = b""

    def listen(self, seconds: float, until: Callable[[Line], bool] = lambda _: False) -> bool:
        """Hear what comes for so long, or up to a line; whether that line has come. What
        arrived behind that line is heard the next time."""
        end = time.monotonic() + seconds
        while not any(map(until, self._whole())):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return False
            if not (part := os.read(self._reader.fileno(), 65536)):
                return False
            self._unheard += part
        return True

    def close(self) -> None:
        """Hear the rest, up to the end of the process."""
        self.listen(_END_S)
        self._reader.close()

    def _whole(self) -> Iterator[Line]:
        while b"\n" in self._unheard:
            line, _, self._unheard = self._unheard.partition(b"\n")
            said: Line = json.loads(line)
            self._hear(said)
            yield said


def times(count: int, word: str) -> Callable[[Line], bool]:
    """Whether a line is the last of so many with this word."""
    left = itertools.count(count - 1, -1)
    return lambda line: word in line and next(left) <= 0


def end(child: ForkServerProcess) -> None:
    """End `child`, which must still run, with SIGKILL."""
    assert child.pid is not None
    assert child.exitcode is None, "the child ended by itself"
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def kill(child: ForkServerProcess, reader: Connection, last: int) -> int:
    """End `child`. Returns the last number that it has sent to `reader`, or `last` if nothing was
    waiting there."""
    end(child)
    while True:
        try:
            last = reader.recv()
        except (EOFError, OSError):  # the end, or a word that was cut off
            return last
