"""What the next runner makes of guests that run: those that would be the same today go on, others
are ended and started anew."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from wire.settings import ShellSettings

from runner.config.models import Config
from runner.host.host import Host
from runner.tiers.kubernetes.names import Owner
from tests.support.kubernetes.cluster import RUNNER, Cluster
from tests.support.kubernetes.hosts import call, with_egress, with_settings

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.xdist_group("kubernetes")]


async def leave(host: Host) -> None:
    host.request_leave()
    await host.wait_stopped()


@asynccontextmanager
async def left(config: Config) -> AsyncIterator[Host]:
    """A host that remembers something; at the end it leaves its guests."""
    host = Host(config, "alice")
    await host.start()
    await call(host, "memory_save", content="the key is under the pot")
    yield host
    await leave(host)


async def test_guests_that_would_be_the_same_go_on_and_others_are_started_anew(
    cluster: Cluster, config: Config, guests: Callable[[], dict[str, str]]
) -> None:
    config = with_egress(config)
    with cluster.network(host_is=RUNNER):
        async with left(config):
            before = guests()
            assert set(before) == {"agent", "shell", "shell-egress"}
        assert guests() == before

        second = Host(config, "alice")
        await second.start()
        assert guests() == before
        assert "under the pot" in await call(second, "memory_search", query="key")
        assert "here" in await call(second, "shell_exec", command="echo here")
        assert (await second.status()).boundary.passed
        await leave(second)

        smaller = ShellSettings(memory_mb=config.shell.memory_mb // 2)
        async with Host(config.model_copy(update={"shell": smaller}), "alice") as third:
            after = guests()
            assert {role for role in before if after[role] != before[role]} == {"agent", "shell"}
            assert "here" in await call(third, "shell_exec", command="echo here")
            assert "under the pot" in await call(third, "memory_search", query="key")
        assert guests() == {}


async def test_a_guest_that_goes_on_has_the_policy_of_today(
    cluster: Cluster, namespace: str, config: Config, guests: Callable[[], dict[str, str]]
) -> None:
    config = with_egress(config)
    with cluster.network(host_is=RUNNER):
        async with left(config):
            before = guests()
        narrower = with_settings(config, private_ranges=("203.0.113.0/24",))
        async with Host(narrower, "alice"):
            assert guests() == before
            path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
            policy = cluster.request("GET", f"{path}/{Owner('alice').name('shell-egress')}")
    world = policy["spec"]["egress"][0]["to"][0]["ipBlock"]
    assert "203.0.113.0/24" in world["except"]


async def test_what_a_runner_has_left_without_its_records_is_removed(
    cluster: Cluster, config: Config, guests: Callable[[], dict[str, str]], place: Path
) -> None:
    config = with_egress(config)
    with cluster.network(host_is=RUNNER):
        async with left(config):
            before = guests()
        elsewhere = config.model_copy(update={"runtime_dir": place / "another"})
        async with Host(elsewhere, "alice") as second:
            assert not set(guests().values()) & set(before.values())
            assert "under the pot" in await call(second, "memory_search", query="key")
            notices = (await second.status()).notices
            assert [each for each in notices if "an earlier runner left the pod" in each]
