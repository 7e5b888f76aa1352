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

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from wire.kernel import seccomp
from wire.kernel.seccomp import (
    ABSENT,
    ALLOWED,
    FIRST,
    FOURTH,
    IO_URING_SETUP,
    REFUSED,
    SECOND,
    SOCKET,
    THIRD,
    VSOCK,
    if_any_bit,
    if_equal,
    load,
    unless,
)

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
_SOCKETCALL_SOCKET: Final = 1
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1


def _for_itself(place: int) -> bytes:
    """Allow the call for process id 0 only."""
    return load(place) + if_equal(0, ALLOWED) + REFUSED


def _for_itself_as(kind: int) -> bytes:
    """The same for a call that takes the kind of an id first."""
    return load(FIRST) + if_equal(kind, _for_itself(SECOND)) + REFUSED


def _without(bits: int, place: int) -> bytes:
    """Refuse the call if any of these bits is set in its argument at `place`."""
    return load(place) + if_any_bit(bits, REFUSED) + ALLOWED


def _without_set_id(mode: int) -> bytes:
    return _without(_SET_ID_BITS, mode)


def _opening(flags: int, mode: int) -> bytes:
    return load(flags) + if_any_bit(_CREATING, _without_set_id(mode)) + ALLOWED


class Call(NamedTuple):
    """What becomes of a call, and its number in each ABI that has it."""

    rule: bytes
    x86_64: int | None
    i386: int | None
    aarch64: int | None
    arm: int | None


CALLS: Final[Mapping[str, Call]] = {
    "kill": Call(unless(FIRST, _INIT), 62, 37, 129, 37),
    "tkill": Call(unless(FIRST, _INIT), 200, 238, 130, 238),
    "tgkill": Call(unless(FIRST, _INIT), 234, 270, 131, 268),
    "rt_sigqueueinfo": Call(unless(FIRST, _INIT), 129, 178, 138, 178),
    "rt_tgsigqueueinfo": Call(unless(FIRST, _INIT), 297, 335, 240, 363),
    "prlimit64": Call(_for_itself(FIRST), 302, 340, 261, 369),
    "sched_setparam": Call(_for_itself(FIRST), 142, 154, 118, 154),
    "sched_setscheduler": Call(_for_itself(FIRST), 144, 156, 119, 156),
    "sched_setaffinity": Call(_for_itself(FIRST), 203, 241, 122, 241),
    "sched_setattr": Call(_for_itself(FIRST), 314, 351, 274, 380),
    "setpriority": Call(_for_itself_as(_PRIO_PROCESS), 141, 97, 140, 97),
    "ioprio_set": Call(_for_itself_as(_IOPRIO_WHO_PROCESS), 251, 289, 30, 314),
    "chmod": Call(_without_set_id(SECOND), 90, 15, None, 15),
    "fchmod": Call(_without_set_id(SECOND), 91, 94, 52, 94),
    "creat": Call(_without_set_id(SECOND), 85, 8, None, 8),
    "mknod": Call(_without(_SET_ID_BITS | _DEVICE, SECOND), 133, 14, None, 14),
    "fchmodat": Call(_without_set_id(THIRD), 268, 306, 53, 333),
    "fchmodat2": Call(_without_set_id(THIRD), 452, 452, 452, 452),
    "mknodat": Call(_without(_SET_ID_BITS | _DEVICE, THIRD), 259, 297, 33, 324),
    "open": Call(_opening(SECOND, THIRD), 2, 5, None, 5),
    "openat": Call(_opening(THIRD, FOURTH), 257, 295, 56, 322),
    "openat2": Call(ABSENT, 437, 437, 437, 437),
    "io_uring_setup": Call(ABSENT, *[IO_URING_SETUP] * 4),
    "fcntl": Call(unless(SECOND, _SET_LEASE), 72, 55, 25, 55),
    "fcntl64": Call(unless(SECOND, _SET_LEASE), None, 221, None, 221),
    "socket": Call(unless(FIRST, VSOCK), **SOCKET),
    "socketcall": Call(unless(FIRST, _SOCKETCALL_SOCKET), None, 102, None, None),
    "clone": Call(_without(_NAMESPACES, FIRST), 56, 120, 220, 120),
    "clone3": Call(ABSENT, 435, 435, 435, 435),
    "unshare": Call(_without(_NAMESPACES | _TIME_NAMESPACE, FIRST), 272, 310, 97, 337),
    "setns": Call(REFUSED, 308, 346, 268, 375),
    "add_key": Call(REFUSED, 248, 286, 217, 309),
    "request_key": Call(REFUSED, 249, 287, 218, 310),
    "keyctl": Call(REFUSED, 250, 288, 219, 311),
}
"""What becomes of calls; all others are allowed."""

HIDING: Final[Mapping[str, Call]] = {
    "memfd_create": Call(ABSENT, 319, 356, 279, 385),
    "memfd_secret": Call(ABSENT, 447, 447, 447, 447),
    "vmsplice": Call(ABSENT, 278, 316, 75, 343),
}
"""What holds memory that no process is seen to hold."""

MACHINES: Final = {"x86_64": ("x86_64", "i386"), "aarch64": ("aarch64", "arm")}
"""The ABIs of each machine, its own first. Programs of any other are refused every call."""


def program(machine: str, *, hiding: bool = True) -> bytes:
    """The filter for a machine."""
    known = [*CALLS.values(), *(() if hiding else HIDING.values())]
    return seccomp.program(
        {
            abi: {number: call.rule for call in known if (number := getattr(call, abi)) is not None}
            for abi in MACHINES[machine]
        }
    )


def confine(*, hiding: bool) -> None:
    """Put this process and all that it starts under the filter, for good.

    `hiding`: memory may be held where only a control group counts it.
    """
    seccomp.confine(program(os.uname().machine, hiding=hiding))
