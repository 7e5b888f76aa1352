"""What the next runner makes of guests that run: those that would be the same today go on, others
are ended and started anew."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.settings import (
    EgressSettings,
    EmbedderSettings,
    KubernetesSettings,
    ShellSettings,
)
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.config.models import Config
from runner.host.host import Host
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
        egress=EgressSettings.model_validate({"shell": {"allow": ["allowed.example"]}}),
        kubernetes=KubernetesSettings(
            kubeconfig=cluster.plane.kubeconfig(namespace, namespace=namespace), start_s=60
        ),
    )


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Callable[[], dict[str, str]]:
    """The uids of the pods that are there, by their roles."""

    def found() -> dict[str, str]:
        items = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {
            pod["metadata"]["labels"]["oxydra.io/role"]: pod["metadata"]["uid"] for pod in items
        }

    return found


async def leave(host: Host) -> None:
    host.request_leave()
    await host.wait_stopped()


async def call(host: Host, name: str, **arguments: Any) -> str:
    async with open_channel(await host.gateway()) as channel:
        gateway: Any = gateway_pb2_grpc.GatewayStub(channel)
        request = gateway_pb2.CallToolRequest(name=name, arguments_json=json.dumps(arguments))
        return str((await gateway.CallTool(request)).text)


async def test_guests_that_would_be_the_same_go_on_and_others_are_started_anew(
    cluster: Cluster, config: Config, pods: Callable[[], dict[str, str]]
) -> None:
    with cluster.network(host_is=RUNNER):
        first = Host(config, "alice")
        await first.start()
        await call(first, "memory_save", content="the key is under the pot")
        before = pods()
        assert set(before) == {"agent", "shell", "egress"}
        await leave(first)
        assert pods() == before

        second = Host(config, "alice")
        await second.start()
        assert pods() == before
        assert "under the pot" in await call(second, "memory_search", query="key")
        assert "here" in await call(second, "shell_exec", command="echo here")
        assert (await second.status()).boundary.passed
        await leave(second)

        smaller = ShellSettings(memory_mb=config.shell.memory_mb // 2)
        async with Host(config.model_copy(update={"shell": smaller}), "alice") as third:
            after = pods()
            assert {role for role in before if after[role] != before[role]} == {"agent", "shell"}
            assert "here" in await call(third, "shell_exec", command="echo here")
            assert "under the pot" in await call(third, "memory_search", query="key")
        assert pods() == {}


async def test_what_a_runner_has_left_without_its_records_is_removed(
    cluster: Cluster, config: Config, pods: Callable[[], dict[str, str]], place: Path
) -> None:
    with cluster.network(host_is=RUNNER):
        first = Host(config, "alice")
        await first.start()
        await call(first, "memory_save", content="the key is under the pot")
        before = pods()
        await leave(first)
        elsewhere = config.model_copy(update={"runtime_dir": place / "another"})
        async with Host(elsewhere, "alice") as second:
            assert not set(pods().values()) & set(before.values())
            assert "under the pot" in await call(second, "memory_search", query="key")
            notices = (await second.status()).notices
            assert [each for each in notices if "an earlier runner left the pod" in each]
