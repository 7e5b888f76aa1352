"""The daemon as the first process of its guest.

The kernel neither kills nor stops a first process for a signal from inside that it does not
handle, hands it the orphans of all others, and ends the guest with it. So it handles SIGTERM alone,
and its memory is closed to commands, which have its user id.
"""

import contextlib
import os
import signal
import subprocess
from typing import Final

from wire.kernel import prctl

_FAULTS: Final = {
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL),
    *(signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS),
}
_NOT_IGNORED: Final = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD, *_FAULTS}


def become() -> None:
    """Close this process to commands and to every signal that they have no reason to send.

    Call this before anything secret is read. Outside of a process namespace of its own, where the
    daemon is not the first process, a command can still kill or stop it.
    """
    prctl.set_name("oxydra-shell")
    prctl.conceal()
    for number in signal.valid_signals() - _NOT_IGNORED:
        signal.signal(number, signal.SIG_IGN)


def reap(helper: "subprocess.Popen[bytes]") -> None:
    """Collect all children that have ended: orphans of others, and `helper`, which keeps its exit
    code."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == helper.pid:
                helper.poll()
            else:
                os.waitpid(ended.si_pid, os.WNOHANG)
