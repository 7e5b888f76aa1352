"""The filter of system calls that commands run under, with all that they start.

It keeps their hands off other processes and off those who read their files. The kernel lets a
process change these for every other process of its user, also for one that can be neither traced
nor signalled: `prlimit` takes the daemon's descriptors, `sched_setaffinity`, `nice` and `ionice`
slow it down. Under the filter a command changes them for itself only, as process id 0; everything
else answers EPERM. A signal to process 1, which not every kernel shields, does too.

So do device nodes; namespaces, new ones and those of other processes, because a command would have
rights in them; set-uid and set-gid bits, because a file in /shared belongs to the operator; leases,
because whoever opens such a file would wait for the command; sockets to the machine's hypervisor;
and the calls for keys (keyrings(7)), because no namespace parts those of a user from the host's.
Calls that could do one of these where no filter sees it are not there (ENOSYS).
"""

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from shell_daemon.processes import prctl

_LOAD: Final = 0x20
_JUMP: Final = 0x05
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_AT_LEAST: Final = 0x35
_JUMP_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER: Final = 0
_ABI: Final = 4
_FIRST: Final = 16
_SECOND: Final = 24
_THIRD: Final = 32
_FOURTH: Final = 40
"""Where the low halves of the arguments are, on little-endian machines."""
_SET_ID_BITS: Final = 0o6000
_DEVICE: Final = 0o020000
"""Set in the kind of devices, and in no other that `mknod` makes."""
_CREATING: Final = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE; without them `open` has no mode."""
_INIT: Final = 1
_NAMESPACES: Final = 0x7E02_0000
_TIME_NAMESPACE: Final = 0x80
"""A flag of `unshare`; in those of `clone` it is part of a signal's number."""
_SET_LEASE: Final = 1024
_VSOCK: Final = 40
_SOCKETCALL_SOCKET: Final = 1
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1
_X32_CALLS: Final = 0x40000000
"""From here on are the calls of the x32 ABI, which bears the name of x86-64. All are refused."""


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


_SIZE: Final = len(_step(_RETURN, 0))
_ALLOWED: Final = _step(_RETURN, 0x7FFF0000)
_REFUSED: Final = _step(_RETURN, 0x00050000 | errno.EPERM)
_ABSENT: Final = _step(_RETURN, 0x00050000 | errno.ENOSYS)


