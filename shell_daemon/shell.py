"""The service of the shell guest: all commands by the ids that their callers chose.

`wire.transport` checks tokens and turns these `WireError`s into statuses:

    INVALID_ARGUMENT     a field that can never work; it is named
    NOT_FOUND            no command with that id
    CONFLICT             the id is taken by a different request
    FAILED_PRECONDITION  a running command cannot be released; standard input is not open
    RESOURCE_EXHAUSTED   too many commands, or no room on a disk or in memory
    PERMISSION_DENIED    only the runner may ask for it
    UNAVAILABLE          the daemon is stopping
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from wire import transport
from wire.errors import Code, WireError
from wire.identity import Identity, Party
from wire.v1 import shell_pb2, shell_pb2_grpc

from shell_daemon import limits
from shell_daemon.command_network import CommandNetwork
from shell_daemon.execution import Execution
from shell_daemon.guards import DiskGuard, MemoryGuard
from shell_daemon.limits import Settings
from shell_daemon.processes.pool import Processes
from shell_daemon.program import Program, Programs

# ruff: noqa: ARG002, N802 - gRPC names the methods and passes requests and contexts

log = logging.getLogger(__name__)


class Shell(shell_pb2_grpc.ShellServicer):
    """All commands of one guest.

    `admit` accepts a further token from now on. `on_lost` is called when the shell can no longer
    run or end commands and must be restarted.
    """

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        *,
        admit: Callable[[str], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._outside = CommandNetwork(settings, identity)
        self._admit = admit
        self._processes = Processes(on_lost)
        self._programs: Programs | None = None
        self._executions: dict[str, Execution] = {}
        self._ended: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        disks = DiskGuard(
            (settings.shared, settings.tmp),
            settings.free_bytes_min,
            busy=lambda: self._running() > 0,
            on_shortage=lambda shortage: self._stop_everything(f"the disk is full: {shortage}"),
        )
        self._guards: list[DiskGuard | MemoryGuard] = [disks]
        if settings.memory_bytes is not None:
            memory = MemoryGuard(
                settings.memory_bytes,
                busy=lambda: self._running() > 0,
                on_excess=lambda excess: self._stop_everything(f"the memory is full: {excess}"),
                on_lost=on_lost,
            )
            self._guards.append(memory)

    def open(self) -> None:
        """Get ready to run commands; raises `WireError` if that is impossible here."""
        self._programs = Programs()
        self._outside.clear()
        self._processes.start(hiding=self._settings.memory_bytes is None)

    async def close(self) -> None:
        """End all commands and wait until they are gone. Idempotent."""
        for execution in self._executions.values():
            execution.cancel()
        await self._processes.close()
        await asyncio.gather(*self._tasks)
        for timer in self._ended.values():
            timer.cancel()
        for guard in self._guards:
            guard.stop()

    def reap(self) -> None:
        """Collect ended children of this process, when it is the guest's first."""
        self._processes.reap()

    async def Hello(
        self, request: shell_pb2.ShellHelloRequest, context: Any
    ) -> shell_pb2.ShellHelloReply:
        return shell_pb2.ShellHelloReply()

    async def Admit(self, request: shell_pb2.AdmitRequest, context: Any) -> shell_pb2.AdmitReply:
        limits.check_token(request.token)
        self._admit(request.token)
        return shell_pb2.AdmitReply()

    async def SetEgress(
        self, request: shell_pb2.SetEgressRequest, context: Any
    ) -> shell_pb2.SetEgressReply:
        transport.require(context, Party.RUNNER)
        self._outside.set(request)
        return shell_pb2.SetEgressReply()

    async def Start(
        self, request: shell_pb2.StartExecRequest, context: Any
    ) -> shell_pb2.StartExecReply:
        """Start a command.

        A second request with the same id and content starts nothing: it means the same command
        until that is released or forgotten.
        """
        self._start(request)
        await asyncio.sleep(0)  # let the command start before the answer goes out
        return shell_pb2.StartExecReply()

    async def Run(
        self, request: shell_pb2.StartExecRequest, context: Any
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        """Start a command like `Start`; both its streams as they come, then the exit."""
        async for event in self._start(request).events(0, 0):
            yield event

    async def Output(
        self, request: shell_pb2.ExecOutputRequest, context: Any
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        """Both streams from the given offsets as they come, then the exit."""
        execution = self._execution(request.exec_id)
        for name, asked, stream in (
            ("stdout_offset", request.stdout_offset, execution.stdout),
            ("stderr_offset", request.stderr_offset, execution.stderr),
        ):
            if asked > stream.total:
                raise limits.refused(name, str(asked), f"up to {stream.total}, what was written")
        async for event in execution.events(request.stdout_offset, request.stderr_offset):
            yield event

    async def Input(
        self, request: shell_pb2.ExecInputRequest, context: Any
    ) -> shell_pb2.ExecInputReply:
        """Write to a standard input that stays open, once the command reads it."""
        stdin = self._execution(request.exec_id).stdin
        if stdin is None:
            raise WireError(
                Code.FAILED_PRECONDITION,
                f"standard input of command {request.exec_id} is not open",
                resolution="start it with open_stdin",
            )
        limits.check_stdin(request.data, self._settings)
        await stdin.write(request.offset, request.data)
        if request.close:
            stdin.close()
        return shell_pb2.ExecInputReply(offset=stdin.total)

    async def Extend(
        self, request: shell_pb2.ExtendExecRequest, context: Any
    ) -> shell_pb2.ExtendExecReply:
        """Give a command more time."""
        more = limits.check_extension(request.by_ms)
        self._execution(request.exec_id).extend(more)
        return shell_pb2.ExtendExecReply()

    async def Cancel(
        self, request: shell_pb2.CancelExecRequest, context: Any
    ) -> shell_pb2.CancelExecReply:
        """End a command's process tree and wait until it is gone. Idempotent."""
        execution = self._execution(request.exec_id)
        execution.cancel()
        await execution.ended.wait()
        return shell_pb2.CancelExecReply()

    async def Release(
        self, request: shell_pb2.ReleaseExecRequest, context: Any
    ) -> shell_pb2.ReleaseExecReply:
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

    async def Read(
        self, request: shell_pb2.ReadExecRequest, context: Any
    ) -> shell_pb2.ReadExecReply:
        """What there is of a command's standard output by now."""
        return self._execution(request.exec_id).read(request.offset, request.limit)

    async def Wait(self, request: shell_pb2.WaitExecRequest, context: Any) -> shell_pb2.ExecExit:
        """Wait for a command's end."""
        execution = self._execution(request.exec_id)
        await execution.ended.wait()
        assert execution.exit is not None
        return execution.exit

    def _start(self, request: shell_pb2.StartExecRequest) -> Execution:
        """The command that a request means, started if it is new. Raises `WireError`."""
        limits.check_id("exec_id", request.exec_id)
        fingerprint = limits.fingerprint(request)
        if (known := self._executions.get(request.exec_id)) is not None:
            limits.check_same("exec_id", request.exec_id, known.fingerprint, fingerprint)
            return known
        if not request.probe:
            limits.check_command(request.command, request.argv)
        limits.check_stdin(request.stdin, self._settings)
        limits.check_environment(request.environment)
        limits.check_caller(request.session_id, request.turn_id)
        if request.open_stdin and (request.stdin or request.probe):
            raise limits.refused("open_stdin", "stdin or probe is given too", "one of them")
        if request.background and (request.open_stdin or request.probe):
            raise limits.refused("background", "open_stdin or probe is given too", "one of them")
        timeout = limits.check_timeout(
            *(request.timeout_ms, self._settings),
            endless=request.open_stdin,
            background=request.background,
        )
        if self._running() >= self._settings.commands_max:
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                f"{self._settings.commands_max} commands are running",
                resolution="wait for one to end, or cancel one",
            )
        for guard in self._guards:
            guard.check()
        directory = limits.open_directory(request.cwd or "/shared", self._settings)
        execution = Execution(
            *(fingerprint, timeout, self._settings),
            open_stdin=request.open_stdin,
            background=request.background,
        )
        self._executions[request.exec_id] = execution
        task = asyncio.create_task(self._run(request, execution, directory))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        for guard in self._guards:
            guard.watch()
        return execution

    def _program(self, request: shell_pb2.StartExecRequest) -> Program:
        assert self._programs is not None
        if request.probe:
            return Program()
        variables = any(name != "TZ" for name in request.environment)
        return self._programs.find(request.command, request.argv, variables=variables)

    async def _run(
        self, request: shell_pb2.StartExecRequest, execution: Execution, directory: int
    ) -> None:
        """Run a command; whatever goes wrong, it gets an exit that its callers can read."""
        try:
            program = self._program(request)
            with self._outside.opened(
                request.session_id, request.turn_id, execution.tell_refused
            ) as route:
                environment = {
                    **self._settings.environment(),
                    "PWD": str(limits.path_of(directory)),
                    **route,
                    **request.environment,
                }
                await execution.run(self._processes, program, directory, request.stdin, environment)
        except WireError as error:
            execution.fail(error.brief)
        except Exception:
            log.exception("a command could not be run to its end")
            execution.fail("internal error of the shell daemon")
        finally:
            os.close(directory)
            self._retire(request.exec_id)
        await asyncio.sleep(0)  # readers of the output get the exit before it is logged
        if execution.exit is not None:
            log.info(
                "command %s ended",
                request.exec_id,
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

    def _stop_everything(self, why: str) -> None:
        log.warning("all running commands are ended: %s", why)
        for execution in self._executions.values():
            execution.stop(f"ended, because {why}")

    def _running(self) -> int:
        return sum(execution.exit is None for execution in self._executions.values())
