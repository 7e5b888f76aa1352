"""Process attributes that Python cannot set: prctl(2), capset(2)."""

import ctypes
import errno
import os
import signal
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NAME: Final = 15
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITIES: Final = range(64)
_CAPABILITY_VERSION: Final = 0x2008_0522
_ZERO: Final = ctypes.c_ulong(0)


def set_name(name: str) -> None:
    """Name this process (up to 15 bytes), so that `pkill python` in a command does not match it."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def conceal() -> None:
    """Hide this process's memory, environment and descriptors from processes of the same user, and
    dump no core of it.

    Commands have the same user id and could read the token there. Root and processes with
    CAP_SYS_PTRACE still can; guests are neither.
    """
    _prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent exits."""
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def die_with_parent() -> None:
    """Have this process killed when its parent is gone."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def drop_capabilities() -> None:
    """Give up every capability, for this process and all programs that it runs."""
    try:
        for number in _CAPABILITIES:
            _prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number))
    except OSError as error:  # the kernel knows no further one
        if error.errno != errno.EINVAL:
            raise
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    check("capset", libc.capset(header, (ctypes.c_uint32 * 6)()))


def filter_calls(program: Any) -> None:
    """Put this process and all that it starts under a filter of system calls, for good. `program`
    points to a `struct sock_fprog`."""
    _prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    _prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), program)


def _prctl(option: int, argument: ctypes.c_char_p | ctypes.c_ulong, more: Any = _ZERO) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    check(f"prctl({option})", libc.prctl(option, argument, more, _ZERO, _ZERO))


def check(name: str, result: int) -> None:
    """Raise `OSError` if a call of the C library has failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
