"""A shell guest as a kubelet starts it, in a container without a cluster, and policies that a
network plugin would enforce for it: rules of this host's firewall."""

import asyncio
import contextlib
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import grpc
from wire import envelope, transport
from wire.boundary import BoundarySpec
from wire.identity import Party
from wire.network_probe import Target

from runner.tiers.base import Confinement, LaunchSpec, Network, Port
from runner.tiers.kubernetes.cluster_network import ClusterAddresses, pod_spec
from runner.workspace.mounts import Role
from tests.support import parties
from tests.support.boundary.guarded_host import (
    CANARY,
    GUEST_UID,
    REPOSITORY,
    TOKEN,
    shell_image,
)
from tests.support.scratch import SCRATCH

LAUNCH: Final = "launch-of-a-pod"
_IMAGE: Final = f"oxydra-boundary-test-shell-pod:{version('oxydra')}"
_CLASSIC_BUILDER = {**os.environ, "DOCKER_BUILDKIT": "0"}
COMMAND: Final = (
    *("oxydra-shell-daemon", "--socket", Port.SHELL.listener),
    *("--bootstrap-stdin", "--exit-with-parent"),
)


def pod_launch(owner: int = GUEST_UID) -> LaunchSpec:
    """The launch of a shell pod."""
    return LaunchSpec(
        role=Role.SHELL,
        user_id="alice",
        home=Path("/nowhere"),
        launch_id=LAUNCH,
        command=COMMAND,
        mounts=(),
        environment={},
        envelope=envelope.service(TOKEN, parties.identity(Party.SHELL, LAUNCH)),
        log_path=Path("/dev/null"),
        working_directory=Path("/run"),
        owner=(owner, owner),
        network=Network.POLICY,
    )


@dataclass(frozen=True)
class Pod:
    """A running one, at `address`; `channel` is the runner's to its daemon."""

    address: str
    channel: grpc.aio.Channel

    def spec(self, *forbidden: Target, listener: str = "") -> BoundarySpec:
        """What must hold in it."""
        return pod_spec(
            pod_launch(),
            Confinement(GUEST_UID, GUEST_UID),
            tokens={"the shell's token": TOKEN},
            canary=CANARY,
            addresses=ClusterAddresses(forbidden, listener),
        )

    @contextmanager
    def policies(
        self,
        verdict: Sequence[str] = ("DROP",),
        *,
        match: Sequence[str] = (),
        allow: Sequence[str] = (),
    ) -> Iterator[None]:
        """Nothing passes that the pod begins, as far as rules `match` it; what it answers does.
        `allow` is what another rule matches that lets something through before."""
        new = ("-m", "conntrack", "--ctstate", "NEW")
        allowed = [(chain, (*allow, "-j", "ACCEPT")) for chain in _CHAINS if allow]
        rules = [*((chain, (*match, *new, "-j", *verdict)) for chain in _CHAINS), *allowed]
        with contextlib.ExitStack() as stack:
            for chain, words in rules:  # each goes before those that were made earlier
                rule = (chain, "-s", self.address, *words)
                _iptables("-I", *rule)
                stack.callback(_iptables, "-D", *rule)
            yield


_CHAINS: Final = ("DOCKER-USER", "INPUT")
"""What is forwarded, and what is meant for this host."""


def _iptables(*words: str) -> None:
    subprocess.run(["iptables", "--wait", *words], check=True, capture_output=True)


@cache
def pod_image() -> str:
    """The shell's image for pods, with this checkout's programs."""
    build = ["docker", "build", "--quiet", "--tag", _IMAGE, "--build-arg"]
    build += [f"BASE_IMAGE={shell_image()}", str(REPOSITORY / "deploy/images/shell-pod")]
    subprocess.run(build, check=True, capture_output=True, env=_CLASSIC_BUILDER)
    return _IMAGE


@asynccontextmanager
async def shell_pod(*options: str) -> AsyncIterator[Pod]:
    """A shell pod, ready, with further options of `docker run`."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="pod-") as name:
        root = Path(name)
        root.chmod(0o755)
        for directory in ("", "shared", "tmp", "cache"):
            (root / "work" / directory).mkdir(exist_ok=True)
            os.chown(root / "work" / directory, GUEST_UID, GUEST_UID)
        log = root / "termination-log"
        log.touch()
        log.chmod(0o666)
        container = f"oxydra-test-pod-{os.getpid()}-{root.name}"
        command = [
            *("docker", "run", "--rm", "--interactive", "--read-only", "--name", container),
            *("--user", f"{GUEST_UID}:{GUEST_UID}", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--dns", "127.0.0.1", "--workdir", "/run"),
            *("--tmpfs", f"/run:rw,nosuid,nodev,size=16m,uid={GUEST_UID}"),
            *("--env", "KUBERNETES_SERVICE_HOST=10.96.0.1"),
            *("--env", "KUBERNETES_SERVICE_PORT=443"),
            *("--volume", f"{root}/work:/work", "--volume", f"{log}:/dev/termination-log"),
            *options,
            *(pod_image(), *COMMAND),
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        try:
            process.stdin.write(pod_launch().envelope)
            process.stdin.flush()
            address = await _address(container, process)
            peer = parties.peer(Port.SHELL.at(address), Party.SHELL, TOKEN, launch_id=LAUNCH)
            async with asyncio.timeout(60), transport.open_channel(peer) as channel:
                while not await transport.check_health(channel):
                    assert process.poll() is None
                    await asyncio.sleep(0.05)
            async with transport.open_channel(peer) as channel:
                yield Pod(address, channel)
        finally:
            process.stdin.close()
            subprocess.run(["docker", "rm", "--force", container], capture_output=True)
            process.wait()


async def _address(container: str, process: "subprocess.Popen[bytes]") -> str:
    inspect = ["docker", "inspect", "--format", "{{.NetworkSettings.IPAddress}}", container]
    async with asyncio.timeout(60):
        while True:
            assert process.poll() is None
            found = subprocess.run(inspect, capture_output=True, text=True, check=False)
            if address := found.stdout.strip():
                return address
            await asyncio.sleep(0.05)
