"""A host in a cluster whose network takes policies and does nothing with them, or does so late, or
no longer."""

import asyncio
import subprocess
from collections.abc import Callable

import pytest
from wire.errors import Code
from wire.v1.egress_pb2 import EgressGrant

from runner.config.models import Config
from runner.errors import TierError
from runner.host.host import Host
from runner.tiers.kubernetes.names import Owner
from tests.support.kubernetes.cluster import RUNNER, Cluster
from tests.support.kubernetes.hosts import call, with_egress

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]


async def test_a_network_that_enforces_nothing_is_refused(
    cluster: Cluster, config: Config, guests: Callable[[], dict[str, str]]
) -> None:
    with (
        cluster.network(enforces_policies=False, host_is=RUNNER),
        pytest.raises(TierError) as refused,
    ):
        await Host(config, "alice").start()
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert refused.value.brief == "this cluster's network does not enforce NetworkPolicy"
    assert "Calico or Cilium" in refused.value.resolution
    assert guests() == {}


@pytest.mark.long
async def test_policies_that_come_late_are_waited_for(cluster: Cluster, config: Config) -> None:
    with cluster.network(policies_after_s=6, host_is=RUNNER):
        async with Host(config, "alice") as host:
            report = (await host.status()).boundary
            assert report.passed


async def test_commands_have_their_listener_and_no_other_way_out(
    cluster: Cluster, namespace: str, config: Config
) -> None:
    command = (
        "python3 -c 'import os, urllib.request as r\n"
        'print(bool(os.environ.get("http_proxy")))\n'
        'try: r.urlopen("http://not-allowed.example/")\n'
        "except Exception as error: print(error)'"
    )
    with cluster.network(host_is=RUNNER):
        async with Host(with_egress(config), "alice") as host:

            async def said() -> str:
                return await call(host, "shell_exec", command=command)

            first = await said()
            assert "True" in first
            assert "403" in first
            counts = (await host.get_egress()).counters.counts
            assert [(each.role, each.host, each.refused) for each in counts] == [
                ("shell", "not-allowed.example", 1)
            ]
            assert (await host.check_boundary()).passed
            assert open_ports(cluster, namespace) == [80, 443]
            grant = EgressGrant(rule="https://later.example:9443")
            assert await host.grant_egress("shell", grant, withdraw=False)
            assert open_ports(cluster, namespace) == [80, 443, 9443]

            killed = cluster.container(f"{namespace}/{Owner('alice').name('shell-egress')}")
            subprocess.run(["docker", "kill", "--signal", "KILL", killed], check=True)
            async with asyncio.timeout(60):
                while "403" not in await said() or not (await host.get_egress()).counters.counts:
                    await asyncio.sleep(0.5)
            restarts = {guest.role: guest.restarts for guest in (await host.status()).guests}
            undisturbed = dict.fromkeys(("agent", "shell", "egress", "embedder"), 0)
            assert restarts == {**undisturbed, "shell-egress": 1}

            await host.restart("shell")
            assert "403" in await said()
            assert open_ports(cluster, namespace) == [80, 443, 9443]
            assert await host.grant_egress("shell", grant, withdraw=True)
            assert open_ports(cluster, namespace) == [80, 443]


def open_ports(cluster: Cluster, namespace: str) -> list[int]:
    """The ports of the world that the egress of alice's commands may reach."""
    name = Owner("alice").name("shell-egress")
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/{name}"
    world = cluster.request("GET", path)["spec"]["egress"][0]
    assert "ipBlock" in world["to"][0]
    return [each["port"] for each in world["ports"]]


@pytest.mark.long
async def test_guests_end_when_policies_are_no_longer_enforced(
    cluster: Cluster, config: Config, guests: Callable[[], dict[str, str]]
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
                    while guests():
                        await asyncio.sleep(0.5)
                reasons = {guest.role: guest.reason for guest in (await host.status()).guests}
                for role in ("agent", "shell"):
                    assert "does not enforce NetworkPolicy" in reasons[role]
            await host.restart()
            assert (await host.status()).boundary.passed
