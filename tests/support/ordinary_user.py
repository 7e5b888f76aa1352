"""Tests run as root; this is for what only an account without rights meets."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.scratch import SCRATCH

NOBODY = 65_534
_PR_SET_DUMPABLE = 4


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """Act as an ordinary account within; yields a directory of its own."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="ou-") as made:
        os.chown(made, NOBODY, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)  # its /proc/self is its own again
        try:
            yield Path(made)
        finally:
            os.seteuid(0)
            os.setegid(0)
