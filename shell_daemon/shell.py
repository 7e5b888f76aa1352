"""The shell itself: commands and sessions by the ids their callers chose.

It speaks the contract's messages, so that the gRPC service above it adds
nothing, and raises `WireError`:

    INVALID_ARGUMENT     a field that can never work; it is named
    NOT_FOUND            no command or session of that id (any more)
    CONFLICT             the id is taken by a different request
    FAILED_PRECONDITION  not in this state: releasing a running command
    RESOURCE_EXHAUSTED   too many commands or sessions, or no room on a disk
    UNAVAILABLE          the daemon is stopping
"""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from pathlib import Path

from wire.errors import Code, WireError
from wire.v1 import shell_pb2

from shell_daemon import limits
from shell_daemon.disk_guard import DiskGuard
from shell_daemon.execution import Execution, Launch, Program
from shell_daemon.limits import PATH, Settings
from shell_daemon.processes.pool import Processes
from shell_daemon.sessions import Session, Sessions
from shell_daemon.streams import StandardInput

log = logging.getLogger(__name__)


class Shell:
    """All commands and sessions of one guest. `on_lost` is called when it can no
    longer run or end anything and must be restarted."""

    def __init__(self, settings: Settings, on_lost: Callable[[], None]) -> None:
        self._settings = settings
        self._processes = Processes(on_lost)
        self._shell = ""
        self._executions: dict[str, Execution] = {}
        self._ended: dict[str, asyncio.TimerHandle] = {}
        self._sessions = Sessions(settings)
        self._tasks: set[asyncio.Task[None]] = set()
        self._guard = DiskGuard(
            (settings.shared, settings.tmp),
            settings.free_bytes_min,
            busy=lambda: self._running() > 0,
            on_shortage=self._stop_everything,
        )

    def open(self) -> None:
        """Make ready to run commands. Raises `WireError` where that cannot work."""
        shell = shutil.which("bash", path=PATH) or shutil.which("sh", path=PATH)
        if shell is None:
            raise WireError(
                Code.FAILED_PRECONDITION,
                "no shell is installed",
                details=f"neither bash nor sh in {PATH}",
                resolution="install bash in the shell guest",
            )
        self._shell = shell
        self._processes.start()

    async def close(self) -> None:
        """End everything at once and wait until it is gone. Idempotent."""
        for execution in self._executions.values():
            execution.cancel()
        await self._processes.close()
        await asyncio.gather(*self._tasks)
        for timer in self._ended.values():
            timer.cancel()
        self._guard.stop()
        self._sessions.stop()

    def hello(self) -> shell_pb2.ShellHelloReply:
        return shell_pb2.ShellHelloReply(
            version=version("oxydra"),
            boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            running=self._running(),
        )

    def start(self, request: shell_pb2.StartExecRequest) -> shell_pb2.StartExecReply:
        """Start a command, or find it started: the same id and request are the same
        command, until it is released or forgotten."""
        limits.check_id("exec_id", request.exec_id)
        fingerprint = limits.fingerprint(request)
        if (known := self._executions.get(request.exec_id)) is not None:
            limits.check_same("exec_id", request.exec_id, known.fingerprint, fingerprint)
            return shell_pb2.StartExecReply(already_known=True)
        limits.check_command(request.command)
        limits.check_stdin(request.stdin, self._settings)
        timeout = limits.check_timeout(request.timeout_ms, self._settings)
        environment = limits.check_environment(request.environment, self._settings)
        session = self._sessions.get(request.session_id) if request.session_id else None
        if self._running() >= self._settings.commands_max:
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                f"{self._settings.commands_max} commands are running",
                details="those that wait in a session or stay in its background count too",
                resolution="wait for one to end, cancel one, or close a session",
            )
        self._guard.check()
        directory, path = limits.open_directory(request.cwd or "/shared", self._settings)
        launch = Launch(
            command=request.command,
            directory=directory,
            path=path if request.cwd else None,
            environment=environment,
            base_environment=self._settings.base_environment(),
        )
        stdin = StandardInput(request.stdin, request.keep_stdin_open, self._settings.stdin_bytes)
        execution = Execution(fingerprint, timeout, stdin, self._settings)
        self._executions[request.exec_id] = execution
        if session is not None:
            session.admit(execution)
        task = asyncio.create_task(self._see_through(request.exec_id, execution, launch, session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._guard.watch()
        return shell_pb2.StartExecReply()

    def output(
        self, request: shell_pb2.ExecOutputRequest
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        """Both streams from the offsets on, as they come, then the exit."""
        execution = self._execution(request.exec_id)
        for name, asked, stream in (
            ("stdout_offset", request.stdout_offset, execution.stdout),
            ("stderr_offset", request.stderr_offset, execution.stderr),
        ):
            if asked > stream.total:
                raise limits.refused(name, str(asked), f"up to {stream.total}, what was written")
        return execution.events(request.stdout_offset, request.stderr_offset)

    async def write_stdin(self, request: shell_pb2.WriteStdinRequest) -> shell_pb2.WriteStdinReply:
        """Feed a command; `written` may be less than was sent (see `StandardInput.write`)."""
        stdin = self._execution(request.exec_id).stdin
        written = await stdin.write(request.offset, request.data, request.close)
        return shell_pb2.WriteStdinReply(written=written)

    async def cancel(self, request: shell_pb2.CancelExecRequest) -> shell_pb2.CancelExecReply:
        """End a command's tree and wait until it is gone; false where it had ended."""
        execution = self._execution(request.exec_id)
        cancelled = execution.cancel()
        await execution.ended.wait()
        return shell_pb2.CancelExecReply(cancelled=cancelled)

    def release(self, request: shell_pb2.ReleaseExecRequest) -> shell_pb2.ReleaseExecReply:
        """Forget an ended command. Idempotent."""
        limits.check_id("exec_id", request.exec_id)
        execution = self._executions.get(request.exec_id)
        if execution is not None and execution.exit is None:
            raise WireError(
                Code.FAILED_PRECONDITION,
                f"command {request.exec_id} is running",
                resolution="cancel it first",
            )
        self._forget(request.exec_id)
        return shell_pb2.ReleaseExecReply()

    def open_session(
        self, request: shell_pb2.OpenShellSessionRequest
    ) -> shell_pb2.OpenShellSessionReply:
        """Open a session, or find it open: the same id and request are the same session."""
        limits.check_id("session_id", request.session_id)
        known = self._sessions.open(request)
        return shell_pb2.OpenShellSessionReply(already_known=known)

    async def close_session(
        self, request: shell_pb2.CloseShellSessionRequest
    ) -> shell_pb2.CloseShellSessionReply:
        """End a session with all that runs in it. Idempotent."""
        limits.check_id("session_id", request.session_id)
        await self._sessions.close(request.session_id)
        return shell_pb2.CloseShellSessionReply()

    async def _see_through(
        self, exec_id: str, execution: Execution, launch: Launch, session: Session | None
    ) -> None:
        """Run a command to an exit that its callers can read, whatever goes wrong."""
        try:
            if session is not None:
                await session.run(execution, self._processes, launch, self._shell)
            else:
                program = Program(
                    argv=[self._shell, "-c", launch.command],
                    environment=launch.base_environment | launch.environment,
                    directory=launch.directory,
                )
                await execution.run(self._processes, program)
        except WireError as error:
            execution.fail(error.brief)
        except Exception:
            log.exception("a command could not be seen through")
            execution.fail("internal error of the shell daemon")
        finally:
            os.close(launch.directory)
            self._retire(exec_id)
        await asyncio.sleep(0)  # who reads the command's output hears of the exit first
        if execution.exit is not None:
            log.info(
                "command %s ended",
                exec_id,
                extra={
                    "event": "command_ended",
                    "outcome": str(execution.exit.exit_code),
                    "duration_ms": execution.exit.duration_ms,
                },
            )

    def _retire(self, exec_id: str) -> None:
        loop = asyncio.get_running_loop()
        self._ended[exec_id] = loop.call_later(self._settings.ended_age, self._forget, exec_id)
        while len(self._ended) > self._settings.ended_max:
            self._forget(next(iter(self._ended)))

    def _forget(self, exec_id: str) -> None:
        self._executions.pop(exec_id, None)
        if (timer := self._ended.pop(exec_id, None)) is not None:
            timer.cancel()

    def _execution(self, exec_id: str) -> Execution:
        limits.check_id("exec_id", exec_id)
        if (execution := self._executions.get(exec_id)) is None:
            raise WireError(
                Code.NOT_FOUND,
                f"no command {exec_id}",
                details="it was never started, or was released or forgotten after its end",
            )
        return execution

    def _stop_everything(self, shortage: str) -> None:
        log.warning("everything that runs is ended: %s", shortage)
        for execution in self._executions.values():
            execution.stop(f"ended, because the disk is full: {shortage}")
        self._sessions.kill_background()

    def _running(self) -> int:
        running = sum(execution.exit is None for execution in self._executions.values())
        return running + self._sessions.background()
