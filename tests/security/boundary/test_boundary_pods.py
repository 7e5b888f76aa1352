"""The self-test in a shell pod: silent in one as a kubelet starts it, behind policies; what they do
not stop is found, and so is what a pod must not be given."""

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from wire.boundary import POLICED_CHECKS, POLICIES, BoundarySpec
from wire.errors import Code
from wire.network_probe import Target
from wire.v1 import control_pb2

from runner.boundary.check import PROOF, check_boundary
from runner.errors import TierError
from runner.tiers.kubernetes.enforcement import require_enforced, until_enforced
from tests.support.boundary.pod import Pod, shell_pod
from tests.support.internet.network import Network

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.xdist_group("pod")]


@dataclass(frozen=True)
class Cluster:
    """What there is besides the pod: an API server, and a name server that answers by UDP."""

    api: Target
    names: Target

    @property
    def forbidden(self) -> tuple[Target, ...]:
        return self.api, self.names


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Network() as network:
        api = Target(network.address(2), 443, "the API server")
        names = Target(network.address(3), 53, "the cluster's DNS")
        with network.listen(*api[:2]), network.datagrams(*names[:2]) as datagrams:

            def answer() -> None:
                while question := datagrams.recvfrom(2048):
                    if question[0] == b"end":
                        return
                    datagrams.sendto(*question)

            thread = threading.Thread(target=answer)
            thread.start()
            yield Cluster(api, names)
            network.within(lambda: _say_end(names))
            thread.join()


def _say_end(target: Target) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"end", target[:2])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pod() -> AsyncIterator[Pod]:
    async with shell_pod() as pod:
        yield pod


def hits(report: control_pb2.BoundaryReport) -> dict[str, str]:
    return {check.name: check.details for check in report.checks if not check.passed}


async def reported(pod: Pod, spec: BoundarySpec) -> dict[str, str]:
    report = await check_boundary(pod.channel, spec)
    assert [check.name for check in report.checks] == list(spec.checks)
    return hits(report)