def _if_equal(value: int, then: bytes) -> bytes:
    """`then`, if the loaded word is `value`; otherwise what comes after it."""
    return _step(_JUMP_IF_EQUAL, value, 1, 0) + _step(_JUMP, len(then) // _SIZE) + then


def _unless(place: int, value: int) -> bytes:
    """Refuse the call if its argument at `place` is `value`."""
    return _step(_LOAD, place) + _if_equal(value, _REFUSED) + _ALLOWED


def _for_itself(place: int) -> bytes:
    """Allow the call for process id 0 only."""
    return _step(_LOAD, place) + _if_equal(0, _ALLOWED) + _REFUSED


def _for_itself_as(kind: int) -> bytes:
    """The same for a call that takes the kind of an id first."""
    return _step(_LOAD, _FIRST) + _if_equal(kind, _for_itself(_SECOND)) + _REFUSED


def _without(bits: int, place: int) -> bytes:
    """Refuse the call if any of these bits is set in its argument at `place`."""
    return _step(_LOAD, place) + _step(_JUMP_IF_ANY_BIT, bits, 0, 1) + _REFUSED + _ALLOWED


def _without_set_id(mode: int) -> bytes:
    return _without(_SET_ID_BITS, mode)


def _opening(flags: int, mode: int) -> bytes:
    creating = _step(_JUMP_IF_ANY_BIT, _CREATING, 1, 0)
    return _step(_LOAD, flags) + creating + _ALLOWED + _without_set_id(mode)


class Call(NamedTuple):
    """What becomes of a call, and its number in each ABI that has it."""

    rule: bytes
    x86_64: int | None
    i386: int | None
    aarch64: int | None
    arm: int | None


CALLS: Final[Mapping[str, Call]] = {
    "kill": Call(_unless(_FIRST, _INIT), 62, 37, 129, 37),
    "tkill": Call(_unless(_FIRST, _INIT), 200, 238, 130, 238),
    "tgkill": Call(_unless(_FIRST, _INIT), 234, 270, 131, 268),
    "rt_sigqueueinfo": Call(_unless(_FIRST, _INIT), 129, 178, 138, 178),
    "rt_tgsigqueueinfo": Call(_unless(_FIRST, _INIT), 297, 335, 240, 363),
    "prlimit64": Call(_for_itself(_FIRST), 302, 340, 261, 369),
    "sched_setparam": Call(_for_itself(_FIRST), 142, 154, 118, 154),
    "sched_setscheduler": Call(_for_itself(_FIRST), 144, 156, 119, 156),
    "sched_setaffinity": Call(_for_itself(_FIRST), 203, 241, 122, 241),
    "sched_setattr": Call(_for_itself(_FIRST), 314, 351, 274, 380),
    "setpriority": Call(_for_itself_as(_PRIO_PROCESS), 141, 97, 140, 97),
    "ioprio_set": Call(_for_itself_as(_IOPRIO_WHO_PROCESS), 251, 289, 30, 314),
    "chmod": Call(_without_set_id(_SECOND), 90, 15, None, 15),
    "fchmod": Call(_without_set_id(_SECOND), 91, 94, 52, 94),
    "creat": Call(_without_set_id(_SECOND), 85, 8, None, 8),
    "mknod": Call(_without(_SET_ID_BITS | _DEVICE, _SECOND), 133, 14, None, 14),
    "fchmodat": Call(_without_set_id(_THIRD), 268, 306, 53, 333),
    "fchmodat2": Call(_without_set_id(_THIRD), 452, 452, 452, 452),
    "mknodat": Call(_without(_SET_ID_BITS | _DEVICE, _THIRD), 259, 297, 33, 324),
    "open": Call(_opening(_SECOND, _THIRD), 2, 5, None, 5),
    "openat": Call(_opening(_THIRD, _FOURTH), 257, 295, 56, 322),
    "openat2": Call(_ABSENT, 437, 437, 437, 437),
    "io_uring_setup": Call(_ABSENT, 425, 425, 425, 425),
    "fcntl": Call(_unless(_SECOND, _SET_LEASE), 72, 55, 25, 55),
    "fcntl64": Call(_unless(_SECOND, _SET_LEASE), None, 221, None, 221),
    "socket": Call(_unless(_FIRST, _VSOCK), 41, 359, 198, 281),
    "socketcall": Call(_unless(_FIRST, _SOCKETCALL_SOCKET), None, 102, None, None),
    "clone": Call(_without(_NAMESPACES, _FIRST), 56, 120, 220, 120),
    "clone3": Call(_ABSENT, 435, 435, 435, 435),
    "unshare": Call(_without(_NAMESPACES | _TIME_NAMESPACE, _FIRST), 272, 310, 97, 337),
    "setns": Call(_REFUSED, 308, 346, 268, 375),
    "add_key": Call(_REFUSED, 248, 286, 217, 309),
    "request_key": Call(_REFUSED, 249, 287, 218, 310),
    "keyctl": Call(_REFUSED, 250, 288, 219, 311),
}
"""What becomes of calls; all others are allowed."""

HIDING: Final[Mapping[str, Call]] = {
    "memfd_create": Call(_ABSENT, 319, 356, 279, 385),
    "memfd_secret": Call(_ABSENT, 447, 447, 447, 447),
    "vmsplice": Call(_ABSENT, 278, 316, 75, 343),
}
"""What holds memory that no process is seen to hold."""

MACHINES: Final[Mapping[str, Mapping[str, int]]] = {
    "x86_64": {"x86_64": 0xC000003E, "i386": 0x40000003},
    "aarch64": {"aarch64": 0xC00000B7, "arm": 0x40000028},
}
"""The ABIs of each machine, its own first, with the kernel's names of them. Programs of any other
are refused every call."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.c_char_p))


def program(machine: str, *, hiding: bool = True) -> bytes:
    """The filter for a machine, as the kernel takes it (classic BPF, see seccomp(2))."""
    known = [*CALLS.values(), *(() if hiding else HIDING.values())]
    steps = _step(_LOAD, _ABI)
    for abi, name in MACHINES[machine].items():
        calls = _step(_LOAD, _NUMBER)
        if abi == "x86_64":
            calls += _step(_JUMP_IF_AT_LEAST, _X32_CALLS, 0, 1) + _REFUSED
        for call in known:
            if (number := getattr(call, abi)) is not None:
                calls += _if_equal(number, call.rule)
        steps += _if_equal(name, calls + _ALLOWED)
    return steps + _REFUSED


def confine(*, hiding: bool) -> None:
    """Put this process and all that it starts under the filter, for good.

    `hiding`: memory may be held where only a control group counts it.
    """
    steps = program(os.uname().machine, hiding=hiding)
    prctl.filter_calls(ctypes.byref(_Program(len(steps) // _SIZE, steps)))
