"""A filter that keeps a command's hands off other processes' limits and priorities.

The kernel lets a process change these for every other process of its user, also for one that can
be neither traced nor signalled: `prlimit` takes the daemon's descriptors, `sched_setaffinity`,
`nice` and `ionice` slow it down. Under the filter a command changes them for itself only, as
process id 0; everything else answers EPERM.
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
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_NUMBER: Final = 0
_ABI: Final = 4
_FIRST: Final = 16
_SECOND: Final = 24
"""Where the low halves of the first two arguments are, on little-endian machines."""
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1


class _Calls(NamedTuple):
    """The numbers of the calls in one ABI. `by_pid` take a process id first; the others take
    what kind of id it is, and then the id."""

    by_pid: tuple[int, ...]
    setpriority: int
    ioprio_set: int


# prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr
_X86_64: Final = _Calls((302, 142, 144, 203, 314), setpriority=141, ioprio_set=251)
_I386: Final = _Calls((340, 154, 156, 241, 351), setpriority=97, ioprio_set=289)
_AARCH64: Final = _Calls((261, 118, 119, 122, 274), setpriority=140, ioprio_set=30)
_ARM: Final = _Calls((369, 154, 156, 241, 380), setpriority=97, ioprio_set=314)
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
    return [*steps, allow]


def _where(number: int, steps: list[_Step]) -> list[_Step]:
    """`steps`, for the call with this number only."""
    return [_Step(_JUMP_IF_EQUAL, 0, len(steps), number), *steps]