@pytest.mark.asyncio(loop_scope="module")
class TestPolicies:
    """One pod, and policies that change."""

    async def test_a_network_without_policies_is_caught(self, pod: Pod, cluster: Cluster) -> None:
        found = await reported(pod, pod.spec(*cluster.forbidden))
        assert found.keys() <= set(POLICED_CHECKS)
        assert (
            f"{cluster.api.address} can be reached at port 443 (the API server)"
            in (found[POLICIES])
        )
        assert f"name server {cluster.names.address} answers" in found[POLICIES]
        assert "can be reached at port 10250 (the node, its kubelet)" in found[POLICIES]
        assert "the runner can be reached at " in found[POLICIES]

    async def test_a_pod_behind_policies_passes(self, pod: Pod, cluster: Cluster) -> None:
        with pod.policies():
            assert await reported(pod, pod.spec(*cluster.forbidden)) == {}

    @pytest.mark.long
    async def test_policies_that_reject_pass(self, pod: Pod, cluster: Cluster) -> None:
        """As those of kube-router do."""
        with pod.policies(("REJECT", "--reject-with", "icmp-port-unreachable")):
            assert await reported(pod, pod.spec(*cluster.forbidden)) == {}

    async def test_a_reset_is_never_taken_for_a_policy(self, pod: Pod, cluster: Cluster) -> None:
        reset = ("REJECT", "--reject-with", "tcp-reset")
        with pod.policies(), pod.policies(reset, match=("-p", "tcp")):
            found = await reported(pod, pod.spec(*cluster.forbidden))
        assert f"{cluster.api.address} can be reached" in found[POLICIES]

    async def test_a_name_server_alone_is_caught(self, pod: Pod, cluster: Cluster) -> None:
        with pod.policies(allow=("-d", cluster.names.address, "-p", "udp")):
            found = await reported(pod, pod.spec(*cluster.forbidden))
        assert found == {POLICIES: f"name server {cluster.names.address} answers"}

    @pytest.mark.long
    async def test_a_port_of_the_node_alone_is_caught(self, pod: Pod, cluster: Cluster) -> None:
        with pod.policies(allow=("-p", "tcp", "--dport", "10250")):
            found = await reported(pod, pod.spec(*cluster.forbidden))
        assert found.keys() == {POLICIES}
        assert found[POLICIES].endswith("can be reached at port 10250 (the node, its kubelet)")

    @pytest.mark.long
    async def test_the_runner_alone_is_caught(self, pod: Pod, cluster: Cluster) -> None:
        with pod.policies(allow=("-p", "tcp", "--dport", "32768:60999")):
            found = await reported(pod, pod.spec(*cluster.forbidden))
        assert found.keys() == {POLICIES}
        assert found[POLICIES].startswith("the runner can be reached at ")

    async def test_silence_proves_nothing_where_nobody_listens(
        self, pod: Pod, cluster: Cluster
    ) -> None:
        nobody = Target(cluster.api.address, 444, "nobody")
        with pod.policies():
            report = await check_boundary(pod.channel, pod.spec(nobody))
        assert hits(report).keys() == {PROOF}
        assert "silence proves nothing" in hits(report)[PROOF]

    @pytest.mark.long
    async def test_the_part_that_is_repeated(self, pod: Pod, cluster: Cluster) -> None:
        spec = pod.spec(cluster.api)._replace(checks=POLICED_CHECKS)
        assert POLICIES in await reported(pod, spec)
        with pod.policies():
            assert await reported(pod, spec) == {}

    @pytest.mark.long
    async def test_policies_may_come_late(self, pod: Pod, cluster: Cluster) -> None:
        reports = []

        async def run() -> control_pb2.BoundaryReport:
            reports.append(await check_boundary(pod.channel, spec))
            if len(reports) == 1:
                late.__enter__()
            return reports[-1]

        spec = pod.spec(cluster.api)._replace(checks=POLICED_CHECKS)
        late = pod.policies()
        try:
            report = await until_enforced(run, pause_s=0)
        finally:
            late.__exit__(None, None, None)
        assert [each.passed for each in reports] == [False, True, True]
        require_enforced(report)

    async def test_a_network_that_never_enforces_is_refused(
        self, pod: Pod, cluster: Cluster
    ) -> None:
        async def run() -> control_pb2.BoundaryReport:
            return await check_boundary(pod.channel, pod.spec(cluster.api))

        report = await until_enforced(run, within_s=1, pause_s=0)
        with pytest.raises(TierError) as refused:
            require_enforced(report)
        assert refused.value.code is Code.FAILED_PRECONDITION
        assert "does not enforce NetworkPolicy" in refused.value.brief
        assert "(the API server)" in refused.value.details

    async def test_the_numbers_of_a_kernel_elsewhere_are_not_compared(
        self, pod: Pod, cluster: Cluster
    ) -> None:
        spec = pod.spec(cluster.api)._replace(boot_id="another", host_tmpfs=("0:1",))
        with pod.policies():
            assert await reported(pod, spec) == {}


async def broken(*options: str, elsewhere: bool = False) -> dict[str, str]:
    """What is found besides the network in a pod with further options."""
    async with shell_pod(*options) as pod:
        spec = pod.spec(Target("127.0.0.1", 1, "nobody"))
        if elsewhere:
            spec = spec._replace(boot_id="another")
        checks = tuple(name for name in spec.checks if name not in POLICED_CHECKS)
        return await reported(pod, spec._replace(checks=checks))


async def test_a_token_of_the_cluster_is_caught() -> None:
    place = "/run/secrets/kubernetes.io/serviceaccount"
    found = await broken("--tmpfs", place)
    assert f"{place} is mounted from / (tmpfs) and is not in the table" in found["mounts"]


@pytest.mark.parametrize("place", ["/state", pytest.param("/.oxydra", marks=pytest.mark.long)])
async def test_the_agents_volume_is_caught(place: str) -> None:
    found = await broken("--volume", f"/srv:{place}:ro")
    assert f"{place} is there" in found["private_paths"]
    assert place in found["mounts"]


async def test_the_engines_socket_is_caught() -> None:
    found = await broken("--volume", "/var/run/docker.sock:/run/containerd/containerd.sock")
    assert "/run/containerd/containerd.sock" in found["mounts"]
    assert "/run/containerd/containerd.sock" in found["unix_sockets"]


async def test_namespaces_of_the_node_are_caught_by_their_numbers() -> None:
    found = await broken("--pid", "host", "--ipc", "host", elsewhere=True)
    assert "the pid namespace is the host's" in found["namespaces"]
    assert "the ipc namespace is the host's" in found["namespaces"]
