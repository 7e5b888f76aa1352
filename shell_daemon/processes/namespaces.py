"""A process namespace for commands, where the kernel does not shield the daemon from them.

Linux closes the descriptors and the environment of a concealed process to others of its user, and
keeps their signals from the first process of its namespace. gVisor's kernel does neither, but it
has namespaces: there the zygote becomes the first process of one of its own, with a /proc that
shows only what is in it, so that no command sees the daemon.
"""

import ctypes
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from wire.kernel import prctl

_NEW_MOUNTS: Final = 0x0002_0000
_NEW_USERS: Final = 0x1000_0000
_NEW_PROCESSES: Final = 0x2000_0000
_NO_SETUID_DEVICES_OR_PROGRAMS: Final = 2 | 4 | 8
_CHUNK: Final = 65536


def needed(first: int = 1) -> bool:
    """Whether commands would see the process `first`, which is concealed.

    With capabilities they do everywhere. No guest should give them any: there this is left as it
    is, and the boundary self-test says so.
    """
    status = Path("/proc/self/status").read_text()
    capable = int(status.partition("\nCapEff:")[2].split()[0], 16)
    return not capable and not is_shielded(first)


def is_shielded(first: int = 1) -> bool:
    """Whether the kernel closes the process `first`, which is concealed, to this one."""
    try:
        os.close(os.open(f"/proc/{first}/environ", os.O_RDONLY))
    except OSError:
        return True
    return False


def enter() -> None:
    """Go on as the first process of a process namespace, without any capability.

    The process that called this stays outside as a guard and never returns: it ends with the one
    inside, passes on what that writes to standard error, and lets it go on after it was stopped.
    Raises `OSError` if the kernel has no such namespaces.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    ids = {"uid_map": os.getuid(), "gid_map": os.getgid()}
    prctl.check("unshare", libc.unshare(_NEW_USERS | _NEW_MOUNTS | _NEW_PROCESSES))
    with suppress(OSError):  # where it can be denied, it must be before groups can be mapped
        _write("setgroups", "deny")
    for name, number in ids.items():
        _write(name, f"{number} {number} 1")
    outside, inside = socket.socketpair()
    child = os.fork()
    if child:
        inside.close()
        _guard(child, outside)
    outside.close()
    prctl.die_with_parent()
    # Through /proc a command opens every pipe and file that it finds in here, but no socket.
    os.dup2(inside.fileno(), 2)
    inside.close()
    mounted = libc.mount(b"proc", b"/proc", b"proc", _NO_SETUID_DEVICES_OR_PROGRAMS, None)
    prctl.check("mount", mounted)
    prctl.drop_capabilities()


def _guard(child: int, messages: socket.socket) -> NoReturn:
    prctl.conceal()
    signal.signal(signal.SIGCONT, lambda *_: os.kill(child, signal.SIGCONT))
    while said := messages.recv(_CHUNK):
        os.write(2, said)
    os.waitpid(child, 0)
    os._exit(0)


def _write(name: str, content: str) -> None:
    with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
        file.write(content)
