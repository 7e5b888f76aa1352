"""A host in a cluster whose network takes policies and does nothing with them, or does so late, or
no longer."""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code
from wire.settings import EgressSettings, EmbedderSettings, KubernetesSettings
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.config.models import Config
from runner.errors import TierError
from runner.host.host import Host
from runner.tiers.kubernetes.names import Owner
from tests.support.kubernetes.cluster import RUNNER, Cluster
from tests.support.scratch import SCRATCH

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxh-") as name:
        yield Path(name)


@pytest.fixture
def config(cluster: Cluster, namespace: str, place: Path) -> Config:
    return Config(
        workspace_root=place / "ws",
        runtime_dir=place / "rt",
        tier="kubernetes",
        embedder=EmbedderSettings(backend="none"),
        kubernetes=KubernetesSettings(
            kubeconfig=cluster.plane.kubeconfig(namespace, namespace=namespace), start_s=60
        ),
    )


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Callable[[], list[str]]:
    """The names of the pods that are there."""

    def names() -> list[str]:
        found = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [pod["metadata"]["name"] for pod in found]

    return names


async def test_a_network_that_enforces_nothing_is_refused(
    cluster: Cluster, config: Config, pods: Callable[[], list[str]]
) -> None:
    with (
        cluster.network(enforces_policies=False, host_is=RUNNER),
        pytest.raises(TierError) as refused,
    ):
        await Host(config, "alice").start()
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert refused.value.brief == "this cluster's network does not enforce NetworkPolicy"
    assert "Calico or Cilium" in refused.value.resolution
    assert pods() == []


async def test_policies_that_come_late_are_waited_for(cluster: Cluster, config: Config) -> None:
    with cluster.network(policies_after_s=6, host_is=RUNNER):
        async with Host(config, "alice") as host:
            report = (await host.status()).boundary
            assert report.passed


async def test_commands_have_their_door_and_no_other_way_out(
    cluster: Cluster, namespace: str, config: Config
) -> None:
    command = (
        "python3 -c 'import os, urllib.request as r\n"
        'print(bool(os.environ.get("http_proxy")))\n'
        'try: r.urlopen("http://not-allowed.example/")\n'
        "except Exception as error: print(error)'"
    )
    allowed = config.model_copy(
        update={"egress": EgressSettings.model_validate({"shell": {"allow": ["allowed.example"]}})}
    )
    with cluster.network(host_is=RUNNER):
        async with Host(allowed, "alice") as host, open_channel(await host.gateway()) as channel:
            gateway: Any = gateway_pb2_grpc.GatewayStub(channel)
            arguments = json.dumps({"command": command})
            request = gateway_pb2.CallToolRequest(name="shell_exec", arguments_json=arguments)

            async def said() -> str:
                return str((await gateway.CallTool(request)).text)

            first = await said()
            assert "True" in first
            assert "403" in first
            counts = (await host.egress()).counters.counts
            assert [(each.role, each.host, each.refused) for each in counts] == [
                ("shell", "not-allowed.example", 1)
            ]
            assert (await host.check_boundary()).passed

            killed = cluster.container(f"{namespace}/{Owner('alice').name('egress')}")
            subprocess.run(["docker", "kill", "--signal", "KILL", killed], check=True)
            async with asyncio.timeout(60):
                while "403" not in await said() or not (await host.egress()).counters.counts:
                    await asyncio.sleep(0.5)
            restarts = {guest.role: guest.restarts for guest in (await host.status()).guests}
            assert restarts == {"agent": 0, "shell": 0, "egress": 1, "embedder": 0}


async def test_guests_end_when_policies_are_no_longer_enforced(
    cluster: Cluster, config: Config, pods: Callable[[], list[str]]
) -> None:
    with cluster.network(host_is=RUNNER):
        async with Host(config, "alice") as host:
            with cluster.network(enforces_policies=False, host_is=RUNNER):
                with pytest.raises(TierError, match="does not enforce NetworkPolicy"):
                    await host.restart("shell")

                async def agent() -> str:
                    return next(
                        guest.state
                        for guest in (await host.status()).guests
                        if guest.role == "agent"
                    )

                async with asyncio.timeout(90):
                    while await agent() != "failed":
                        await asyncio.sleep(0.5)
                    while pods():
                        await asyncio.sleep(0.5)
                reasons = {guest.role: guest.reason for guest in (await host.status()).guests}
                for role in ("agent", "shell"):
                    assert "does not enforce NetworkPolicy" in reasons[role]
            await host.restart()
            assert (await host.status()).boundary.passed
