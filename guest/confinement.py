"""What the agent guest refuses to itself, for good: sockets to the machine's hypervisor.

No network namespace holds them, and not every container engine's filter of system calls knows them.
Nothing here needs one. What could make a socket where no filter sees it is refused as well.
"""

import os

from wire.errors import Code
from wire.kernel import seccomp

from guest.errors import GuestError


def confine() -> None:
    """Put this process and all its later threads under the filter.

    Nothing happens on a machine that is not known: the boundary self-test finds what is open there.
    Raises `GuestError` if the kernel refuses.
    """
    machine = os.uname().machine
    if machine not in seccomp.ABIS:
        return
    rules = {
        seccomp.IO_URING_SETUP: seccomp.ABSENT,
        seccomp.SOCKET[machine]: seccomp.unless(seccomp.FIRST, seccomp.VSOCK),
    }
    try:
        seccomp.confine(seccomp.program({machine: rules}))
    except OSError as error:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            "the kernel takes no filter of system calls (seccomp)",
            details=str(error),
            resolution="use a kernel with CONFIG_SECCOMP_FILTER",
        ) from None
