"""What is done for a shell guest before bubblewrap starts, outside of it.

It gets an empty session keyring (keyrings(7)): no namespace parts the kernel's keys from those of
the host, and it would inherit the operator's, with all keys in it. The calls for keys are refused
to commands besides (`shell_daemon.processes.seccomp`), because a key that a user may read can also
be found by trying numbers.

And it is the first to be killed when the machine's memory runs out: all its processes have the
highest score for that, which none can change, because `/proc` is read-only inside.

This file is also run as a program, before anything of the guest is.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

_KEYCTL: Final = {"x86_64": 250, "aarch64": 219}
"""The number of the call on each machine on which there are shell guests."""
_JOIN_SESSION_KEYRING: Final = 1
_GET_KEYRING_ID: Final = 0
_SESSION_KEYRING: Final = -3
_OOM_SCORE_MAX: Final = "1000"
_EXIT_FAILED: Final = 126


def begun(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` after that."""
    return [sys.executable, "-I", "-S", __file__, *command]


def unknown_machine(machine: str = "") -> str:
    """Why there are no shell guests on this kind of machine; empty if there are."""
    machine = machine or os.uname().machine
    if machine in _KEYCTL and sys.maxsize > 2**32:
        return ""
    return f"shell guests run on {' and '.join(_KEYCTL)} machines with a 64-bit Python only"


def _forget_session_keyring() -> None:
    """Raises `OSError` if this process keeps a session keyring that was given to it."""
    if (refused := _keyctl(_JOIN_SESSION_KEYRING)) in (0, errno.ENOSYS):
        return
    if refused == errno.EPERM and _keyctl(_GET_KEYRING_ID, _SESSION_KEYRING) == refused:
        return  # a filter of system calls, which the guest inherits
    raise OSError(refused, "no session keyring of its own")


def _keyctl(*arguments: int) -> int:
    """The number of the error; 0 if there was none."""
    number = _KEYCTL[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(each) for each in (number, *arguments, *[0] * (5 - len(arguments)))]
    return ctypes.get_errno() if libc.syscall(*words) < 0 else 0


def _raise_oom_score() -> None:
    """Raises `OSError`."""
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write(_OOM_SCORE_MAX)


def _main(command: list[str]) -> None:
    try:
        _forget_session_keyring()
        _raise_oom_score()
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]} as a guest must be started: {error}\n")
        sys.exit(_EXIT_FAILED)


if __name__ == "__main__":
    _main(sys.argv[1:])
