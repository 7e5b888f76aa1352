"""A host with two users and everything that a shell guest must not reach, and shell guests on
it that are started by command lines of this file, so that a test can break any of them."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from wire import envelope, transport
from wire.boundary import CHECKS, marked
from wire.identity import Party
from wire.settings import ContainerSettings
from wire.v1 import control_pb2

from runner.boundary.check import check_boundary
from runner.boundary.spec import build_spec
from runner.config.models import Config
from runner.config.tiers import TierName
from runner.tiers.base import Confinement, LaunchSpec, Network, TierDriver
from runner.tiers.drivers import driver_for
from runner.tiers.process import prologue
from runner.tiers.process.bubblewrap import Bubblewrap
from runner.workspace.mounts import Access, Role, bind, workspace_directories
from tests.support import parties
from tests.support.scratch import SCRATCH

TOKEN = marked("the_shell_0123456789", "the_token_of_this_shell_guest")
CONTROL_TOKEN = marked("the_runner_0123456789", "the_token_of_the_control_socket")
CANARY = "the-canary-in-the-agents-envelope-0123456789"
GUEST_UID = 10_001
REPOSITORY = Path(__file__).resolve().parents[3]
TEST_IMAGES = "oxydra-boundary-test"
DOCKER_SOCKET = "/var/run/docker.sock"

Words = list[str]
Alter = Callable[[Words], Words]


class GuardedHost:
    """The directories of one runner; `served` are Unix sockets with somebody behind them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspaces = root / "workspaces"
        self.alice = self.workspaces / "alice"
        self.bob = self.workspaces / "bob"
        self.runtime = root / "runtime"
        self.runtime.mkdir(mode=0o700)
        self.served: list[socket.socket] = []
        for user in (self.alice, self.bob):
            for directory in ("", *workspace_directories()):
                (user / directory).mkdir(parents=True, exist_ok=True)
            (user / ".oxydra" / "memory.db").write_text("what is remembered")
        (self.runtime / "control.token").write_text(CONTROL_TOKEN)
        self.serve(self.runtime / "control.sock")
        self.serve(self.alice / "ipc" / "agent" / "agent.sock")

    def serve(self, path: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        self.served.append(listener)

    def give_to_guest(self) -> int:
        """Let the workspaces belong to whom containers run as; the uid."""
        if os.geteuid() != 0:
            return os.geteuid()
        for path in (self.workspaces, *self.workspaces.rglob("*")):
            os.chown(path, GUEST_UID, GUEST_UID)
        return GUEST_UID

    def launch(self, owner: tuple[int, int], network: Network) -> LaunchSpec:
        return LaunchSpec(
            role=Role.SHELL,
            user_id="alice",
            home=self.alice,
            launch_id="boundary",
            command=(
                *(sys.executable, "-P", "-m", "shell_daemon.server"),
                *("--socket", "/ipc/shell.sock", "--bootstrap-stdin", "--exit-with-parent"),
            ),
            mounts=bind(Role.SHELL, self.alice),
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            envelope=envelope.service(TOKEN, parties.identity(Party.SHELL)),
            log_path=self.alice / "logs" / "shell" / "shell.log",
            working_directory=Path("/shared"),
            owner=owner,
            network=network,
        )

    async def probe(
        self, command: Words, launch: LaunchSpec, confinement: Confinement
    ) -> control_pb2.BoundaryReport:
        """Start a shell guest, look at the boundary from inside, end it."""
        with launch.log_path.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=_ENVIRONMENT
            )
        assert process.stdin is not None

        async def runs() -> bool:
            return process.poll() is None

        try:
            process.stdin.write(launch.envelope)
            process.stdin.flush()
            return await self.look(launch, confinement, runs)
        finally:
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    async def probe_with(
        self, driver: TierDriver, launch: LaunchSpec
    ) -> control_pb2.BoundaryReport:
        """The same with a guest that its tier's own driver starts."""
        handle = await driver.start(launch)

        async def runs() -> bool:
            return (await driver.inspect(handle)).running

        try:
            return await self.look(launch, driver.confinement(launch), runs)
        finally:
            await driver.stop(handle, 10)

    async def look(
        self, launch: LaunchSpec, confinement: Confinement, runs: Callable[[], Awaitable[bool]]
    ) -> control_pb2.BoundaryReport:
        socket_path = self.alice / "ipc" / "shell" / "shell.sock"
        async with (
            asyncio.timeout(90),
            transport.open_channel(
                parties.shell(f"unix:{socket_path}", TOKEN, Party.RUNNER)
            ) as channel,
        ):
            while not socket_path.exists() or not await transport.check_health(channel):
                assert await runs(), launch.log_path.read_text()
                await asyncio.sleep(0.02)
            spec = build_spec(
                launch,
                confinement,
                workspace=self.alice,
                runtime=self.runtime,
                tokens={"the shell's token": TOKEN, "the control token": CONTROL_TOKEN},
                canary=CANARY,
                private=[Path(DOCKER_SOCKET)],
            )
            return await check_boundary(channel, spec, launch.mounts)


_ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "DOCKER_HOST") if name in os.environ}


@asynccontextmanager
async def guarded_host() -> AsyncIterator[GuardedHost]:
    root = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="bd-"))
    guarded = GuardedHost(root)
    try:
        yield guarded
    finally:
        for listener in guarded.served:
            listener.close()
        shutil.rmtree(root)


async def in_process_tier(guarded: GuardedHost) -> control_pb2.BoundaryReport:
    """The report from the shell guest that the process tier's driver starts."""
    launch = guarded.launch((os.getuid(), os.getgid()), Network.NONE)
    return await guarded.probe_with(driver_for(Config(), "process"), launch)


