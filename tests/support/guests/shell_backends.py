"""Ways to reach a shell daemon, all behind one interface.

A backend is an async context manager that takes limits (by the names of
`Settings`) and yields a `Guest`. To add one, write such a function and enter it
in `BACKENDS`; the conformance suite does the rest.
"""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import grpc
import psutil
import pytest
from wire import envelope, transport
from wire.errors import WireError
from wire.identity import Party
from wire.status import from_rpc_error
from wire.v1 import shell_pb2, shell_pb2_grpc

from guest.tools.shell.client import StreamEnds
from runner.config.models import Config
from runner.host.launch import ShellLauncher
from runner.tiers.base import TierDriver
from runner.tiers.drivers import driver_for
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.directories import Owner
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace
from shell_daemon.limits import Settings
from shell_daemon.shell import Shell
from tests.support import parties
from tests.support.guests import engine
from tests.support.scratch import SCRATCH

TOKEN = "the-token-of-this-test"
CANARY = "OXYDRA_TEST_CANARY"
"""Set in every daemon's own environment; no command may see it."""

WAIT = "until [ -e go ]; do sleep 0.01; done; "
"""Makes a command wait for `Guest.let_go`."""

_FLAGS = {
    "commands_max": "--max-commands",
    "buffer_bytes": "--buffer-bytes",
    "timeout_default": "--default-timeout",
    "timeout_max": "--max-timeout",
}


class ShellApi(Protocol):
    """The contract's calls; failures are `WireError`s."""

    async def call(self, method: str, request: Any) -> Any: ...

    def stream(self, method: str, request: Any) -> AsyncGenerator[Any, None]: ...


@dataclass
class Ran:
    """What a command wrote and how it ended; `skipped` bytes of it were dropped unread."""

    stdout: bytes = b""
    stderr: bytes = b""
    skipped: int = 0
    exit: shell_pb2.ExecExit = field(default_factory=shell_pb2.ExecExit)


