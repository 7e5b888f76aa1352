"""Locks of open files. The kernel releases one however its holder ends, so none is ever stale."""

import fcntl
import time
from typing import Final

_PAUSE_S: Final = 0.02


def take(file: int, *, wait_s: float = 0.0, shared: bool = False) -> bool:
    """Lock an open file; false if others still hold it after `wait_s` seconds.

    It polls, because a lock has no event to wait for. Raises `OSError` if the file system has no
    locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(_PAUSE_S)
