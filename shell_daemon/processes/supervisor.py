"""The process above each command, at the root of its process tree.

    daemon ── zygote ─┬─ supervisor ── bash ── …      one supervisor per command
                      └─ supervisor (idle)

Every supervisor is a child subreaper: whatever a command leaves behind (a double fork,
`setsid nohup … &`) becomes its child. When it has no child left, the whole tree is gone, and only
then it takes the next command. It must stay single-threaded and import little, because it is
forked.

The boundary self-test's probe is forked instead of run: a program would be open to commands, which
have its user id, from its start until it has closed itself. The child of a concealed process is
concealed, and stays so while it runs no program.

Messages are JSON lines. From the daemon: `Run`, with the descriptors beside it; `end` with the
number of the run to end; end-of-file: kill the run and exit. To the daemon: `supervisor` (its own
pid) once; then for each run `failed` (it was not started), or `exited` (wait status) with `gone`
(whether the whole tree is gone) and `left` (whether the command left processes that were ended).
"""

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn, TypedDict

from wire.kernel import prctl

from shell_daemon.processes import tree

DRAIN_S = 0.25
"""How long processes that a command left behind may still write before they are ended: enough
for the far end of a process substitution, too short to wait for a server."""
KILL_S = 3.0
"""How long killed processes may take to disappear before they are reported as not gone."""
_STEP_S = 0.05
_CHUNK = 65536
_FDS_MAX = 8
_OOM_SCORE_ADJ = b"1000"
_RESET = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class Run(TypedDict):
    """A request to run a command, or, without a `file`, the boundary self-test's probe.

    The descriptors beside it are the working directory, then standard input, output and error.
    `number` identifies the run; `grace` is the time between SIGTERM and SIGKILL, in seconds.
    """

    number: int
    file: str
    argv: list[str]
    environment: dict[str, str]
    grace: float


