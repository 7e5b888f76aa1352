"""A filter that keeps a command's hands off other processes and off those who read its files.

The kernel lets a process change these for every other process of its user, also for one that can
be neither traced nor signalled: `prlimit` takes the daemon's descriptors, `sched_setaffinity`,
`nice` and `ionice` slow it down. Under the filter a command changes them for itself only, as
process id 0; everything else answers EPERM.

So do set-uid and set-gid bits, because a file in /shared belongs to the operator; leases, because
whoever opens such a file would wait for the command; and sockets to the machine's hypervisor.
Calls that could do one of these where no filter sees it are not there (ENOSYS).
"""

import ctypes
import errno
import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from shell_daemon.processes import prctl

_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_AT_LEAST: Final = 0x35
_JUMP_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_ABSENT: Final = 0x00050000 | errno.ENOSYS
_NUMBER: Final = 0
_ABI: Final = 4
_FIRST: Final = 16
_SECOND: Final = 24
_THIRD: Final = 32
_FOURTH: Final = 40
"""Where the low halves of the arguments are, on little-endian machines."""
_SET_ID_BITS: Final = 0o6000
_CREATING: Final = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE; without them `open` has no mode."""
_SET_LEASE: Final = 1024
_VSOCK: Final = 40
_OPENAT2: Final = 437
_FCHMODAT2: Final = 452
_IO_URING_SETUP: Final = 425
"""These three have the same number in every ABI here."""
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1


class _Calls(NamedTuple):
    """The numbers of the calls in one ABI. `by_pid` take a process id first; `setpriority` and
    `ioprio_set` take what kind of id it is, and then the id. `mode_second` and `mode_third` take
    a file's mode there, `open` and `openat` flags and then the mode, if there is one."""

    by_pid: tuple[int, ...]
    setpriority: int
    ioprio_set: int
    mode_second: tuple[int, ...]
    mode_third: tuple[int, ...]
    openat: int
    fcntl: tuple[int, ...]
    socket: int
    open: int | None = None


# by_pid: prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr
# mode_second: chmod, fchmod, creat, mknod; mode_third: fchmodat, mknodat
_X86_64: Final = _Calls(
    by_pid=(302, 142, 144, 203, 314),
    setpriority=141,
    ioprio_set=251,
    mode_second=(90, 91, 85, 133),
    mode_third=(268, 259, _FCHMODAT2),
    open=2,
    openat=257,
    fcntl=(72,),
    socket=41,
)
_I386: Final = _Calls(
    by_pid=(340, 154, 156, 241, 351),
    setpriority=97,
    ioprio_set=289,
    mode_second=(15, 94, 8, 14),
    mode_third=(306, 297, _FCHMODAT2),
    open=5,
    openat=295,
    fcntl=(55, 221),
    socket=359,
)
_AARCH64: Final = _Calls(
    by_pid=(261, 118, 119, 122, 274),
    setpriority=140,
    ioprio_set=30,
    mode_second=(52,),
    mode_third=(53, 33, _FCHMODAT2),
    openat=56,
    fcntl=(25,),
    socket=198,
)
_ARM: Final = _Calls(
    by_pid=(369, 154, 156, 241, 380),
    setpriority=97,
    ioprio_set=314,
    mode_second=(15, 94, 8, 14),
    mode_third=(333, 324, _FCHMODAT2),
    open=5,
    openat=322,
    fcntl=(55, 221),
    socket=281,
)
_MACHINES: Final[Mapping[str, Mapping[int, _Calls]]] = {
    "x86_64": {0xC000003E: _X86_64, 0x40000003: _I386},
    "aarch64": {0xC00000B7: _AARCH64, 0x40000028: _ARM},
}
"""The ABIs of each machine, by the kernel's name of the ABI."""
_X32_CALLS: Final = 0x40000000
"""From here on are the calls of the x32 ABI, which bears the name of x86-64. All are refused."""


class _Step(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_equal", ctypes.c_uint8),
        ("if_not", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step)))


def confine() -> bool:
    """Put this process and all that it starts under the filter, for good.

    Returns False on a machine whose calls are not known here.
    """
    abis = _MACHINES.get(os.uname().machine)
    if abis is None:
        return False
    steps = [_Step(_LOAD, 0, 0, _ABI)]
    for abi, calls in abis.items():
        body = _body(calls)
        steps += [_Step(_JUMP_IF_EQUAL, 0, len(body), abi), *body]
    steps.append(_Step(_RETURN, 0, 0, _REFUSE))
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    prctl.filter_calls(ctypes.byref(program))
    return True


def _body(calls: _Calls) -> list[_Step]:
    """The steps for one ABI, each way through them ends in allowing or refusing."""
    allow, refuse = _Step(_RETURN, 0, 0, _ALLOW), _Step(_RETURN, 0, 0, _REFUSE)
    who_is_zero = [_Step(_JUMP_IF_EQUAL, 0, 1, 0), allow, refuse]
    steps = [_Step(_LOAD, 0, 0, _NUMBER)]
    if calls is _X86_64:
        steps += [_Step(_JUMP_IF_AT_LEAST, 0, 1, _X32_CALLS), refuse]
    for number in calls.by_pid:
        steps += _where(number, [_Step(_LOAD, 0, 0, _FIRST), *who_is_zero])
    for number, kind in (
        (calls.setpriority, _PRIO_PROCESS),
        (calls.ioprio_set, _IOPRIO_WHO_PROCESS),
    ):
        right_kind = [_Step(_LOAD, 0, 0, _FIRST), _Step(_JUMP_IF_EQUAL, 1, 0, kind), refuse]
        steps += _where(number, [*right_kind, _Step(_LOAD, 0, 0, _SECOND), *who_is_zero])
    for number in (_OPENAT2, _IO_URING_SETUP):
        steps += _where(number, [_Step(_RETURN, 0, 0, _ABSENT)])
    for numbers, place in ((calls.mode_second, _SECOND), (calls.mode_third, _THIRD)):
        for number in numbers:
            steps += _where(number, _unless_set_id(place))
    if calls.open is not None:
        steps += _where(calls.open, _opening(_SECOND, _THIRD))
    steps += _where(calls.openat, _opening(_THIRD, _FOURTH))
    for number in calls.fcntl:
        steps += _where(number, _unless_equal(_SECOND, _SET_LEASE))
    steps += _where(calls.socket, _unless_equal(_FIRST, _VSOCK))
    return [*steps, allow]


def _unless_set_id(mode: int) -> list[_Step]:
    allow, refuse = _Step(_RETURN, 0, 0, _ALLOW), _Step(_RETURN, 0, 0, _REFUSE)
    return [_Step(_LOAD, 0, 0, mode), _Step(_JUMP_IF_ANY_BIT, 1, 0, _SET_ID_BITS), allow, refuse]


def _opening(flags: int, mode: int) -> list[_Step]:
    without_mode = [_Step(_JUMP_IF_ANY_BIT, 1, 0, _CREATING), _Step(_RETURN, 0, 0, _ALLOW)]
    return [_Step(_LOAD, 0, 0, flags), *without_mode, *_unless_set_id(mode)]


def _unless_equal(place: int, value: int) -> list[_Step]:
    allow, refuse = _Step(_RETURN, 0, 0, _ALLOW), _Step(_RETURN, 0, 0, _REFUSE)
    return [_Step(_LOAD, 0, 0, place), _Step(_JUMP_IF_EQUAL, 1, 0, value), allow, refuse]


def _where(number: int, steps: list[_Step]) -> list[_Step]:
    """`steps`, for the call with this number only."""
    return [_Step(_JUMP_IF_EQUAL, 0, len(steps), number), *steps]
