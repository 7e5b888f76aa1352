"""Interactive sessions: commands in order that share directory and environment.

Each command is a fresh shell with a process tree of its own, like any other.
What makes a session is a script that restores the working directory, the
exported variables and (in bash) the functions; the shell writes it anew when
it exits. So one command's end, exit code and output are exact, its timeout
ends its tree and nothing else, and the session survives whatever a command
does to its shell: after `exec`, a syntax error, a signal, a timeout or a cancel
it is as it was before that command. Plain variables, shell options and job
control do not outlive a command.

What a command leaves in the background lives until the session is closed; what
it then writes to the command's streams is thrown away.
"""

import asyncio
import logging
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError
from wire.v1 import shell_pb2

from shell_daemon import limits
from shell_daemon.execution import Execution, Launch, Program
from shell_daemon.limits import Settings
from shell_daemon.processes.pool import Processes
from shell_daemon.processes.process import Process

log = logging.getLogger(__name__)

STATE_NUMBER: Final = 199
"""The state's descriptor in the shell: beyond what scripts use."""
_STATE_MAX_BYTES: Final = 256 * 1024
_MARK: Final = b"# state\n"
"""The last line of a state that was written to its end."""
_PROLOGUE: Final = (
    'trap \'{ export PWD OLDPWD; export -p; [ -z "${BASH_VERSION-}" ] || declare -f; '
    f'echo "# state"; }} >/proc/self/fd/{STATE_NUMBER} 2>/dev/null\' EXIT; '
    f". /proc/self/fd/{STATE_NUMBER} 2>/dev/null; "
    'set -- "$1" "${OLDPWD-}"; '
    'cd -- "$PWD" 2>/dev/null || '
    '{ echo "oxydra: the working directory $PWD is gone" >&2; cd -- "$(pwd -P)"; }; '
    'OLDPWD=${2:-$OLDPWD}; eval "shift 2;$1"'
)


class Session:
    """The state between commands, and what they left running."""

    def __init__(self, fingerprint: bytes, directory: Path, environment: Mapping[str, str]) -> None:
        self.fingerprint = fingerprint
        self.background: set[Process] = set()
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()
        self._commands: set[Execution] = set()
        self._turn = asyncio.Lock()
        self._state = _assignments({**environment, "PWD": str(directory)}) + _MARK

    @property
    def idle(self) -> bool:
        """Whether no command runs or waits."""
        return not self._commands

    def admit(self, execution: Execution) -> None:
        """Take a command in; `run` must follow."""
        self._commands.add(execution)

    async def run(
        self, execution: Execution, processes: Processes, launch: Launch, shell: str
    ) -> None:
        """Run a command when those before it have ended. A directory or variables
        that it asks for stay for those after it."""
        try:
            await self._run(execution, processes, launch, shell)
        finally:
            self._commands.discard(execution)
            self.last_used = self._loop.time()

    async def _run(
        self, execution: Execution, processes: Processes, launch: Launch, shell: str
    ) -> None:
        async with self._turn:
            if execution.exit is not None:
                return
            state = self._open_state(launch)
            try:
                program = Program(
                    argv=[shell, "-c", _PROLOGUE, Path(shell).name, launch.command],
                    environment=launch.base_environment,
                    directory=launch.directory,
                    descriptors={STATE_NUMBER: state},
                    linger=True,
                )
                left = await execution.run(processes, program)
                if not execution.interrupted:
                    self._keep_state(state)
            finally:
                os.close(state)
            if left is not None:
                self.background.add(left)
                left.gone.add_done_callback(lambda _: self.background.discard(left))

    async def close(self) -> None:
        """End its commands, those that wait included, and what they left running."""
        commands = list(self._commands)
        for execution in commands:
            execution.cancel()
        for execution in commands:
            await execution.ended.wait()
        background = list(self.background)
        for process in background:
            process.end()
        for process in background:
            await asyncio.shield(process.gone)

    def _open_state(self, launch: Launch) -> int:
        changes = dict(launch.environment)
        if launch.path is not None:
            changes["PWD"] = str(launch.path)
        descriptor = os.memfd_create("session")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(self._state + _assignments(changes) + _MARK)
        return descriptor

    def _keep_state(self, descriptor: int) -> None:
        state = os.pread(descriptor, _STATE_MAX_BYTES + 1, 0)
        if len(state) > _STATE_MAX_BYTES:
            log.warning("a session's state is over %d bytes and not kept", _STATE_MAX_BYTES)
        elif state.endswith(_MARK):
            self._state = state


class Sessions:
    """Every open session by its id. One that nobody used for long is closed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def open(self, request: shell_pb2.OpenShellSessionRequest) -> bool:
        """Open a session; true where the same request has opened it before."""
        fingerprint = limits.fingerprint(request)
        if (known := self._sessions.get(request.session_id)) is not None:
            limits.check_same("session_id", request.session_id, known.fingerprint, fingerprint)
            return True
        environment = limits.check_environment(request.environment, self._settings)
        if len(self._sessions) >= self._settings.sessions_max:
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                f"{self._settings.sessions_max} sessions are open",
                resolution="close one",
            )
        directory, path = limits.open_directory(request.cwd or "/shared", self._settings)
        os.close(directory)
        self._sessions[request.session_id] = Session(fingerprint, path, environment)
        if self._timer is None:
            self._close_idle()
        return False

    def get(self, session_id: str) -> Session:
        limits.check_id("session_id", session_id)
        if (session := self._sessions.get(session_id)) is None:
            raise WireError(
                Code.NOT_FOUND,
                f"no session {session_id}",
                details="it was never opened, or was closed",
                resolution="open it",
            )
        return session

    async def close(self, session_id: str) -> None:
        """End a session with all that runs in it. Idempotent."""
        if (session := self._sessions.pop(session_id, None)) is not None:
            await session.close()

    def background(self) -> int:
        """How many commands left processes running."""
        return sum(len(session.background) for session in self._sessions.values())

    def kill_background(self) -> None:
        """End what commands left running; the sessions stay."""
        for session in self._sessions.values():
            for process in list(session.background):
                process.kill()

    def stop(self) -> None:
        """Close no more sessions by itself. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        limit = self._settings.session_idle
        for session_id, session in list(self._sessions.items()):
            if session.idle and loop.time() - session.last_used >= limit:
                log.info("session %s is closed: idle for %d s", session_id, limit)
                task = loop.create_task(self.close(session_id))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        self._timer = loop.call_later(limit / 4, self._close_idle)


def _assignments(values: Mapping[str, str]) -> bytes:
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in values.items()
    ).encode()
