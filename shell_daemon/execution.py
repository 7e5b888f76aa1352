"""One command from its start to its exit, with its output streams."""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import KW_ONLY, dataclass

from wire.disk import held
from wire.v1 import shell_pb2

from shell_daemon.limits import Settings
from shell_daemon.processes.pool import Processes
from shell_daemon.processes.process import NOT_STARTED, Exited, Process
from shell_daemon.program import Program
from shell_daemon.streams import InputStream, OutputStream, RingBuffer, RingFile

_CHUNK_BYTES = 65536
_SEALED = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_READ_MAX_BYTES = 256 * 1024
_REFUSALS_MAX = 20
_NEVER_BEGUN = 128 + 15
"""The exit code of a command that was cancelled before it started, as after SIGTERM."""


@dataclass(eq=False)
class Execution:
    """A command as callers see it. It always gets an `exit`, even if it could not be run."""

    fingerprint: bytes
    timeout: float | None
    settings: Settings
    _: KW_ONLY
    open_stdin: bool
    background: bool = False

    def __post_init__(self) -> None:
        self.exit: shell_pb2.ExecExit | None = None
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        memory, disk = self.settings.buffer_bytes, (self.settings.ring_bytes, self.settings.tmp)
        kept = RingFile(*disk) if self.background else RingBuffer(memory)
        self.stdout = OutputStream(kept, self._notify)
        self.stderr = OutputStream(RingBuffer(memory), self._notify)
        self.stdin = InputStream() if self.open_stdin else None
        self._readers = 0
        self._unattended: asyncio.TimerHandle | None = None
        self._process: Process | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._begun: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = False
        self._cancelled = False
        self._stopped = ""
        self._refusals: set[str] = set()

    async def run(
        self,
        processes: Processes,
        program: Program,
        directory: int,
        stdin: bytes,
        environment: dict[str, str],
    ) -> None:
        """Run `program` in the open `directory` to its end; do nothing if it was cancelled
        before."""
        if self.exit is not None:
            return
        self._begun = self._loop.time()
        try:
            with self._connected(program, stdin) as streams:
                self._process = await processes.spawn(
                    program, environment, [directory, *streams], grace=self.settings.grace
                )
        except OSError as error:
            self.fail(f"cannot start the command: {error.strerror}")
            return
        if self._cancelled or self._stopped:
            self._process.end()
        if self.timeout is not None:
            self._timer = self._loop.call_later(self.timeout, self._time_out)
        self._attend()
        exited = await self._process.exited
        if self._timer is not None:
            self._timer.cancel()
        self._process.gone.add_done_callback(lambda _: self._close())
        self._finish(exited)

    def extend(self, seconds: float) -> None:
        """Give it more time; nothing changes for what has ended or may take any time."""
        if self.timeout is None or self.exit is not None:
            return
        self.timeout += seconds
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._timer.when() + seconds, self._time_out)

    def tell_refused(self, why: str) -> None:
        """Write to standard error why something of the command did not go out, each reason once."""
        if why not in self._refusals and len(self._refusals) < _REFUSALS_MAX and self.exit is None:
            self._refusals.add(why)
            self._say(why)

    def cancel(self) -> None:
        """Start to end the process tree; `ended` is set when it is gone."""
        if self.exit is not None:
            return
        self._cancelled = not self._timed_out
        if self._begun is None:
            self._finish(Exited(_NEVER_BEGUN))
        elif self._process is not None:
            self._process.end()

    def stop(self, why: str) -> None:
        """Kill the process tree and write the daemon's reason to standard error."""
        if self.exit is not None:
            return
        self._stopped = why
        if self._begun is None:
            self._finish(Exited(_NEVER_BEGUN))
        elif self._process is not None:
            self._process.kill()

    def fail(self, why: str) -> None:
        """Give the command an exit after the daemon failed to run it."""
        if self.exit is None:
            self._finish(Exited(NOT_STARTED, failure=why))

    async def events(
        self, stdout_offset: int, stderr_offset: int
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        """Output from the given offsets as it comes, then the exit."""
        with (
            self._attended(),
            self.stdout.cursor(stdout_offset) as stdout,
            self.stderr.cursor(stderr_offset) as stderr,
        ):
            while True:
                out, err = stdout.next(_CHUNK_BYTES), stderr.next(_CHUNK_BYTES)
                if out is not None:
                    yield shell_pb2.ExecOutputEvent(stdout=out)
                    stdout.advance(out)
                if err is not None:
                    yield shell_pb2.ExecOutputEvent(stderr=err)
                    stderr.advance(err)
                if out is None and err is None:
                    if self.exit is not None:
                        break
                    await self._changed.wait()
        yield shell_pb2.ExecOutputEvent(exit=self.exit)

    def read(self, offset: int, limit: int) -> shell_pb2.ReadExecReply:
        """What there is of standard output from `offset` on, and the exit if there is one."""
        chunk = self.stdout.read(offset, min(limit, _READ_MAX_BYTES))
        return shell_pb2.ReadExecReply(output=chunk, total=self.stdout.total, exit=self.exit)

    def _say(self, why: str) -> None:
        told = self.stdout if self.background else self.stderr
        told.add(f"oxydra: {why}\n".encode())

    @contextlib.contextmanager
    def _connected(self, program: Program, stdin: bytes) -> Iterator[list[int]]:
        """The command's ends of its three streams, as long as they are handed over."""
        with contextlib.ExitStack() as closing:
            if self.stdin is not None:
                given, write = os.pipe()
                self.stdin.attach(write)
            else:
                given = _readable(stdin) if program.file else self._fed(stdin)
            ends = [closing.enter_context(held(given))]
            for stream in (self.stdout, self.stderr):
                if self.background and stream is self.stderr:
                    ends.append(ends[-1])
                    continue
                descriptor, write = os.pipe() if program.file else _socket_pair()
                stream.attach(descriptor)
                ends.append(closing.enter_context(held(write)))
            yield ends

    @contextlib.contextmanager
    def _attended(self) -> Iterator[None]:
        self._readers += 1
        self._attend()
        try:
            yield
        finally:
            self._readers -= 1
            self._attend()

    def _attend(self) -> None:
        """End a command with an open standard input if it has no reader for too long."""
        if self._unattended is not None:
            self._unattended.cancel()
            self._unattended = None
        if self.stdin is not None and self.exit is None and not self._readers:
            self._unattended = self._loop.call_later(self.settings.unattended, self.cancel)

    def _fed(self, data: bytes) -> int:
        """A socket from which a probe reads `data`, and which no command can open."""
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        self._feeding = asyncio.create_task(_feed(writing, data))
        return reading.detach()

    def _time_out(self) -> None:
        if self._process is not None and self.exit is None and not self._cancelled:
            self._timed_out = True
            self._process.end()

    def _finish(self, exited: Exited) -> None:
        self.stdout.seal()
        self.stderr.seal()
        if self.stdin is not None:
            self.stdin.close()
        if self._unattended is not None:
            self._unattended.cancel()
        if why := self._stopped or exited.failure:
            self._say(why)
        elapsed = 0.0 if self._begun is None else self._loop.time() - self._begun
        self.exit = shell_pb2.ExecExit(
            exit_code=exited.exit_code,
            timed_out=self._timed_out,
            cancelled=self._cancelled,
            duration_ms=round(elapsed * 1000),
            left_behind=exited.left_behind,
        )
        self.ended.set()
        self._notify()

    def _close(self) -> None:
        self.stdout.close()
        self.stderr.close()

    def _notify(self) -> None:
        """Wake all waiting readers."""
        self._changed.set()
        self._changed.clear()


def _readable(data: bytes) -> int:
    """A descriptor from which `data` can be read, and which nobody can write to; the null device if
    it is empty."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
        file.seek(0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALED)
    return descriptor


async def _feed(writing: socket.socket, data: bytes) -> None:
    with writing, contextlib.suppress(OSError):  # the probe has ended
        await asyncio.get_running_loop().sock_sendall(writing, data)


def _socket_pair() -> tuple[int, int]:
    """The ends to read and to write of a probe's output, which no command can open by its name in
    /proc, whatever the kernel."""
    reading, writing = socket.socketpair()
    return reading.detach(), writing.detach()
