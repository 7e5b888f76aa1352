"""What the agent guest refuses to itself, for good: sockets to the machine's hypervisor.

No network namespace holds them, and not every container engine's filter of system calls knows them.
Nothing here needs one. What could make a socket where no filter sees it is refused as well.
"""

import ctypes
import errno
import os
import struct
from typing import Final, NamedTuple

from wire.errors import Code

from guest.errors import GuestError

_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_NUMBER: Final = 0
_ABI: Final = 4
_FIRST: Final = 16
"""Where in what the filter sees the call's number, its ABI and its first argument are."""
_ALLOWED: Final = 0x7FFF0000
_REFUSED: Final = 0x00050000 | errno.EPERM
_ABSENT: Final = 0x00050000 | errno.ENOSYS
_VSOCK: Final = 40
_X32_CALLS: Final = 0x40000000
"""From here on are the calls of the x32 ABI, which bears the name of x86-64."""
_IO_URING_SETUP: Final = 425
_SET_NO_NEW_PRIVILEGES: Final = 38
_SET_SECCOMP: Final = 22
_FILTER: Final = 2


class _Machine(NamedTuple):
    abi: int
    socket: int


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 41),
    "aarch64": _Machine(0xC00000B7, 198),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.c_char_p))


def confine() -> None:
    """Put this process and all its later threads under the filter.

    Nothing happens on a machine that is not known: the boundary self-test finds what is open there.
    Raises `GuestError` if the kernel refuses.
    """
    if (machine := _MACHINES.get(os.uname().machine)) is None:
        return
    steps = _program(machine)
    filtered = ctypes.byref(_Program(len(steps), b"".join(steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_SET_NO_NEW_PRIVILEGES, 1, 0), (_SET_SECCOMP, _FILTER, filtered)):
        if libc.prctl(*arguments, 0, 0) != 0:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                "the kernel takes no filter of system calls (seccomp)",
                details=os.strerror(ctypes.get_errno()),
                resolution="use a kernel with CONFIG_SECCOMP_FILTER",
            )


def _program(machine: _Machine) -> list[bytes]:
    """Classic BPF, see seccomp(2). Calls of other ABIs, which Python does not make, are refused."""
    return [
        _step(_LOAD, _ABI),
        _step(_JUMP_IF_EQUAL, machine.abi, 1, 0),
        _step(_RETURN, _REFUSED),
        _step(_LOAD, _NUMBER),
        _step(_JUMP_IF_AT_LEAST, _X32_CALLS, 5, 0),
        _step(_JUMP_IF_EQUAL, _IO_URING_SETUP, 0, 1),
        _step(_RETURN, _ABSENT),
        _step(_JUMP_IF_EQUAL, machine.socket, 0, 3),
        _step(_LOAD, _FIRST),
        _step(_JUMP_IF_EQUAL, _VSOCK, 0, 1),
        _step(_RETURN, _REFUSED),
        _step(_RETURN, _ALLOWED),
    ]


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