async def in_container_tier(guarded: GuardedHost, network: Network) -> control_pb2.BoundaryReport:
    """The report from the shell guest that the container tier's driver starts."""
    return await _in_containers(guarded, network, "container")


async def in_gvisor_tier(guarded: GuardedHost, network: Network) -> control_pb2.BoundaryReport:
    """The report from the shell guest that the micro_vm tier's driver starts on gVisor's kernel."""
    return await _in_containers(guarded, network, "micro_vm")


async def _in_containers(
    guarded: GuardedHost, network: Network, tier: TierName
) -> control_pb2.BoundaryReport:
    shell_image()
    uid = guarded.give_to_guest()
    os.chmod(guarded.root, 0o755)
    launch = guarded.launch((uid, uid), network)
    launch = replace(launch, command=("oxydra-shell-daemon", *launch.command[4:]))
    settings = ContainerSettings(images=TEST_IMAGES, runtime="runsc")
    return await guarded.probe_with(driver_for(Config(container=settings), tier), launch)


async def in_bubblewrap(
    guarded: GuardedHost, alter: Alter = list, environment: dict[str, str] | None = None
) -> control_pb2.BoundaryReport:
    """The report from the process tier's shell, its command line altered. `environment` is
    what bubblewrap itself starts with."""
    launch = guarded.launch((os.getuid(), os.getgid()), Network.NONE)
    command = Bubblewrap().command(launch)
    altered = prologue.begun(alter(list(command)))
    if environment:
        given = [f"{name}={value}" for name, value in environment.items()]
        altered = ["env", *given, *altered]
    return await guarded.probe(altered, launch, Bubblewrap().confinement(launch))


async def in_container(
    guarded: GuardedHost,
    alter: Alter = list,
    *,
    network: Network = Network.NONE,
    micro_vm: bool = False,
) -> control_pb2.BoundaryReport:
    """The report from a hardened container, its `docker run` command line altered."""
    uid = guarded.give_to_guest()
    launch = guarded.launch((uid, uid), network)
    mounts = [
        f"{bound.host_path}:{bound.mount.virtual}"
        + (":ro" if bound.mount.access is Access.READ_ONLY else "")
        for bound in launch.mounts
    ]
    command = [
        *("docker", "run", "--rm", "--interactive", "--read-only"),
        *("--network", "none" if network is Network.NONE else "bridge"),
        *("--user", f"{uid}:{uid}", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges", "--pids-limit", "256"),
        *("--tmpfs", "/run:rw,nosuid,nodev,size=16m"),
        *(word for mount in mounts for word in ("--volume", mount)),
        *(shell_image(), "oxydra-shell-daemon", *launch.command[4:]),
    ]
    confinement = Confinement(uid, uid, seccomp=_engine_has_seccomp(), own_kernel=micro_vm)
    return await guarded.probe(alter(command), launch, confinement)


def _engine_has_seccomp() -> bool:
    command = ["docker", "info", "--format", "{{json .SecurityOptions}}"]
    said = subprocess.run(command, capture_output=True, check=True).stdout
    return any("seccomp" in option for option in json.loads(said) or [])


@cache
def shell_image() -> str:
    """The shell's image with this checkout's programs."""
    base = f"oxydra-shell:{version('oxydra')}"
    known = subprocess.run(["docker", "image", "inspect", base], capture_output=True, check=False)
    if known.returncode != 0:
        pytest.fail(f"no image {base}: runner images build")
    name = f"{TEST_IMAGES}-shell:{version('oxydra')}"
    site = "/opt/oxydra/lib/python3.11/site-packages"
    steps = ["COPY shell_daemon /new/shell_daemon", "COPY proto/wire /new/wire"]
    steps.append(
        f"USER 0\nRUN rm -rf {site}/shell_daemon {site}/wire && mv /new/* {site}/\nUSER {GUEST_UID}"
    )
    with tempfile.TemporaryDirectory() as context:
        for directory in ("shell_daemon", "proto/wire"):
            shutil.copytree(
                REPOSITORY / directory,
                Path(context) / directory,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        (Path(context) / "Dockerfile").write_text("\n".join([f"FROM {base}", *steps]))
        build = ["docker", "build", "--quiet", "--tag", name, context]
        subprocess.run(build, capture_output=True, check=True, env=_CLASSIC_BUILDER)
    return name


_CLASSIC_BUILDER = {**os.environ, "DOCKER_BUILDKIT": "0"}


def hits(report: control_pb2.BoundaryReport) -> dict[str, str]:
    """The failed checks and what they found; every known check must have been answered."""
    names = [check.name for check in report.checks]
    assert names == list(CHECKS), {check.name: check.details for check in report.checks}
    found = {check.name: check.details for check in report.checks if not check.passed}
    assert report.passed == (not found)
    return found


def with_mounts(words: Words, *further: str) -> Words:
    """A bubblewrap command line with further options where its mounts are."""
    place = len(words) - 1 - words[::-1].index("--remount-ro")
    return [*words[:place], *further, *words[place:]]


def with_options(words: Words, *further: str) -> Words:
    """A `docker run` command line with further options."""
    return [*words[:2], *further, *words[2:]]


def without(words: Words, *removed: str) -> Words:
    """`words` without the run of words `removed`."""
    for start in range(len(words)):
        if tuple(words[start : start + len(removed)]) == removed:
            return [*words[:start], *words[start + len(removed) :]]
    raise AssertionError(removed)
