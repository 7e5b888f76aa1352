"""Starts processes: the daemon's connection to the zygote, and the idle supervisors."""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from wire import errors
from wire.errors import Code, WireError

from shell_daemon.processes import seccomp
from shell_daemon.processes.process import PATIENCE_S, Channel, Process, Supervisor
from shell_daemon.processes.supervisor import KILL_S, Run
from shell_daemon.program import Program

log = logging.getLogger(__name__)

_ZYGOTE: Final = (
    "import sys; sys.path[:0] = sys.argv[3:]; "
    "from shell_daemon.processes import zygote; zygote.main()"
)
_PACKAGES: Final = tuple(
    dict.fromkeys(
        str(Path(file).resolve().parents[depth])
        for file, depth in ((__file__, 2), (errors.__file__, 1))
    )
)
"""Where `shell_daemon` and `wire` are: all that the zygote imports besides the standard library."""
IDLE_MAX: Final = 4
_ANSWER_S: Final = 3 * KILL_S
"""How long the zygote may take for what it is asked, on a machine that is busy."""


class Processes:
    """Starts processes, each under a supervisor; free supervisors wait for the next command.

    `on_lost` is called when the zygote dies unexpectedly or does not answer. Processes can then no
    longer be started or ended reliably, and the daemon must be restarted.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._zygote: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._closing = False
        self._ended = asyncio.Event()
        self._numbers = itertools.count(1)
        self._supervisors: set[Supervisor] = set()
        self._idle: list[Supervisor] = []
        self._lost: list[Supervisor] = []

    def start(self, *, hiding: bool = True) -> None:
        """Start the zygote. `hiding`: see `seccomp.confine`.

        Raises `WireError` if /proc, through which process trees are found, is missing or belongs to
        another process namespace, and on a machine for which there is no filter of system calls.
        """
        check_proc()
        check_machine(os.uname().machine)
        ours, theirs = socket.socketpair()
        with theirs:
            self._zygote = subprocess.Popen(  # noqa: S603 - our own program
                [
                    *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _ZYGOTE),
                    *(str(theirs.fileno()), "hiding" if hiding else "", *_PACKAGES),
                ],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._channel = Channel(ours, self._on_message, self._on_end)
        self._idle.append(self._fork(self._channel))

    async def spawn(
        self,
        program: Program,
        environment: dict[str, str],
        descriptors: list[int],
        *,
        grace: float,
    ) -> Process:
        """Run a command; see `supervisor.Run`. Raises `WireError` (UNAVAILABLE) if the daemon is
        stopping."""
        if self._ended.is_set() or self._closing or self._channel is None:
            raise WireError(
                Code.UNAVAILABLE, "the shell daemon is stopping", resolution="runner restart"
            )
        supervisor = self._idle.pop() if self._idle else self._fork(self._channel)
        request = Run(
            number=next(self._numbers),
            file=program.file,
            argv=list(program.argv),
            environment=environment,
            grace=grace,
        )
        process = await supervisor.run(request, descriptors)
        self._thaw(supervisor)
        return process

    async def close(self) -> None:
        """End all processes. Idempotent."""
        if self._closing or self._channel is None or self._zygote is None:
            return
        self._closing = True
        self._thaw_zygote()
        self._channel.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), KILL_S + PATIENCE_S / 2)
        self._zygote.kill()
        self._zygote.wait()
        self._release_all()

    def reap(self) -> None:
        """Collect the children of the daemon that have ended, as its guest's first process must.

        Only for a process without children of others.
        """
        if self._zygote is not None:
            _reap(self._zygote)

    def _fork(self, channel: Channel) -> Supervisor:
        ours, theirs = socket.socketpair()
        with theirs:
            self._ask(channel, {"fork": True}, theirs.fileno())
        supervisor = Supervisor(ours, self._take_back, self._destroy, self._thaw)
        self._supervisors.add(supervisor)
        self._expect(lambda: supervisor.pid != 0 or supervisor not in self._supervisors)
        return supervisor

    def _ask(self, channel: Channel, request: dict[str, Any], *descriptors: int) -> None:
        self._thaw_zygote()
        channel.send(request, descriptors)

    def _thaw(self, supervisor: Supervisor) -> None:
        if supervisor.pid and self._channel is not None:
            self._ask(self._channel, {"thaw": supervisor.pid})

    def _thaw_zygote(self) -> None:
        """Let it go on: a command may have stopped it."""
        if self._zygote is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._zygote.pid, signal.SIGCONT)

    def _expect(self, answered: Callable[[], bool]) -> None:
        """Give the zygote up if it has not `answered` in time: a command may have stopped it."""

        def look() -> None:
            if not answered() and not self._ended.is_set():
                log.error("the zygote does not answer", extra={"event": "zygote_silent"})
                self._on_end()

        asyncio.get_running_loop().call_later(_ANSWER_S, look)

    def _take_back(self, supervisor: Supervisor) -> None:
        if len(self._idle) < IDLE_MAX:
            self._idle.append(supervisor)
        else:
            self._supervisors.discard(supervisor)
            supervisor.close()

    def _destroy(self, supervisor: Supervisor) -> None:
        """Have the zygote kill a supervisor and all processes below it."""
        self._supervisors.discard(supervisor)
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        if self._ended.is_set() or self._channel is None:
            supervisor.settle()
        else:
            self._lost.append(supervisor)
            self._ask(self._channel, {"destroy": supervisor.pid})
            self._expect(lambda: supervisor not in self._lost)

    def _on_message(self, message: dict[str, Any]) -> None:
        """Settle the first lost supervisor: the zygote answers in the order of the requests."""
        assert "destroyed" in message
        self._lost.pop(0).settle()

    def _on_end(self) -> None:
        self._release_all()
        if not self._closing:
            log.error("the zygote is lost", extra={"event": "zygote_lost"})
            self._on_lost()

    def _release_all(self) -> None:
        self._ended.set()
        if self._channel is not None:
            self._channel.close()
        for supervisor in [*self._lost, *self._supervisors]:
            supervisor.close()
            supervisor.settle()
        self._lost.clear()
        self._supervisors.clear()
        self._idle.clear()


def check_proc() -> None:
    try:
        own = Path("/proc/self/stat").read_text().split(" ", 1)[0]
    except OSError:
        own = ""
    if own != str(os.getpid()):
        raise WireError(
            Code.FAILED_PRECONDITION,
            "/proc is missing or belongs to another process namespace",
            details="the shell daemon finds and ends process trees through it",
            resolution="mount a fresh proc at /proc inside the shell guest",
        )


def check_machine(machine: str) -> None:
    if machine not in seccomp.MACHINES:
        known = " and ".join(seccomp.MACHINES)
        raise WireError(
            Code.FAILED_PRECONDITION,
            f"no commands are run on {machine} machines",
            details=f"the filter of system calls that commands run under knows {known} only",
            resolution="set shell.enabled = false, or use another machine",
        )


def _reap(helper: subprocess.Popen[bytes]) -> None:
    """Collect all children that have ended: orphans of others, and `helper`, which keeps its exit
    code."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == helper.pid:
                helper.poll()
            else:
                os.waitpid(ended.si_pid, os.WNOHANG)
