"""Guests of the container tier in a real engine: what holds them, seen from the engine and from
inside, and what is left of them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import docker as docker_sdk
import psutil
import pytest

from runner.errors import TierError
from runner.tiers.base import Handle, LaunchSpec, Limits, Network
from runner.tiers.container.containers import sweep_ended
from runner.tiers.container.driver import ContainerDriver
from runner.tiers.container.names import ObjectNames
from runner.tiers.running import LOG_BYTES_MAX
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace
from tests.support.guests.engine import docker, owner, standin_images
from tests.support.scratch import SCRATCH

pytestmark = pytest.mark.docker

SECRET = b"the-envelope-of-this-launch-0123456789"
MIB = 1024 * 1024
GUARD_S = 90


class House:
    """One user's workspace and a driver; `say` runs a line of shell as a guest."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root, "alice", owner())
        self.workspace.provision()
        self.driver = ContainerDriver(standin_images())
        self.place = ObjectNames.of("alice", self.workspace.path)
        self.started: list[Handle] = []

    def spec(self, script: str, role: Role = Role.AGENT, **changes: Any) -> LaunchSpec:
        made = LaunchSpec(
            role=role,
            user_id="alice",
            home=self.workspace.path,
            launch_id=f"launch-{len(self.started)}",
            command=("/bin/sh", "-c", script),
            mounts=self.workspace.mounts(role),
            environment={"HOME": "/run"},
            envelope=SECRET + b"\n",
            log_path=self.workspace.log(role),
            working_directory=Path("/shared"),
            owner=(self.workspace.owner.uid, self.workspace.owner.gid),
        )
        return replace(made, **changes)

    async def start(self, script: str, role: Role = Role.AGENT, **changes: Any) -> Handle:
        handle = await self.driver.start(self.spec(script, role, **changes))
        self.started.append(handle)
        return handle

    async def say(self, script: str, role: Role = Role.AGENT, **changes: Any) -> str:
        """What a guest that runs `script` to its end says."""
        log = self.workspace.log(role)
        log.unlink(missing_ok=True)
        handle = await self.start(script, role, **changes)
        async with asyncio.timeout(GUARD_S):
            assert await self.driver.wait(handle) == 0, log.read_text()
        return log.read_text()

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(GUARD_S):
            while not true():
                await asyncio.sleep(0.05)

    def containers(self) -> list[str]:
        return self._listed("ps", "--all")

    def networks(self) -> list[str]:
        return self._listed("network", "ls")

    def _listed(self, *words: str) -> list[str]:
        label = f"label=oxydra.workspace={self.place.digest}"
        return docker(*words, "--quiet", "--filter", label).split()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxg-") as root:
        made = House(Path(root))
        yield made
        for handle in made.started:
            await made.driver.stop(handle, 0)
        assert (made.containers(), made.networks()) == ([], [])


def inspected(handle: Handle) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker("inspect", handle.data["container"]))[0]
    return found


async def test_the_engine_shows_every_part_of_the_hardening(house: House) -> None:
    limits = Limits(memory_bytes=200 * MIB, processes=50, cpus=0.5)
    handle = await house.start("exec sleep 1000", limits=limits)
    found = inspected(handle)
    host = found["HostConfig"]
    assert found["Config"]["User"] == f"{owner().uid}:{owner().gid}"
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["ReadonlyRootfs"]
    assert not host["Privileged"]
    assert host["NetworkMode"] == "none"
    assert host["IpcMode"] == "private"
    assert host["Init"]
    assert (host["Memory"], host["MemorySwap"]) == (200 * MIB, 200 * MIB)
    assert (host["PidsLimit"], host["CpuQuota"]) == (50, 50_000)
    assert not host["Devices"]
    assert found["Config"]["StdinOnce"]
    assert "docker.sock" not in json.dumps(found["Mounts"])


async def test_nothing_secret_is_shown_by_the_engine(house: House) -> None:
    handle = await house.start("read line; echo got; exec sleep 1000")
    await house.until(lambda: "got" in house.workspace.log(Role.AGENT).read_text())
    shown = docker("inspect", handle.data["container"])
    assert SECRET.decode() not in shown
    environment = {line.split("=")[0] for line in inspected(handle)["Config"]["Env"]}
    assert not {name for name in environment if "OXYDRA" in name or "KEY" in name}


