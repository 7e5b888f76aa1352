"""Process attributes that Python cannot set: prctl(2)."""

import ctypes
import os
from typing import Any, Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NAME: Final = 15
_PR_SET_SECCOMP: Final = 22
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_ZERO: Final = ctypes.c_ulong(0)


def set_name(name: str) -> None:
    """Name this process (up to 15 bytes), so that `pkill python` in a command does not match it."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def conceal() -> None:
    """Hide this process's memory, environment and descriptors from processes of the same user.

    Commands have the same user id and could read the token there. Root and processes with
    CAP_SYS_PTRACE still can; guests are neither.
    """
    _prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent exits."""
    _prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def filter_calls(program: Any) -> None:
    """Put this process and all that it starts under a filter of system calls, for good.

    Args:
        program: A pointer to a `struct sock_fprog`.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    _prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), program)


def _prctl(option: int, argument: ctypes.c_char_p | ctypes.c_ulong, more: Any = _ZERO) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, more, _ZERO, _ZERO) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
