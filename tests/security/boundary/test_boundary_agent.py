"""An agent guest with any way out but egress's listener does not come up."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire.errors import WireError
from wire.network_probe import WAYS
from wire.settings import EmbedderSettings

from runner.config.models import Config
from runner.host.host import Host
from runner.host.launch import AgentLauncher
from runner.host.supervisor import Launch
from runner.testing import UserPair
from runner.tiers.base import Network
from runner.tiers.process.network_isolation import NetworkIsolation
from tests.support.scratch import SCRATCH

CONTAINERS = [
    pytest.param({"tier": "container"}, id="container", marks=pytest.mark.docker),
    pytest.param(
        {"tier": "micro_vm", "container": {"runtime": "runsc"}},
        id="gvisor",
        marks=pytest.mark.runsc,
    ),
]


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxb-") as path:
        yield Path(path)


def process_host(root: Path) -> Host:
    config = Config(
        workspace_root=root / "ws",
        runtime_dir=root / "rt",
        tier="process",
        embedder=EmbedderSettings(backend="none"),
    )
    return Host(config, "alice", working_directory=root)


async def agents_rows(host: Host) -> dict[str, str]:
    """What is wrong with each of the agent's ways, in a boundary that is looked at again."""
    report = await host.check_boundary()
    rows = {check.name: check for check in report.checks if check.name.startswith("agent: ")}
    assert list(rows) == [f"agent: {name}" for name in WAYS]
    return {name: row.details for name, row in rows.items() if not row.passed}


async def test_the_ways_of_a_process_are_shut(root: Path) -> None:
    async with process_host(root) as host:
        boundary = (await host.status()).boundary
        assert boundary.passed
        assert "agent: vsock" in [check.name for check in boundary.checks]
        assert await agents_rows(host) == {}


@pytest.mark.attempt(
    "an agent guest in the host's network",
    stopped_by="it tries its ways out before it counts as ready; an open one ends it",
)
async def test_a_process_without_seclusion_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(_: NetworkIsolation, command: Sequence[str]) -> list[str]:
        return list(command)

    monkeypatch.setattr(NetworkIsolation, "begun", begun)
    with pytest.raises(WireError, match="the boundary of the agent guest does not hold") as refused:
        await process_host(root).start()
    assert "agent: interfaces: there are network interfaces" in refused.value.details
    assert "agent: loopback: what listens on the host's 127.0.0.1" in refused.value.details


async def test_the_filter_alone_shuts_all_but_abstract_sockets(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the account may make no namespaces."""
    monkeypatch.setattr(NetworkIsolation, "has_namespace", property(lambda _: False))
    async with process_host(root) as host:
        assert await agents_rows(host) == {}
        checks = (await host.status()).boundary.checks
        (abstract,) = (check for check in checks if check.name == "agent: abstract")
        assert abstract.details.startswith("open: ")


def with_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start agents with what egress alone may have."""
    prepare = AgentLauncher.prepare

    def prepared(self: AgentLauncher, *arguments: Any, **named: Any) -> Launch:
        launch = prepare(self, *arguments, **named)
        return replace(launch, spec=replace(launch.spec, network=Network.OUTBOUND))

    monkeypatch.setattr(AgentLauncher, "prepare", prepared)


@pytest.mark.parametrize("settings", CONTAINERS)
def test_the_ways_of_a_container_are_shut(root: Path, settings: Any) -> None:
    with UserPair("alice", root=root, **settings) as pair:
        checks = pair.status().boundary.checks
        rows = {check.name: check for check in checks if check.name.startswith("agent: ")}
        assert list(rows) == [f"agent: {name}" for name in WAYS]
        assert all(row.passed for row in rows.values())


@pytest.mark.docker
@pytest.mark.attempt(
    "an agent guest in a container with a network",
    stopped_by="it tries its ways out before it counts as ready; an open one ends it",
)
def test_a_container_with_a_network_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On gVisor the engine's network does not reach the guest where its runtime is registered with
    none, as in these tests."""
    with_a_network(monkeypatch)
    pair = UserPair("alice", root=root, tier="container")
    with pytest.raises(WireError, match="the boundary of the agent guest does not hold") as refused:
        pair.start()
    assert "agent: interfaces: there are network interfaces" in refused.value.details