class Control:
    """A helper's end of the connection to the daemon.

    It also waits for children: SIGCHLD makes a descriptor readable. `descriptors` were received
    beside messages and not taken yet.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.descriptors: list[int] = []
        self._buffer = b""
        # Where /proc is open to commands, they open every pipe that they find, but no socket.
        self._woken, self._waking = socket.socketpair()
        for end in (self._woken, self._waking):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._poll.register(connection, select.POLLIN)

    def wait(self, seconds: float | None) -> bool:
        """Wait for a child, the daemon or the timeout; returns whether the daemon sent data."""
        ready = self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(_CHUNK)
        return any(descriptor == self.connection.fileno() for descriptor, _ in ready)

    def forget(self) -> None:
        """Wait for children only from now on: the daemon is gone."""
        self._poll.unregister(self.connection)

    def hear(self) -> list[Any] | None:
        """The messages that have come, or None if the daemon is gone."""
        data, descriptors = _receive(self.connection)
        self.descriptors += descriptors
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None

    def say(self, **message: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")


class Supervisor:
    """Runs one command after the other, each until nothing of it is left."""

    def __init__(self, connection: socket.socket) -> None:
        self._control = Control(connection)
        self._request: Run | None = None
        self._number = 0
        self._number_to_end = 0
        self._orphaned = False
        self._main = 0
        self._status: int | None = None

    def serve(self) -> None:
        """Serve until the daemon closes its end or a command leaves processes that cannot be
        ended from here. The daemon then has the zygote kill them."""
        self._control.say(supervisor=os.getpid())
        clean = True
        while clean and (request := self._next()) is not None:
            self._number, self._main, self._status = request["number"], 0, None
            descriptors = self._control.descriptors
            try:
                self._main = _spawn(request, descriptors)
            except OSError as error:
                self._control.say(failed=f"{request['file'] or 'probe'}: {error.strerror}")
                continue
            finally:
                while descriptors:
                    os.close(descriptors.pop())
            clean = self._supervise(request["grace"])

    @property
    def _ending(self) -> bool:
        return self._orphaned or self._number_to_end == self._number

    def _supervise(self, grace: float) -> bool:
        while self._status is None and not self._ending:
            self._step(None)
        left = False
        empty = not self._ending and self._until_empty(DRAIN_S)
        if self._ending:
            empty = self._end(grace)
        elif not empty:
            left, empty = True, self._kill()
        self._control.say(exited=self._status, gone=empty, left=left)
        return empty

    def _end(self, grace: float) -> bool:
        if not self._orphaned:
            tree.terminate(os.getpid())
        return self._until_empty(grace) or self._kill()

    def _kill(self) -> bool:
        deadline = time.monotonic() + KILL_S
        empty = False
        while not empty and time.monotonic() < deadline:
            tree.kill(os.getpid())
            empty = self._until_empty(_STEP_S)
        return empty

    def _until_empty(self, seconds: float) -> bool:
        """Wait up to `seconds` for the tree to be gone; returns whether it is.

        The first request to end, or the loss of the daemon, cuts the wait short.
        """
        deadline = time.monotonic() + seconds
        state = (self._ending, self._orphaned)
        empty = self._step(0)
        while not empty and state == (self._ending, self._orphaned):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            empty = self._step(remaining)
        return empty

    def _step(self, seconds: float | None) -> bool:
        """Wait for an event and handle it; returns whether no process is left."""
        if self._control.wait(seconds) and not self._hear():
            self._orphaned = True
            self._control.forget()
        return self._reap()

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._main:
                self._status = status

    def _next(self) -> Run | None:
        """The next request, or None if the daemon is gone."""
        while self._request is None:
            if self._orphaned or not self._hear():
                return None
        request, self._request = self._request, None
        return request

    def _hear(self) -> bool:
        """Read the daemon's messages; returns False if it is gone."""
        messages = self._control.hear()
        for message in messages or ():
            if "end" in message:
                self._number_to_end = message["end"]
            else:
                self._request = message
        return messages is not None


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Read bytes and the descriptors beside them; no bytes if the other side is gone.

    `socket.recv_fds` would not do: it ignores its flags, and without MSG_CMSG_CLOEXEC every
    descriptor would be open in every command.
    """
    received = array.array("i")
    space = socket.CMSG_SPACE(_FDS_MAX * received.itemsize)
    try:
        data, ancillary, _, _ = connection.recvmsg(_CHUNK, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return b"", []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
    return data, list(received)


def _spawn(request: Run, descriptors: list[int]) -> int:
    """Start the command in its own session; the first descriptor is its directory."""
    directory, *sources = descriptors
    if not request["file"]:
        return _fork_probe(sources)
    os.fchdir(directory)
    main = os.posix_spawn(
        request["file"],
        request["argv"],
        request["environment"],
        file_actions=[
            (os.POSIX_SPAWN_DUP2, source, number) for number, source in enumerate(sources)
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=_RESET,
    )
    _prefer_for_oom_kill(main)
    os.chdir("/")
    return main


def _fork_probe(sources: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        _become_probe(sources)
    return pid


def _become_probe(sources: list[int]) -> NoReturn:
    """Report and exit; a forked process must never return into the supervisor's loop.

    Otherwise it is like a command: a session, signals and descriptors as after exec.
    """
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for handled in {signal.SIGCHLD, *_RESET}:
            signal.signal(handled, signal.SIG_DFL)
        for number, source in enumerate(sources):
            os.dup2(source, number)
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
            with contextlib.suppress(OSError):
                if not os.get_inheritable(descriptor):
                    os.close(descriptor)
        prctl.set_name("oxydra-probe")
        from shell_daemon.probe import report  # a command's supervisor needs none of it

        status = report.main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _prefer_for_oom_kill(command: int) -> None:
    """When memory runs out, let the kernel kill the command before its supervisor.

    Size alone would not decide that: files in memory count for no process.
    """
    with contextlib.suppress(OSError), open(f"/proc/{command}/oom_score_adj", "wb") as file:  # noqa: PTH123
        file.write(_OOM_SCORE_ADJ)
