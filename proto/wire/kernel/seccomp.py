"""Filters of system calls, assembled as the kernel takes them: classic BPF, see seccomp(2).

A filter is made of blocks. Each ends with an answer, or goes on to what comes after it.
"""

import ctypes
import errno
import struct
from collections.abc import Mapping
from typing import Final

from wire.kernel import prctl

_LOAD: Final = 0x20
_JUMP: Final = 0x05
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_AT_LEAST: Final = 0x35
_JUMP_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER: Final = 0
_ABI: Final = 4
FIRST: Final = 16
SECOND: Final = 24
THIRD: Final = 32
FOURTH: Final = 40
"""Where the low halves of the arguments are, on little-endian machines."""
_X32_CALLS: Final = 0x40000000
"""From here on are the calls of the x32 ABI, which has the name of x86-64. All are refused."""
ABIS: Final[Mapping[str, int]] = {
    "x86_64": 0xC000003E,
    "i386": 0x40000003,
    "aarch64": 0xC00000B7,
    "arm": 0x40000028,
}
"""The kernel's names of ABIs."""
SOCKET: Final[Mapping[str, int]] = {"x86_64": 41, "i386": 359, "aarch64": 198, "arm": 281}
IO_URING_SETUP: Final = 425
"""The numbers of calls; this one has the same in every ABI."""
VSOCK: Final = 40
"""The family of sockets to the machine's hypervisor."""


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


_SIZE: Final = len(_step(_RETURN, 0))


def refused(number: int) -> bytes:
    """The call fails with this error."""
    return _step(_RETURN, 0x00050000 | number)


ALLOWED: Final = _step(_RETURN, 0x7FFF0000)
REFUSED: Final = refused(errno.EPERM)
ABSENT: Final = refused(errno.ENOSYS)


def load(place: int) -> bytes:
    """Look at the argument at `place`."""
    return _step(_LOAD, place)


def if_equal(value: int, then: bytes) -> bytes:
    """`then`, if what was loaded is `value`."""
    return _step(_JUMP_IF_EQUAL, value, 1, 0) + _step(_JUMP, len(then) // _SIZE) + then


def if_any_bit(bits: int, then: bytes) -> bytes:
    """`then`, if any of these bits is set in what was loaded."""
    return _step(_JUMP_IF_ANY_BIT, bits, 1, 0) + _step(_JUMP, len(then) // _SIZE) + then


def unless(place: int, value: int) -> bytes:
    """Refuse the call if its argument at `place` is `value`."""
    return load(place) + if_equal(value, REFUSED) + ALLOWED


def program(rules: Mapping[str, Mapping[int, bytes]]) -> bytes:
    """The filter with these blocks by ABI and number of call. All other calls of these ABIs are
    allowed; all calls of other ABIs are refused."""
    steps = _step(_LOAD, _ABI)
    for abi, blocks in rules.items():
        calls = _step(_LOAD, _NUMBER)
        if abi == "x86_64":
            calls += _step(_JUMP_IF_AT_LEAST, _X32_CALLS, 0, 1) + REFUSED
        for number, block in blocks.items():
            calls += if_equal(number, block)
        steps += if_equal(ABIS[abi], calls + ALLOWED)
    return steps + REFUSED


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.c_char_p))


def confine(steps: bytes) -> None:
    """Put this process, its later threads and all that it starts under a filter, for good.

    Raises `OSError`.
    """
    prctl.filter_calls(ctypes.byref(_Program(len(steps) // _SIZE, steps)))
