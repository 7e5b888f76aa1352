"""What a hostile command tries in a shell pod: what it tries in all tiers, and what only a cluster
has."""

import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from wire.network_probe import NODE_PORTS

from runner.tiers.base import Port
from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.settings import KubernetesSettings
from tests.security.hostile import (
    test_hostile_files,
    test_hostile_kernel,
    test_hostile_machine,
    test_hostile_neighbours,
)
from tests.support.attempts import rows
from tests.support.boundary.pod import pod_image
from tests.support.boundary.two_hosts import (
    Attempt,
    TwoHosts,
    host_addresses,
    judged,
    python,
    two_hosts,
)
from tests.support.kubernetes.cluster import RUNNER, Cluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]

_NAMESPACE = "oxydra-hostile"
_AT = {"vault": "/state", ".oxydra": "/state", "shared": "/work"}
NOT_OF_PODS = {
    "file handles without a path": "there is no /ipc",
    "the parents of the mounts": "there is no /ipc",
    "its own socket without a token, with guesses and with the old ones": "it is a port: see below",
    "a process of ours that lends a descriptor": "there is no socket that could pass one",
    "every interface and route": "a pod has them, and policies shut them: see below",
    "services of others on our own loopback": "what is open there is its own daemon's port",
    "writing the daemon's code": "/work is its own volume",
    "the host by every address it has": "what drops packets is slow to try: side by side below",
    "the metadata address and other private networks": "the same",
}
"""What cannot be tried in a pod as in other tiers, or says nothing there."""
EVERYWHERE = [
    *test_hostile_files.ATTEMPTS,
    *test_hostile_kernel.MOUNTS,
    *test_hostile_kernel.NAMESPACES,
    *test_hostile_kernel.DEVICES,
    *test_hostile_kernel.RIGHTS,
    *test_hostile_machine.FILES,
    *test_hostile_machine.MACHINE,
    *test_hostile_machine.SELF,
    *test_hostile_neighbours.SOCKETS,
    *test_hostile_neighbours.NETWORK,
    *test_hostile_neighbours.PROCESSES,
    *test_hostile_neighbours.PROGRAMS,
]


OF_A_CLUSTER = [
    Attempt(
        "the token of a service account",
        python("""
            for place in ("/var/run/secrets", "/run/secrets", "/state", "/etc/kubernetes"):
                if os.path.lexists(place): won(place, os.listdir(place))
            for name in os.environ:
                if "TOKEN" in name or "SECRET" in name: won(name)
        """),
        stopped_by="the pod has no service account's token and no Secret",
    ),
    Attempt(
        "the API server, pods of its own user and of others, and the node, over the network",
        python("""
            from concurrent.futures import ThreadPoolExecutor
            def reach(place):
                address, _, port = place.rpartition(":")
                _, error = refused(
                    lambda: socket.create_connection((address, int(port)), 2).close()
                )
                if error is None: won(place)
            with ThreadPoolExecutor(32) as pool:
                list(pool.map(reach, "@PLACES@".split()))
        """),
        stopped_by="policies let its agent and the runner in, and it out to its listener only",
    ),
    Attempt(
        "its own daemon's port without a certificate, and with one of its own making",
        python(
            """
            import ssl, subprocess
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj",
                "/CN=runner", "-addext", "subjectAltName=DNS:runner", "-keyout", "/tmp/k",
                "-out", "/tmp/c"], capture_output=True)
            for own in (False, True):
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.set_alpn_protocols(["h2"])
                if own and os.path.exists("/tmp/c"): context.load_cert_chain("/tmp/c", "/tmp/k")
                def ask():
                    with socket.create_connection(("127.0.0.1", PORT), 5) as raw:
                        with context.wrap_socket(raw) as way:
                            way.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes(5))
                            return way.recv(100)
                got, error = refused(ask)
                if got: won(own, got)
        """.replace("PORT", str(Port.SHELL.value))
        ),
        stopped_by="whoever connects must have a certificate of the launch's authority",
    ),
    Attempt(
        "a policy, a pod or a Secret of the cluster by its programs",
        python("""
            import shutil
            for name in ("kubectl", "crictl", "ctr", "docker", "nerdctl", "helm"):
                if shutil.which(name): won(name)
        """),
        stopped_by="the image has no such programs, and there is nobody to ask",
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(cluster: Cluster) -> AsyncIterator[TwoHosts]:
    cluster.make_namespace(_NAMESPACE)

    def inside(user_id: str, path: str, text: str) -> None:
        pod = f"{_NAMESPACE}/{Owner(user_id).name('agent')}"
        target = f"{_AT[path.partition('/')[0]]}/{path}"
        command = ["docker", "exec", "-i", cluster.container(pod), "sh", "-c", f"cat >{target}"]
        subprocess.run(command, input=text.encode(), check=True)

    pod_image()
    settings = KubernetesSettings(
        kubeconfig=cluster.plane.kubeconfig(_NAMESPACE, namespace=_NAMESPACE), start_s=60
    )
    with cluster.network(host_is=RUNNER):
        async with two_hosts("kubernetes", kubernetes=settings, inside=inside) as ready:
            yield ready
            await ready.assert_unharmed()
    cluster.remove_namespace(_NAMESPACE)


@pytest.mark.asyncio(loop_scope="module")
class TestPods:
    @pytest.mark.parametrize(
        "one",
        [one for one in EVERYWHERE if one.name not in NOT_OF_PODS],
        ids=lambda one: one.name.replace(" ", "_"),
    )
    async def test_what_fails_elsewhere_fails_in_a_pod(self, place: TwoHosts, one: Attempt) -> None:
        await judged(place, one)

    @pytest.mark.parametrize("one", rows(OF_A_CLUSTER))
    async def test_nothing_of_the_cluster_is_in_reach(
        self, place: TwoHosts, cluster: Cluster, one: Attempt
    ) -> None:
        found = cluster.request("GET", f"/api/v1/namespaces/{_NAMESPACE}/pods")["items"]
        pods = {pod["metadata"]["name"]: pod["status"] for pod in found}
        shell = pods.pop(Owner("alice").name("shell"))
        assert len(pods) == 5
        places = {f"{pod['podIP']}:{port}" for pod in pods.values() for port in Port}
        places |= {f"{shell['hostIP']}:{port}" for port in NODE_PORTS}
        places |= {f"{address}:{place.port}" for address in host_addresses()[1:]}
        places |= {f"{address}:80" for address in ("169.254.169.254", "1.1.1.1", "10.96.0.1")}
        places.add(f"{cluster.plane.address}:{cluster.plane.port}")
        command = one.command.replace("@PLACES@", " ".join(sorted(places)))
        await judged(place, replace(one, command=command))
