"""Hosts that are processes of their own: one, or many that share the memory of their imports.

What a host imports takes half of its processor time and most of its memory. So the hosts of
`start --all` are forks of a nursery, a process that has imported it and does nothing else: it has
no threads, no connections and nothing of any user.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import IO, Final

from wire.errors import Code, WireError

from runner.cli.agent import as_used_last
from runner.cli.options import Options
from runner.errors import HostError
from runner.host.awake import Waker

_REQUEST_BYTES_MAX: Final = 4096
"""A user id is much shorter."""


@dataclass(frozen=True)
class Launched:
    """A host that was started as a process of its own, and what is to be said of it."""

    pid: int
    notices: list[str]


def launch(options: Options, *, woken: bool = False) -> Launched:
    """Start a host as a process; return once its agent answers. A `woken` one ends by itself.

    Raises the `WireError` that kept it from starting.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as pipe, tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(  # noqa: S603 - this very program
            options.child("start", "--notify-fd", str(writing), *(["--woken"] if woken else [])),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        try:
            return _launched(options, pipe.read(), output, lambda: f" with status {child.wait()}")
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise


@asynccontextmanager
async def waking(options: Options, name: str) -> AsyncIterator[None]:
    """Meanwhile the hosts of stopped users are started for what is due; see `Waker`."""

    def start(user_id: str) -> Launched:
        return launch(as_used_last(replace(options, user_id=user_id)), woken=True)

    task = asyncio.create_task(Waker(name, options.load, start).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _launched(options: Options, told: str, output: IO[str], ended: Callable[[], str]) -> Launched:
    """What a host has `told`. Raises the `WireError` that kept it from starting; for one that has
    told nothing, `ended` says how it ended."""
    if not told:
        how = ended()
        output.seek(0)
        raise HostError(
            Code.INTERNAL,
            f"the host ended{how} before it was ready",
            details=output.read()[-2000:].strip(),
            resolution=options.command("logs", "--role", "host"),
        )
    content = json.loads(told)
    if "error" in content:
        ended()
        raise WireError.of(content["error"])
    return Launched(content["pid"], content["notices"])


class HostSpawner(AbstractContextManager["HostSpawner"]):
    """A process that becomes hosts of any users. A context manager; its hosts outlive it."""

    def __init__(self, options: Options) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                options.child("start", "--nursery-fd", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        self._process.wait()

    def launch(self, options: Options) -> Launched:
        """Start a host; return when its agent answers. May be called from several threads.

        Where the nursery has ended, the host starts without it, which tells what is wrong. Raises
        the `WireError` that kept it from starting.
        """
        reading, writing = os.pipe()
        with os.fdopen(reading, encoding="utf-8") as pipe, tempfile.TemporaryFile("w+") as output:
            try:
                request = options.user_id.encode()
                socket.send_fds(self._requests, [request], [writing, output.fileno()])
            except OSError:
                return launch(options)
            finally:
                os.close(writing)
            told = pipe.read()
            if not told and self._has_ended():
                return launch(options)
            return _launched(options, told, output, lambda: "")

    def _has_ended(self) -> bool:
        try:
            return not self._requests.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # with a request that it has not read
            return True


def run_nursery(options: Options, requests_fd: int, run_host: Callable[[Options, int], int]) -> int:
    """Fork a host for every request until nobody can make one; `run_host` is given a user's options
    and where to say that it is ready. Returns the exit code; in a host's process that host's."""
    from runner.host import host  # noqa: F401 - for the hosts

    options.load_for_hosting()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for hosts
    with socket.socket(fileno=requests_fd) as requests:
        while True:
            user_id, descriptors, *_ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 2)
            if not user_id:
                return 0
            if os.fork() == 0:
                break
            for each in descriptors:
                os.close(each)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    notify, output = descriptors
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    whose = replace(options, user_id=user_id.decode())
    try:
        return run_host(whose, notify)
    except WireError as error:
        error.resolution = whose.mended(error.resolution)
        raise
