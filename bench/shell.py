"""What one command in a shell guest costs, against `docker exec` and a bare fork and exec.

Run alone: `python -m bench.shell`.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from wire import envelope, transport
from wire.identity import Party, Peer

from bench import engine
from bench.report import percentile, verdict
from bench.scratch import scratch
from guest.tools.shell.client import Command, ShellClient
from runner.config.models import Config
from runner.config.tiers import TierName
from runner.host.authority import Authority
from runner.host.launch import ShellLauncher
from runner.tiers.base import Handle
from runner.tiers.drivers import driver_for
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace

GOAL: Final = 20.0
"""How many times faster than `docker exec` a command in the container tier must be."""
_READY_S: Final = 60.0
_WARM_UP: Final = 5
_PAUSE_S: Final = 0.01
_TRUE: Final = Command(text="true", cwd="/shared", timeout_s=60)
_PROGRAM: Final = Command(text="/bin/true", cwd="/shared", timeout_s=60)
"""`true` is a word of the shell, which is started for it; this is a program, as for docker."""

Way = Callable[[], Awaitable[None]]


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` measures more rounds."""
    rounds = 300 if full else 60
    lines = [f"shell_exec of `true` ({rounds} interleaved rounds; milliseconds)"]
    async with AsyncExitStack() as stack:
        ways: dict[str, Way] = {"fork and exec": _fork}
        ways["bare socket"] = _asking(await stack.enter_async_context(_daemon()))
        if why := ProcessDriver().capabilities.unsupported.get(Role.SHELL, ""):
            lines.append(f"  process tier left out: {why}")
        else:
            client, _ = await stack.enter_async_context(_guest("process"))
            ways["process tier"] = _asking(client)
        if why := await engine.missing():
            lines.append(f"  container tier and docker exec left out: {why}")
        else:
            client, handle = await stack.enter_async_context(_guest("container"))
            ways["container tier"] = _asking(client)
            ways["... /bin/true"] = _asking(client, _PROGRAM)
            ways["docker exec"] = _exec(handle.data["container"])
        if why := await engine.missing("micro_vm"):
            lines.append(f"  micro_vm tier (gVisor) left out: {why}")
        else:
            client, _ = await stack.enter_async_context(_guest("micro_vm"))
            ways["micro_vm tier"] = _asking(client)
        times = await _interleaved(ways, rounds)
    for name, found in times.items():
        p50, p95 = percentile(found, 50), percentile(found, 95)
        lines.append(f"  {name:15} p50 {p50 * 1000:7.2f}   p95 {p95 * 1000:7.2f}")
    if "docker exec" in times:
        for name in ("container tier", "... /bin/true"):
            ratio = percentile(times["docker exec"], 50) / percentile(times[name], 50)
            lines.append(
                f"  docker exec / {name}: {ratio:.1f} times   "
                f"goal: at least {GOAL:g} times: {verdict(ratio >= GOAL)}"
            )
    return lines


async def _interleaved(ways: dict[str, Way], rounds: int) -> dict[str, list[float]]:
    """Seconds of every way in every round, after warm-up rounds.

    In the pause after each command it cleans up, so that the next one does not pay for it.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(_WARM_UP + rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if number >= _WARM_UP:
                times[name].append(time.perf_counter() - began)
            await asyncio.sleep(_PAUSE_S)
    return times


async def _fork() -> None:
    subprocess.run(["/bin/true"], check=True)


def _exec(container: str) -> Way:
    async def way() -> None:
        engine.docker("exec", container, "true")

    return way


def _asking(client: ShellClient, command: Command = _TRUE) -> Way:
    async def way() -> None:
        ended = await client.run(command)
        if ended.exit.exit_code != 0:
            raise RuntimeError(f"true ended with {ended.exit.exit_code}")

    return way


@asynccontextmanager
async def _daemon() -> AsyncIterator[ShellClient]:
    """The daemon as an ordinary process, without any tier around it."""
    token, authority = transport.new_token(), Authority.new()
    with scratch() as root:
        for name in ("shared", "tmp"):
            (root / name).mkdir()
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "shell_daemon.server",
                "--bootstrap-stdin",
                "--exit-with-parent",
            ),
            *("--socket", str(root / "shell.sock")),
            *("--root-shared", str(root / "shared"), "--root-tmp", str(root / "tmp")),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdin is not None
        process.stdin.write(envelope.service(token, authority.issue(Party.SHELL)))
        try:
            endpoint = transport.unix_endpoint(root / "shell.sock")
            server = Peer(endpoint, Party.SHELL, token, authority.issue(Party.AGENT))
            async with _client(server) as client:
                yield client
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def _guest(tier: TierName) -> AsyncIterator[tuple[ShellClient, Handle]]:
    """The daemon as the shell guest of a tier, started by its driver as the runner would."""
    with scratch() as root:
        config = Config(workspace_root=root, tier=tier, container=engine.SETTINGS)
        driver = driver_for(config, tier)
        workspace = Workspace.locate(config, "bench")
        with workspace.held():
            workspace.settle()
        launch = ShellLauncher(config, workspace, driver.capabilities, Authority.new()).prepare()
        await driver.check()
        handle = await driver.start(launch.spec)
        try:
            async with _client(launch.peer) as client:
                yield client, handle
        finally:
            await driver.stop(handle)


@asynccontextmanager
async def _client(server: Peer) -> AsyncIterator[ShellClient]:
    socket = Path(server.endpoint.removeprefix("unix:"))
    deadline = time.monotonic() + _READY_S
    while not socket.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the shell guest did not become ready: no {socket}")
        await asyncio.sleep(0.02)
    client = ShellClient(server)
    try:
        yield client
    finally:
        await client.close()


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