async def test_the_hardening_holds_from_inside(house: House) -> None:
    said = await house.say(
        "grep -E '^(Uid|CapEff|CapPrm|CapBnd|NoNewPrivs|Groups):' /proc/self/status; "
        "touch /x 2>&1; touch /etc/x 2>&1; touch /run/x && echo run-ok; "
        "cp /bin/true /run/true && /run/true 2>&1 || echo no-exec; ls /sys/class/net; ulimit -c; "
        "hostname; ls /dev"
    )
    lines = said.split("\n")
    status = dict(line.split(":\t") for line in lines if ":\t" in line)
    assert set(status["Uid"].split()) == {str(owner().uid)}
    assert {status["CapEff"], status["CapPrm"], status["CapBnd"]} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert "0" not in status["Groups"].split()
    assert said.count("Read-only file system") == 2
    assert "run-ok" in lines
    assert "no-exec" in lines
    assert "eth0" not in lines
    assert "agent" in lines
    assert not {"kvm", "fuse", "mem", "sda", "vda", "console0"} & set(lines)


async def test_the_number_of_processes_is_bounded(house: House) -> None:
    handle = await house.start(
        'for i in $(seq 60); do sleep 30 & done; echo "all 60"', limits=Limits(processes=40)
    )
    async with asyncio.timeout(GUARD_S):
        assert await house.driver.wait(handle) != 0
    assert "all 60" not in house.workspace.log(Role.AGENT).read_text()


async def test_a_guest_that_eats_memory_is_killed_and_the_log_says_why(house: House) -> None:
    handle = await house.start(
        "exec /opt/oxydra/bin/python -c 'x = bytearray(400_000_000)'",
        limits=Limits(memory_bytes=96 * MIB),
    )
    async with asyncio.timeout(GUARD_S):
        assert await house.driver.wait(handle) == -signal.SIGKILL
    assert "out of memory (limit of 96 MiB)" in house.workspace.log(Role.AGENT).read_text()


async def test_a_flood_of_output_is_cut(house: House) -> None:
    handle = await house.start("head -c 80000000 /dev/zero; echo said >&2")
    async with asyncio.timeout(GUARD_S):
        assert await house.driver.wait(handle) == 0
    log = house.workspace.log(Role.AGENT)
    assert LOG_BYTES_MAX < log.stat().st_size < LOG_BYTES_MAX + 1000
    assert b"the log is full" in log.read_bytes()[LOG_BYTES_MAX:]


async def test_stopping_ends_what_was_forked_twice(house: House) -> None:
    script = "(setsid sh -c 'setsid sleep 4242 &' &); exec sleep 1000"
    handle = await house.start(script)

    def sleepers() -> list[int]:
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if process.info["cmdline"] == ["sleep", "4242"]
        ]

    await house.until(lambda: bool(sleepers()))
    await house.driver.stop(handle, 0.2)
    assert sleepers() == []
    assert house.containers() == []


async def test_a_guest_that_ended_by_itself_leaves_nothing(house: House) -> None:
    await house.say("echo done", network=Network.OUTBOUND)
    assert (house.containers(), house.networks()) == ([], [])


async def test_networks_are_there_while_a_guest_needs_them(house: House) -> None:
    agent = await house.start("exec sleep 1000", network=Network.OUTBOUND)
    shell = await house.start("exec sleep 1000", Role.SHELL, network=Network.OUTBOUND)
    (name,) = house.networks()
    shown = json.loads(docker("network", "inspect", name))[0]
    assert shown["Options"]["com.docker.network.bridge.enable_icc"] == "false"
    assert not shown["Internal"]
    await house.driver.stop(agent, 0)
    assert house.networks() == [name]
    await house.driver.stop(shell, 0)
    assert house.networks() == []


async def test_two_users_guests_stand_side_by_side(house: House) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxg-") as root:
        other = House(Path(root))
        first = await house.start("exec sleep 1000")
        second = await other.start("exec sleep 1000")
        await other.driver.stop(second, 0)
        assert (await house.driver.inspect(first)).running
        assert other.containers() == []


async def test_what_a_killed_runner_left_is_cleared_without_any_state(house: House) -> None:
    await house.start("exec sleep 1000", network=Network.OUTBOUND)
    await house.start("exec sleep 1000", Role.SHELL)
    successor = ContainerDriver(standin_images())
    cleared = await successor.clear("alice", house.workspace.path)
    # The driver of this process lives, and may be quicker with the network.
    assert len([line for line in cleared if "the container" in line]) == 2
    assert all("an earlier runner left the" in line for line in cleared)
    assert (house.containers(), house.networks()) == ([], [])
    assert await successor.clear("alice", house.workspace.path) == []


