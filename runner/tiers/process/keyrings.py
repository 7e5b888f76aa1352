"""Starts a program that cannot use the kernel's keys (keyrings(7)).

Keys belong to users and to sessions, and no namespace parts them from those of the host: a guest
would inherit the session keyring of the operator, with all keys in it. So the program gets an
empty one, and a filter of system calls through which bubblewrap takes those for keys away from
it, because a key that a user may read can also be found by trying numbers.

This file is also run as a program, before anything of the guest is.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from typing import Final

FILTER_FD: Final = 3
"""Where bubblewrap finds the filter."""

_JOIN_SESSION_KEYRING: Final = 1
_GET_KEYRING_ID: Final = 0
_SESSION_KEYRING: Final = -3
_EXIT_FAILED: Final = 126

KEY_CALLS: Final = {
    "x86_64": ((0xC000003E, (248, 249, 250)), (0x40000003, (286, 287, 288))),
    "aarch64": ((0xC00000B7, (217, 218, 219)), (0x40000028, (309, 310, 311))),
    "riscv64": ((0xC00000F3, (217, 218, 219)),),
    "ppc64le": ((0xC0000015, (269, 270, 271)),),
    "s390x": ((0x80000016, (278, 279, 280)),),
}
"""For each machine, the kinds of programs that its kernel runs, as seccomp(2) tells them, and their
numbers of add_key, request_key and keyctl."""
_OTHER_NUMBERING: Final = 0x40000000
"""This bit marks the calls of x32 programs, which are not served."""

_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_SET: Final = 0x45
_RETURN: Final = 0x06
_OFFSET_NUMBER: Final = 0
_OFFSET_KIND: Final = 4
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM


def guarded(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` with an empty session keyring, and the filter at
    `FILTER_FD`."""
    return [sys.executable, "-I", "-S", __file__, *command]


def key_filter(machine: str) -> bytes:
    """A seccomp program that refuses the calls for keys, and all calls of programs of a kind that
    it does not know.

    Raises `OSError`: ENOSYS for a machine whose calls are not known here.
    """
    if machine not in KEY_CALLS:
        raise OSError(errno.ENOSYS, f"the system calls of {machine} are not known")
    made = _step(_LOAD, _OFFSET_KIND)
    for kind, numbers in KEY_CALLS[machine]:
        calls = _step(_LOAD, _OFFSET_NUMBER)
        calls += _step(_JUMP_SET, _OTHER_NUMBERING, len(numbers) + 1, 0)
        for left, number in zip(range(len(numbers), 0, -1), numbers, strict=True):
            calls += _step(_JUMP_EQUAL, number, left, 0)
        calls += _step(_RETURN, _ALLOW) + _step(_RETURN, _REFUSE)
        made += _step(_JUMP_EQUAL, kind, 0, len(calls) // len(_step(_RETURN, _REFUSE))) + calls
    return made + _step(_RETURN, _REFUSE)


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _forget_session_keyring(machine: str) -> None:
    """Raises `OSError` if this process keeps a session keyring that was given to it."""
    if (refused := _keyctl(machine, _JOIN_SESSION_KEYRING)) in (0, errno.ENOSYS):
        return
    if refused == errno.EPERM and _keyctl(machine, _GET_KEYRING_ID, _SESSION_KEYRING) == refused:
        return  # a filter of system calls, which the guest inherits
    raise OSError(refused, "no session keyring of its own")


def _keyctl(machine: str, *arguments: int) -> int:
    """The number of the error; 0 if there was none."""
    kinds = KEY_CALLS[machine]
    _, (_, _, number) = kinds[0 if sys.maxsize > 2**32 else -1]
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(each) for each in (number, *arguments, *[0] * (5 - len(arguments)))]
    return ctypes.get_errno() if libc.syscall(*words) < 0 else 0


def _main(command: list[str]) -> None:
    try:
        machine = platform.machine()
        steps = key_filter(machine)
        _forget_session_keyring(machine)
        file = os.memfd_create("key-filter", 0)
        os.write(file, steps)
        os.lseek(file, 0, os.SEEK_SET)
        if file != FILTER_FD:
            os.dup2(file, FILTER_FD)
            os.close(file)
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]} without keys of the kernel: {error}\n")
        sys.exit(_EXIT_FAILED)


if __name__ == "__main__":
    _main(sys.argv[1:])
