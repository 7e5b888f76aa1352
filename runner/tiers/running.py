"""The guests that a driver has started or recovered, and what they print, which the runner writes
to their logs. A guest has no way to the file."""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from wire.logs import JsonFormatter

from runner.errors import TierError
from runner.logs import open_for_append
from runner.tiers.base import Handle, Inspection, TierDriver
from runner.workspace.mounts import Role

LOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""The limit of what one launch may log; the rest is dropped."""


class OutputLog:
    """The log at `path` of one launch, in its `home`. Raises `WorkspaceError` if it is not a plain
    file."""

    def __init__(
        self, path: Path, home: Path, role: Role, user_id: str, bytes_max: int = LOG_BYTES_MAX
    ) -> None:
        self._role = role
        self._user_id = user_id
        self._left = bytes_max
        self._fd = open_for_append(path, home)

    def write(self, block: bytes) -> None:
        """Append what the guest has printed, up to the limit."""
        if self._left > 0:
            self._append(block[: self._left])
            self._left -= len(block)
            if self._left <= 0:
                self._append(b"\n")
                self.add_line("the log is full: what follows is dropped")

    def add_line(self, message: str) -> None:
        """Append a line of the runner's own."""
        record = logging.makeLogRecord({"name": __name__, "levelname": "ERROR", "msg": message})
        line = JsonFormatter(str(self._role), self._user_id).format(record)
        self._append(line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop the guest
            while data:
                data = data[os.write(self._fd, data) :]


_KILL_TIMEOUT_S: Final = 60.0
_AGAIN_S: Final = 0.5


@dataclass(frozen=True)
class RunningGuest:
    """One guest, in terms of its tier.

    `ended` resolves to the exit code (None: unknown) once nothing of the guest runs. `terminate`
    and `kill` may block, may be repeated, and do nothing for a guest that has ended. `stuck` is the
    error for a guest that survives `kill`.
    """

    pid: int
    ended: "asyncio.Future[int | None]"
    terminate: Callable[[], object]
    kill: Callable[[], object]
    stuck: TierError

    async def end(self, grace: float) -> None:
        """See `TierDriver.stop`."""
        if self.ended.done():
            return
        try:
            # A first process loses a signal that comes before it handles it, so it is repeated.
            while grace > 0 and not self.ended.done():
                await asyncio.to_thread(self.terminate)
                await asyncio.wait({self.ended}, timeout=min(grace, _AGAIN_S))
                grace -= _AGAIN_S
        finally:
            if not self.ended.done():
                await asyncio.to_thread(self.kill)
        await asyncio.wait({self.ended}, timeout=_KILL_TIMEOUT_S)
        if not self.ended.done():
            raise self.stuck


class RunningGuests(TierDriver):
    """What tiers share whose guests run on this machine."""

    def __init__(self) -> None:
        self._guests: dict[str, RunningGuest] = {}

    async def inspect(self, handle: Handle) -> Inspection:
        guest = self._guests.get(handle.launch_id)
        if guest is None:
            return Inspection(running=False)
        if guest.ended.done():
            return Inspection(running=False, pid=guest.pid, exit_code=guest.ended.result())
        resident = await asyncio.to_thread(_resident_bytes, guest.pid)
        return Inspection(running=True, pid=guest.pid, resident_bytes=resident)

    async def wait(self, handle: Handle) -> int | None:
        guest = self._guests.get(handle.launch_id)
        return None if guest is None else await asyncio.shield(guest.ended)

    async def stop(self, handle: Handle, grace: float = 5.0) -> None:
        if (guest := self._guests.get(handle.launch_id)) is not None:
            await guest.end(grace)

    async def close(self) -> None:
        """Nothing is held open."""


def wait_in_thread(wait: Callable[[], int | None]) -> "asyncio.Future[int | None]":
    """The result of `wait`, which may block as long as a guest runs.

    Its thread is a daemon, because a guest may outlive the event loop and the runner.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int | None] = loop.create_future()

    def run() -> None:
        code = wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(ended.set_result, code)

    threading.Thread(target=run, name="guest-end", daemon=True).start()
    return ended


def _resident_bytes(pid: int) -> int:
    """The memory of the process and its descendants; 0 if it is gone."""
    found = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                found += each.memory_info().rss
    return found
