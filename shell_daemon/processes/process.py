"""One command's process tree, as the daemon sees it, and the supervisor above it."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shell_daemon.processes.channel import Channel
from shell_daemon.processes.supervisor import KILL_S, Run

log = logging.getLogger(__name__)

NOT_STARTED = 126
"""The exit code of a command that could not be executed, as shells have it."""
PATIENCE_S = 2.0
"""What a supervisor or the zygote may take on top of its own deadlines."""


@dataclass(frozen=True)
class Exited:
    """How a command ended. `failure` is what its standard error is to say where the
    command was not seen to its own end."""

    exit_code: int
    failure: str = ""


class Process:
    """One command's process tree.

    `exited` is resolved when the command and its tree have ended, but for what could
    not be killed in time; `gone` when nothing of it is left. Both are resolved in
    any case, also when the supervisor or the zygote is killed.
    """

    def __init__(self, supervisor: "Supervisor", number: int, grace: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[Exited] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._supervisor = supervisor
        self._number = number
        self._grace = grace
        self._watchdog: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """End the tree: SIGTERM, after the grace SIGKILL, and if the supervisor
        does not see to that, the zygote does. Idempotent; `gone` tells when."""
        if self._watchdog is None and not self.gone.done():
            self._supervisor.end(self._number)
            patience = self._grace + KILL_S + PATIENCE_S
            self._watchdog = self._loop.call_later(patience, self._supervisor.abandon)

    def kill(self) -> None:
        """End the tree at once, without a SIGTERM that it could use. Idempotent."""
        if not self.gone.done():
            self._supervisor.abandon()

    def settle(self, exited: Exited) -> None:
        """Nothing is left; `exited` counts where the end was not reported before."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if not self.exited.done():
            self.exited.set_result(exited)
        if not self.gone.done():
            self.gone.set_result(None)


class Supervisor:
    """The connection to one supervisor and the process it looks after.

    `on_free` is called when nothing of that process is left, `on_lost` when the
    supervisor is gone or out of order: then `settle` must follow.
    """

    def __init__(
        self,
        peer: socket.socket,
        on_free: Callable[["Supervisor"], None],
        on_lost: Callable[["Supervisor"], None],
    ) -> None:
        self.pid = 0
        self._process: Process | None = None
        self._on_free = on_free
        self._on_lost = on_lost
        self._channel = Channel(peer, self._on_message, self.abandon)

    async def run(self, request: Run, descriptors: Sequence[int]) -> Process:
        """Run a command; the descriptors may be closed afterwards."""
        self._process = process = Process(self, request["number"], request["grace"])
        await self._channel.flush(self._channel.send(request, descriptors))
        return process

    def end(self, number: int) -> None:
        self._channel.send({"end": number})

    def abandon(self) -> None:
        """Give it up, with all below it. Idempotent."""
        if self._channel.close():
            self._on_lost(self)

    def close(self) -> None:
        """Let it go: it ends what it runs, if anything, and exits. Idempotent."""
        self._channel.close()

    def settle(self) -> None:
        """It is gone with all below it."""
        process, self._process = self._process, None
        if process is None:
            return
        if self.pid:
            why = "the command's supervisor was killed, and the command with it"
            process.settle(Exited(exit_code(None), failure=why))
        else:
            why = "no process could be created: the limit on processes is reached"
            process.settle(Exited(NOT_STARTED, failure=why))

    def _on_message(self, message: dict[str, Any]) -> None:
        process = self._process
        if process is None or "supervisor" in message:
            self.pid = message["supervisor"]
        elif "exited" in message:
            exited = Exited(exit_code(message["exited"]))
            if message["gone"]:
                self._free(process, exited)
            else:
                process.exited.set_result(exited)
                log.error(
                    "processes of a command could not be killed", extra={"event": "not_killed"}
                )
        else:
            self._free(process, Exited(NOT_STARTED, failure=message["failed"]))

    def _free(self, process: Process, exited: Exited) -> None:
        self._process = None
        process.settle(exited)
        self._on_free(self)


def exit_code(status: int | None) -> int:
    """A wait status as shells report it; of a command nobody saw end, that of SIGKILL."""
    code = -9 if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
