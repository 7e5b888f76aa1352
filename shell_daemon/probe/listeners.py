"""Unix sockets, and whether who serves them lies outside the guest."""

import os
import socket
import stat
import struct
from contextlib import suppress
from typing import Final

from wire.disk.walk import Entry

from shell_daemon.probe.world import require_tried

_CONNECT_S: Final = 0.1
_CREDENTIALS: Final = struct.Struct("iII")


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
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        try:
            client.connect(address)
        except OSError as error:
            require_tried(error)
            return False
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, _, _ = _CREDENTIALS.unpack(credentials)
    return bool(pid == 0)
