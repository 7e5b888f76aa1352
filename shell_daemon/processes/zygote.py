"""The parent of all supervisors: a small process that forks them in a millisecond.

It is a program of its own, started by the daemon before anything else:

    python -I -S -c '…' DESCRIPTOR HIDING DIRECTORY_OF_PACKAGES…

so that a fork copies only ten megabytes of memory and no gRPC threads. It is a child subreaper
too: if a command kills its supervisor, the zygote adopts the orphans, and the daemon has it kill
them. At end-of-file (the daemon is gone) it kills everything and exits. Where the kernel does not
shield the daemon, it and all below it live in a process namespace of their own (`namespaces`).

Messages are JSON lines. From the daemon: `fork`, with one end of a socket pair beside it; `thaw`
with a supervisor's pid: let it go on if a command has stopped it; `destroy` with one: kill it and
all below it, then answer `destroyed`. A message has at most one descriptor and is sent in one
piece.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
import time
from typing import NoReturn

from wire.kernel import prctl

from shell_daemon.processes import namespaces, seccomp, tree
from shell_daemon.processes.supervisor import KILL_S, Control, Supervisor

_OOM_SCORE_ADJ = b"950"
_FIRST = 1
"""The process id of the daemon where it is its guest's first process."""


class Zygote:
    """Forks and reaps supervisors, and kills what a lost supervisor leaves behind."""

    def __init__(self, connection: socket.socket) -> None:
        self._control = Control(connection)
        self._supervisors: set[int] = set()

    def serve(self) -> None:
        """Serve until the daemon is gone, then kill everything that is left."""
        connected = True
        while connected:
            spoke = self._control.wait(None)
            self._reap()
            if spoke:
                connected = self._receive()
        deadline = time.monotonic() + KILL_S
        while time.monotonic() < deadline:
            tree.kill(os.getpid())
            self._reap()
            if not self._has_children():
                return
            time.sleep(0.01)

    def _receive(self) -> bool:
        messages = self._control.hear()
        for message in messages or ():
            if "fork" in message:
                self._fork(self._control.descriptors.pop(0))
            elif "thaw" in message:
                self._thaw(message["thaw"])
            else:
                self._destroy(message["destroy"])
        return messages is not None

    def _fork(self, descriptor: int) -> None:
        try:
            pid = os.fork()
        except OSError:
            os.close(descriptor)
            return
        if pid == 0:
            control = self._control
            _become_supervisor(descriptor, [control.connection.fileno(), *control.descriptors])
        os.close(descriptor)
        self._supervisors.add(pid)

    def _thaw(self, supervisor: int) -> None:
        if supervisor in self._supervisors:
            os.kill(supervisor, signal.SIGCONT)

    def _destroy(self, supervisor: int) -> None:
        if supervisor in self._supervisors:
            os.kill(supervisor, signal.SIGKILL)
            os.waitpid(supervisor, 0)
            self._supervisors.discard(supervisor)
        self._sweep()
        self._control.say(destroyed=supervisor)

    def _sweep(self) -> None:
        """Kill all processes below this one that are below no living supervisor."""
        deadline = time.monotonic() + KILL_S
        while tree.descendants(os.getpid(), self._supervisors):
            tree.kill(os.getpid(), self._supervisors)
            self._reap()
            if time.monotonic() > deadline:
                return

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._supervisors.discard(pid)

    def _has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


def _become_supervisor(descriptor: int, inherited: list[int]) -> NoReturn:
    """Serve and exit; a forked process must never return into the zygote's loop."""
    status = 1
    try:
        for other in inherited:
            os.close(other)
        prctl.adopt_orphans()
        prctl.set_name("oxydra-superv")
        Supervisor(socket.socket(fileno=descriptor)).serve()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    # When memory runs out, the kernel kills this and its children before the daemon, unless the
    # tier has given all of them the highest score for good. This must precede `conceal`, after
    # which the process's files in /proc belong to root.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:  # noqa: PTH123
        file.write(_OOM_SCORE_ADJ)
    if os.getppid() == _FIRST and namespaces.needed(_FIRST):
        namespaces.enter()
    prctl.conceal()
    seccomp.confine(hiding=bool(sys.argv[2]))
    prctl.set_name("oxydra-zygote")
    prctl.adopt_orphans()
    gc.freeze()
    Zygote(connection).serve()
