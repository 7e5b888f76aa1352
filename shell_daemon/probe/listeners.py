"""Unix sockets, and whether who serves them lies outside the guest."""

import os
import stat
from contextlib import suppress

from wire.disk import Entry, listener
from wire.ways_out import require_tried


def foreign_socket(directory: int | None, name: str, uid: int) -> str:
    """What is wrong with the socket `name`; "" if a process of this guest, with `uid`, made it."""
    with suppress(FileNotFoundError):
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory)
        try:
            if os.fstat(descriptor).st_uid != uid:
                return "there, a socket of another user"
            if is_served_outside(f"/proc/self/fd/{descriptor}"):
                return "served from outside the guest"
        finally:
            os.close(descriptor)
    return ""


def is_socket(entry: Entry) -> bool:
    """Whether it is one; the listing says it of files, links and directories."""
    if entry.is_plain or entry.found.is_dir(follow_symlinks=False):
        return False
    with suppress(FileNotFoundError):
        return stat.S_ISSOCK(entry.found.stat(follow_symlinks=False).st_mode)
    return False


def is_served_outside(address: str) -> bool:
    """Whether a listener at `address` is outside: the kernel reports process id 0 for it."""
    try:
        return listener(address) == 0
    except OSError as error:
        require_tried(error)
        return False
