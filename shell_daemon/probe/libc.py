"""System calls that Python does not offer."""

import ctypes
import errno
import os
from typing import Final

from wire.kernel.prctl import check

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWUSER: Final = 0x1000_0000
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
_MNT_DETACH: Final = 2
_PTRACE_DETACH: Final = 17
_PTRACE_SEIZE: Final = 0x4206
_PR_GET_NO_NEW_PRIVS: Final = 39
_KEY_CALLS: Final = {
    "x86_64": {"add_key": 248, "request_key": 249, "keyctl": 250},
    "aarch64": {"add_key": 217, "request_key": 218, "keyctl": 219},
}

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_LIBC.ptrace.restype = ctypes.c_long
_LIBC.mount.argtypes = (
    *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p),
    *(ctypes.c_ulong, ctypes.c_char_p),
)


def mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    """Raises `OSError` if the kernel refuses, as do the other calls here."""
    names = [None if name is None else os.fsencode(name) for name in (source, target, kind)]
    check("mount", _LIBC.mount(*names, flags, None))


def unmount(target: str) -> None:
    check("umount", _LIBC.umount2(os.fsencode(target), _MNT_DETACH))


def unshare(flags: int) -> None:
    check("unshare", _LIBC.unshare(flags))


def trace(pid: int) -> None:
    """Attach to a process as a debugger does, then detach."""
    check("ptrace", _LIBC.ptrace(_PTRACE_SEIZE, pid, None, None))
    _LIBC.ptrace(_PTRACE_DETACH, pid, None, None)


def no_new_privileges() -> bool:
    """Whether no program that this process runs can have more rights than it has."""
    return bool(_LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)


def answered_key_calls() -> list[str]:
    """Which calls for the kernel's keys are not refused. They are made without sense, so that none
    changes anything."""
    found = []
    for name, number in _KEY_CALLS[os.uname().machine].items():
        _LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 5)
        if ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            found.append(name)
    return found