class Guest:
    """A running daemon, and where its virtual roots lie: on this host (`shared`, `tmp`) and
    for its commands (`seen_shared`, `seen_tmp`). `alive` knows a process by the pid that
    commands see."""

    def __init__(self, api: ShellApi, root: Path) -> None:
        self.api = api
        self.shared = self.seen_shared = root / "shared"
        self.tmp = self.seen_tmp = root / "tmp"
        self._started: set[str] = set()

    def alive(self, pid: int | str) -> bool:
        return alive(pid)

    async def clear(self) -> None:
        """End and forget all commands and remove their files: the guest is as new."""
        for exec_id in self._started:
            with contextlib.suppress(WireError):
                await self.cancel(exec_id)
            await self.release(exec_id)
        self._started.clear()
        for entry in (*self.shared.iterdir(), *self.tmp.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    async def start(self, exec_id: str, command: str, **fields: Any) -> shell_pb2.StartExecReply:
        request = shell_pb2.StartExecRequest(exec_id=exec_id, command=command, **fields)
        reply: shell_pb2.StartExecReply = await self.api.call("Start", request)
        self._started.add(exec_id)
        return reply

    async def collect(
        self,
        exec_id: str,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        *,
        reading: asyncio.Event | None = None,
    ) -> Ran:
        """All output from the offsets on, checked for holes, and the exit. `reading` is set
        as soon as some of it has come."""
        request = shell_pb2.ExecOutputRequest(
            exec_id=exec_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset
        )
        return await self._ran("Output", request, stdout_offset, stderr_offset, reading)

    async def run(self, exec_id: str, command: str, **fields: Any) -> Ran:
        """Run a command in one call."""
        request = shell_pb2.StartExecRequest(exec_id=exec_id, command=command, **fields)
        ran = await self._ran("Run", request)
        self._started.add(exec_id)
        return ran

    async def _ran(
        self,
        method: str,
        request: Any,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        reading: asyncio.Event | None = None,
    ) -> Ran:
        ran = Ran()
        places = {"stdout": stdout_offset, "stderr": stderr_offset}
        parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        async for event in self.api.stream(method, request):
            if reading is not None:
                reading.set()
            kind = event.WhichOneof("event")
            if kind == "exit":
                ran.exit = event.exit
                continue
            chunk = getattr(event, kind)
            assert chunk.offset >= places[kind]
            ran.skipped += chunk.offset - places[kind]
            places[kind] = chunk.offset + len(chunk.data)
            parts[kind].append(chunk.data)
        ran.stdout, ran.stderr = b"".join(parts["stdout"]), b"".join(parts["stderr"])
        return ran

    async def input(self, exec_id: str, offset: int, data: bytes, *, close: bool = False) -> int:
        request = shell_pb2.ExecInputRequest(exec_id=exec_id, offset=offset, data=data, close=close)
        return int((await self.api.call("Input", request)).offset)

    async def cancel(self, exec_id: str) -> None:
        await self.api.call("Cancel", shell_pb2.CancelExecRequest(exec_id=exec_id))

    async def release(self, exec_id: str) -> None:
        await self.api.call("Release", shell_pb2.ReleaseExecRequest(exec_id=exec_id))

    def let_go(self) -> None:
        """Let commands that begin with `WAIT` go on."""
        (self.shared / "go").touch()

    async def appears(self, name: str) -> str:
        """The content of a file in `shared` as soon as a command has written it."""
        path = self.shared / name
        async with asyncio.timeout(60):
            while not (path.is_file() and path.read_text()):
                await asyncio.sleep(0.01)
        return path.read_text().strip()


def once_read(monkeypatch: pytest.MonkeyPatch, root: Path) -> str:
    """How a command of a `ShellClient` begins that says "first" and goes on when its client
    has read that: from then on nothing of its output is dropped."""
    add = StreamEnds.add

    def noticed(self: StreamEnds, offset: int, data: bytes) -> None:
        (root / "shared/.read").touch()
        add(self, offset, data)

    monkeypatch.setattr(StreamEnds, "add", noticed)
    return "echo first; until [ -e .read ]; do sleep 0.01; done; "


class InProcess:
    """The core itself, without a wire."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def call(self, method: str, request: Any) -> Any:
        return await getattr(self._shell, method)(request, None)

    async def stream(self, method: str, request: Any) -> AsyncGenerator[Any, None]:
        async for event in getattr(self._shell, method)(request, None):
            yield event


class OverGrpc:
    """A daemon behind a channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = shell_pb2_grpc.ShellStub(channel)

    async def call(self, method: str, request: Any) -> Any:
        try:
            return await getattr(self._stub, method)(request)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def stream(self, method: str, request: Any) -> AsyncGenerator[Any, None]:
        call = getattr(self._stub, method)(request)
        try:
            async for event in call:
                yield event
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        finally:
            call.cancel()


@asynccontextmanager
async def in_process(**limits: Any) -> AsyncIterator[Guest]:
    root = new_root()
    try:
        settings = Settings(
            **{
                "shared": root / "shared",
                "tmp": root / "tmp",
                "run": root,
                **limits,
            }
        )
        shell = Shell(
            settings, parties.identity(Party.SHELL), admit=lambda _: None, on_lost=lambda: None
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CANARY, "leaked")
            shell.open()
            try:
                yield Guest(InProcess(shell), root)
            finally:
                await shell.close()
        assert left_behind(root) == []
    finally:
        shutil.rmtree(root)


_HOLD = """
import ctypes, os, sys
pid = int(sys.argv[1])
assert ctypes.CDLL(None).ptrace(16, pid, None, None) == 0
os.waitpid(pid, os.WUNTRACED)
print("held", flush=True)
os.waitpid(pid, 0)
"""


@contextlib.contextmanager
def held(pid: int) -> Iterator[None]:
    """Stop a process by tracing it, which unlike SIGSTOP no SIGCONT ends; until it is killed."""
    hold = [sys.executable, "-c", _HOLD, str(pid)]
    with subprocess.Popen(hold, stdout=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        assert tracer.stdout.readline() == b"held\n"
        yield
        tracer.kill()


class Daemon:
    """A real daemon process on a real socket."""

    def __init__(self, root: Path, *flags: str, under: Sequence[str] = ()) -> None:
        self.root = root
        self.endpoint = f"unix:{root}/shell.sock"
        self.process = subprocess.Popen(
            [
                *(*under, sys.executable, "-m", "shell_daemon.server"),
                *("--socket", str(root / "shell.sock"), "--bootstrap-stdin", "--exit-with-parent"),
                *("--root-shared", str(root / "shared"), "--root-tmp", str(root / "tmp")),
                *("--root-run", str(root)),
                *flags,
            ],
            stdin=subprocess.PIPE,
            stderr=(root / "log").open("wb"),
            env={**os.environ, CANARY: "leaked"},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(envelope.service(TOKEN, parties.identity(Party.SHELL)))
        self.process.stdin.flush()

    def channel(self, caller: Party = Party.AGENT) -> grpc.aio.Channel:
        return transport.open_channel(parties.shell(self.endpoint, TOKEN, caller))

    async def ready(self, channel: grpc.aio.Channel) -> None:
        async with asyncio.timeout(60):
            while not (self.root / "shell.sock").exists() or not await transport.check_health(
                channel
            ):
                assert self.process.poll() is None, (self.root / "log").read_text()
                await asyncio.sleep(0.01)

    def stop(self) -> int:
        """End it as its parent would, by closing standard input; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(60)


@asynccontextmanager
async def ready_daemon() -> AsyncIterator[Daemon]:
    """A real daemon that answers, in a directory of its own; killed at the end."""
    root = new_root()
    running = Daemon(root)
    async with running.channel() as channel:
        await running.ready(channel)
    yield running
    running.process.kill()
    running.process.wait()
    shutil.rmtree(root)


@asynccontextmanager
async def over_grpc(**limits: Any) -> AsyncIterator[Guest]:
    root = new_root()
    daemon = Daemon(root, *(f"{_FLAGS[name]}={value}" for name, value in limits.items()))
    try:
        async with daemon.channel() as channel:
            await daemon.ready(channel)
            yield Guest(OverGrpc(channel), root)
        assert daemon.stop() == 0
        assert left_behind(root) == []
    finally:
        daemon.process.kill()
        daemon.process.wait()
        shutil.rmtree(root)


Backend = Callable[..., AbstractAsyncContextManager[Guest]]


class ConfinedGuest(Guest):
    """A daemon in namespaces of its own, below the process `init` of this host."""

    def __init__(self, api: ShellApi, root: Path, init: int) -> None:
        super().__init__(api, root)
        self.seen_shared, self.seen_tmp = Path("/shared"), Path("/tmp")
        self._init = psutil.Process(init)

    def alive(self, pid: int | str) -> bool:
        for process in self._init.children(recursive=True):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                inner = re.search(r"^NSpid:.*\s(\d+)$", status, re.MULTILINE)
                if inner is not None and inner[1] == str(pid) and alive(process.pid):
                    return True
        return False


@asynccontextmanager
async def in_tier(
    driver: TierDriver,
    owner: Owner,
    config: Config = Config(),  # noqa: B008 - immutable
    **limits: Any,
) -> AsyncIterator[Guest]:
    """A daemon as a shell guest of a tier, started by its driver."""
    root = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="sh-"))
    workspace = Workspace(root, "alice", owner)
    workspace.provision()
    flags = [f"{_FLAGS[name]}={value}" for name, value in limits.items()]
    launcher = ShellLauncher(config, workspace, driver.capabilities, parties.AUTHORITY)
    launch = launcher.prepare()
    environment = {**launch.spec.environment, CANARY: "leaked"}
    command = (*launch.spec.command, *flags)
    handle = await driver.start(replace(launch.spec, command=command, environment=environment))
    try:
        async with transport.open_channel(launch.peer) as channel:
            async with asyncio.timeout(60):
                while not workspace.socket(Role.SHELL).exists() or not await transport.check_health(
                    channel
                ):
                    look = await driver.inspect(handle)
                    assert look.running, launch.spec.log_path.read_text()
                    await asyncio.sleep(0.01)
            look = await driver.inspect(handle)
            family = psutil.Process(look.pid).children(recursive=True)
            yield ConfinedGuest(OverGrpc(channel), workspace.path, look.pid)
        await driver.stop(handle, 10)
        assert not [process for process in family if alive(process.pid)]
    finally:
        await driver.stop(handle, 0)
        shutil.rmtree(root)


def in_bubblewrap(**limits: Any) -> AbstractAsyncContextManager[Guest]:
    return in_tier(ProcessDriver(), Owner.ours(), **limits)


def in_container(**limits: Any) -> AbstractAsyncContextManager[Guest]:
    config = Config(tier="container")
    return in_tier(driver_for(config), engine.owner(), **limits)


@dataclass(frozen=True)
class Way:
    """One way to reach a daemon, and the parts of the machine it needs.

    Those of the tiers are over gRPC too; without a tier only long runs go that way."""

    enter: Backend
    marks: tuple[pytest.MarkDecorator, ...] = ()


BACKENDS: dict[str, Way] = {
    "in-process": Way(in_process),
    "grpc": Way(over_grpc, (pytest.mark.long,)),
    "bubblewrap": Way(in_bubblewrap, (pytest.mark.bubblewrap,)),
    "container": Way(in_container, (pytest.mark.docker,)),
}


def new_root() -> Path:
    """A short path, because sockets live there, with both virtual roots."""
    root = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="sh-"))
    (root / "shared").mkdir()
    (root / "tmp").mkdir()
    return root


def alive(pid: int | str) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def left_behind(root: Path) -> list[str]:
    """The command lines of processes that belong to a guest: by directory or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            mine = Path(os.readlink(entry / "cwd")).is_relative_to(root)
            mine = mine or str(root).encode() in (entry / "environ").read_bytes()
            if mine and alive(entry.name):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