async def test_guests_whose_workspace_is_gone_are_swept_up_by_any_start(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = f"{standin_images().images}-shell:{version('oxydra')}"
    labels = ("--label", "oxydra.launch=x", "--label", "oxydra.workspace=gone")
    left = docker("run", "--detach", *labels, image, "true").strip()
    running = docker("run", "--detach", "--init", *labels, image, "sleep", "1000").strip()
    try:
        docker("wait", left)
        await house.driver.clear("alice", house.workspace.path)
        known = docker("ps", "--all", "--quiet", "--no-trunc")
        assert left in known, "it may have ended just now, and its runner be about to remove it"
        sweep_ended(docker_sdk.APIClient(), timedelta(0))
        known = docker("ps", "--all", "--quiet", "--no-trunc")
        assert left not in known
        assert running in known
    finally:
        docker("rm", "--force", running)


async def test_a_leftover_with_our_name_makes_room(house: House) -> None:
    first = await house.start("exec sleep 1000")
    driver = ContainerDriver(standin_images())
    second = await driver.start(house.spec("exec sleep 1000"))
    async with asyncio.timeout(GUARD_S):
        await house.driver.wait(first)
    assert (await driver.inspect(second)).running
    await driver.stop(second, 0)


async def test_a_guest_ends_by_itself_when_its_runner_is_killed(house: House) -> None:
    """The next runner would clear it away; a guest must not go on alone until then."""
    program = Path(tempfile.gettempdir()) / f"{house.place.prefix}.py"
    program.write_text(_RUNNER)
    workspace = house.workspace
    words = [str(workspace.root), str(owner().uid), str(owner().gid)]
    runner = subprocess.Popen(
        [sys.executable, str(program), *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert runner.stdout is not None
        container = runner.stdout.readline().strip()
        assert docker("inspect", "--format", "{{.State.Running}}", container) == "true"
        runner.kill()
        runner.wait()
        assert docker("wait", container) == "3"
    finally:
        program.unlink()
        runner.kill()
        await house.driver.clear("alice", workspace.path)


async def test_a_cancelled_start_leaves_nothing(house: House) -> None:
    for delay in (0.0, 0.05, 0.2):
        starting = asyncio.create_task(house.driver.start(house.spec("exec sleep 1000")))
        await asyncio.sleep(delay)
        starting.cancel()
        try:
            house.started.append(await starting)
        except asyncio.CancelledError:
            assert house.containers() == []


async def test_a_runtime_under_a_second_name_serves_micro_vm_up_to_the_self_test(
    house: House,
) -> None:
    settings = standin_images().model_copy(update={"runtime": "runc"})
    driver = ContainerDriver(settings, "micro_vm")
    handle = await driver.start(house.spec("exec sleep 1000"))
    assert inspected(handle)["HostConfig"]["Runtime"] == "runc"
    assert driver.confinement(house.spec("")).own_kernel
    await driver.stop(handle, 0)
    unknown = ContainerDriver(settings.model_copy(update={"runtime": "nobodys"}), "micro_vm")
    with pytest.raises(TierError, match="no runtime 'nobodys'"):
        await unknown.start(house.spec("true"))


_RUNNER = """
import asyncio, sys, time
from pathlib import Path
from runner.workspace.mounts import Role
from runner.workspace.directories import Owner
from runner.tiers.base import LaunchSpec
from runner.tiers.container.driver import ContainerDriver
from runner.workspace.workspace import Workspace
from tests.support.guests.engine import standin_images

async def main():
    uid, gid = int(sys.argv[2]), int(sys.argv[3])
    workspace = Workspace(Path(sys.argv[1]), "alice", Owner(uid, gid, frozenset({0, uid})))
    handle = await ContainerDriver(standin_images()).start(LaunchSpec(
        role=Role.AGENT, user_id="alice", home=workspace.path, launch_id="orphan",
        command=("/bin/sh", "-c", "read line; read more; exit 3"),
        mounts=workspace.mounts(Role.AGENT), environment={}, envelope=b"line\\n",
        log_path=workspace.log(Role.AGENT), working_directory=Path("/shared"), owner=(uid, gid)))
    print(handle.data["container"], flush=True)
    time.sleep(1000)

asyncio.run(main())
"""
