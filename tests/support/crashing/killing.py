"""Kill a child that reports what it has done, and read the rest of what it said."""

import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess


def kill(child: ForkServerProcess, reader: Connection, last: int) -> int:
    """End `child`, which must still run, with SIGKILL. Returns the last number that it has sent to
    `reader`, or `last` if nothing was waiting there."""
    assert child.pid is not None
    assert child.exitcode is None, "the child ended by itself"
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    while True:
        try:
            last = reader.recv()
        except (EOFError, OSError):  # the end, or a word that was cut off
            return last
