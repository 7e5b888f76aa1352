"""The daemon's view of one command's process tree and of the supervisor above it."""

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shell_daemon.processes.supervisor import KILL_S, Run

_CHUNK = 65536


@dataclass(repr=False, eq=False)
class Channel:
    """One end of a socket pair, which it owns.

    `on_end` is called once, when the other side is gone, and must call `close`. It is not called
    after a `close`.
    """

    peer: socket.socket
    on_message: Callable[[dict[str, Any]], None]
    on_end: Callable[[], None]

    def __post_init__(self) -> None:
        self.peer.setblocking(False)
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.peer, self._readable)

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> bytes:
        """Send one line, with descriptors beside it, and return the bytes that did not fit, for
        `flush`. If the other side is gone, this does nothing; `on_end` reports it."""
        data = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        with contextlib.suppress(OSError):
            return data[socket.send_fds(self.peer, [data], descriptors) :]
        return b""

    async def flush(self, unsent: bytes) -> None:
        """Send the bytes that `send` returned."""
        if unsent:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self.peer, unsent)

    def finish(self) -> None:
        """Stop sending; the other side reads end-of-file and may still answer."""
        with contextlib.suppress(OSError):
            self.peer.shutdown(socket.SHUT_WR)

    def close(self) -> bool:
        """Stop reading and close; returns whether the channel was open."""
        if self.peer.fileno() < 0:
            return False
        self._loop.remove_reader(self.peer)
        self.peer.close()
        return True

    def _readable(self) -> None:
        try:
            data = self.peer.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self.on_message(json.loads(line))
        if not data:
            self._loop.remove_reader(self.peer)
            self.on_end()


log = logging.getLogger(__name__)

NOT_STARTED = 126
"""The exit code of a command that could not be executed, as in shells."""
PATIENCE_S = 2.0
"""How much longer than its own deadlines a supervisor or the zygote may take."""


@dataclass(frozen=True)
class Exited:
    """How a command ended. `failure` goes to its standard error if it did not end by itself.
    `left_behind` says that processes of it went on, and were ended."""

    exit_code: int
    failure: str = ""
    left_behind: bool = False


class Process:
    """One command's process tree.

    `exited` is resolved when the command and its tree have ended, except for processes that
    could not be killed in time; `gone` when nothing of the tree is left. Both are always
    resolved, even if the supervisor or the zygote is killed.
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
        """End the tree with SIGTERM and, after the grace, SIGKILL; wait for `gone`. Idempotent.

        If the supervisor does not do so in time, the zygote kills the tree.
        """
        if self._watchdog is None and not self.gone.done():
            self._supervisor.end(self._number)
            patience = self._grace + KILL_S + PATIENCE_S
            self._watchdog = self._loop.call_later(patience, self._supervisor.abandon)

    def kill(self) -> None:
        """Kill the tree at once, without SIGTERM. Idempotent."""
        if not self.gone.done():
            self._supervisor.abandon()

    def settle(self, exited: Exited) -> None:
        """Nothing of the tree is left. `exited` is used if the end was not reported before."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if not self.exited.done():
            self.exited.set_result(exited)
        if not self.gone.done():
            self.gone.set_result(None)


@dataclass(repr=False, eq=False)
class Supervisor:
    """The connection to one supervisor, and the process that it runs.

    `on_free` is called when nothing of its process is left; `on_lost` when the supervisor is gone
    or does not do its work: it must see that `settle` is called. `thaw` lets it go on, if a command
    has stopped it.
    """

    peer: socket.socket
    on_free: Callable[["Supervisor"], None]
    on_lost: Callable[["Supervisor"], None]
    thaw: Callable[["Supervisor"], None]

    def __post_init__(self) -> None:
        self.pid = 0
        """As the zygote sees it; 0 until it has begun."""
        self._process: Process | None = None
        self._channel = Channel(self.peer, self._on_message, self.abandon)

    async def run(self, request: Run, descriptors: Sequence[int]) -> Process:
        """Run a command; the caller may close the descriptors when this returns."""
        self._process = process = Process(self, request["number"], request["grace"])
        await self._channel.flush(self._channel.send(request, descriptors))
        return process

    def end(self, number: int) -> None:
        self.thaw(self)
        self._channel.send({"end": number})

    def abandon(self) -> None:
        """Give up the supervisor and all processes below it. Idempotent."""
        if self._channel.close():
            self.on_lost(self)

    def close(self) -> None:
        """Close the connection: the supervisor ends what it runs and exits. Idempotent."""
        self._channel.close()

    def settle(self) -> None:
        """The supervisor is gone, with all processes below it."""
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
            exited = Exited(exit_code(message["exited"]), left_behind=message["left"])
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
        self.on_free(self)


def exit_code(status: int | None) -> int:
    """A wait status as shells report it; None, for an unknown end, becomes that of SIGKILL."""
    code = -9 if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
