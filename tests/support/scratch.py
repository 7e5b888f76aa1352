"""Where tests keep their files: in memory where there is room, as a disk is slow to sync."""

import os
import shutil
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 4 * 2**30


def _directory() -> str:
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return "/tmp"
    return str(_MEMORY)


SCRATCH: Final = _directory()
"""A folder for temporary files with a short path: the path of a socket has 107 bytes at most."""
