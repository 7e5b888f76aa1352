"""The stand-in for a kubelet does what tests trust it with, asked by the real API server.

None of it is the product, so only long runs look at it, and only at what would hide a fault of the
product: where a kubelet refuses. That pods start, end and speak at all, tests of the tier show."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client, config
from kubernetes_asyncio.stream import WsApiClient

from runner.images.naming import ImageRole, image_name
from tests.support.kubernetes.cluster import RUNNER, Cluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.xdist_group("kubernetes")]

Object = dict[str, Any]
IMAGE = image_name("oxydra", ImageRole.SHELL)
PORT = 7002
READS_INPUT = "import sys; print(len(sys.stdin.buffer.read()), flush=True)"
SERVES = f"""
import socket
server = socket.create_server(('0.0.0.0', {PORT}))
while True:
    server.accept()[0].close()
"""
SLEEPS = "import time; time.sleep(600)"
CONNECTS = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except OSError as error:
    print(error)
    sys.exit(7)
"""


class Pods:
    """The pods of one test."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(
        self,
        name: str,
        program: str,
        *arguments: str,
        labels: dict[str, str] | None = None,
        spec: Object | None = None,
        **container: object,
    ) -> None:
        """A pod that runs a program of Python."""
        whole = {
            "name": "guest",
            "image": IMAGE,
            "command": ["python3", "-c", program, *arguments],
            **container,
        }
        pod = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "containers": [whole],
                **(spec or {}),
            },
        }
        self.cluster.request("POST", self.path, pod)

    def claim(self, name: str) -> None:
        """A claim of a volume that one node may have."""
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        self.cluster.request("POST", path, {"metadata": {"name": name}, "spec": spec})

    def runs(self, name: str) -> str:
        """Wait until it runs. Returns its address."""
        found = self.cluster.wait_for(
            f"{self.path}/{name}", lambda pod: pod["status"]["phase"] == "Running"
        )
        return str(found["status"]["podIP"])

    def serve(
        self, name: str, labels: dict[str, str] | None = None, spec: Object | None = None
    ) -> str:
        """A pod that listens. Returns its address when it does."""
        probe = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
        self.create(name, SERVES, labels=labels, spec=spec, readinessProbe=probe)
        found = self.cluster.wait_for(f"{self.path}/{name}", _is_ready)
        return str(found["status"]["podIP"])

    def ended(self, name: str) -> Object:
        """Wait until it has ended. Returns how its container did."""
        found = self.cluster.wait_for(
            f"{self.path}/{name}", lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed")
        )
        return dict(found["status"]["containerStatuses"][0]["state"]["terminated"])

    def waits(self, name: str, reason: str) -> None:
        """Wait until its container waits for this reason."""

        def is_so(pod: Object) -> bool:
            for each in pod["status"].get("containerStatuses") or ():
                if each["state"].get("waiting", {}).get("reason") == reason:
                    return True
            return False

        self.cluster.wait_for(f"{self.path}/{name}", is_so)

    async def log(self, name: str) -> str:
        """The log, followed to its end."""
        configuration = await _configuration(self.cluster)
        async with client.ApiClient(configuration) as api:
            answer: Any = await client.CoreV1Api(api).read_namespaced_pod_log(
                name,
                self.namespace,
                container="guest",
                follow=True,
                _preload_content=False,
            )
            return str(await answer.text())

    def reaches(self, address: str, port: int, labels: dict[str, str]) -> bool:
        """Whether a pod with these labels can connect."""
        name = f"client-{time.monotonic_ns()}"
        self.create(name, CONNECTS, address, str(port), labels=labels)
        code = self.ended(name)["exitCode"]
        assert code in (0, 7)
        return bool(code == 0)

    def policy(self, name: str, **spec: object) -> None:
        self.cluster.request(
            "POST",
            f"/apis/networking.k8s.io/v1/namespaces/{self.namespace}/networkpolicies",
            {"metadata": {"name": name}, "spec": spec},
        )


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Pods:
    return Pods(cluster, namespace)


def _is_ready(found: Object) -> bool:
    conditions = found["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _configuration(cluster: Cluster) -> client.Configuration:
    configuration = client.Configuration()
    await config.load_kube_config(str(cluster.kubeconfig), client_configuration=configuration)
    return configuration


async def _send(pods: Pods, name: str, content: bytes) -> None:
    """Attach to a pod's standard input as runners do, send, and leave."""
    sockets = WsApiClient(await _configuration(pods.cluster))
    connecting: Any = await client.CoreV1Api(sockets).connect_get_namespaced_pod_attach(
        name,
        pods.namespace,
        container="guest",
        stdin=True,
        stdout=False,
        stderr=False,
        tty=False,
        _preload_content=False,
    )
    socket: aiohttp.ClientWebSocketResponse = await connecting
    for start in range(0, len(content), 16_000):
        await socket.send_bytes(b"\x00" + content[start : start + 16_000])
    await socket.close()
    await sockets.close()


def _labels(role: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "oxydra", "oxydra.io/role": role}


def _from_runner() -> Object:
    return {
        "podSelector": {"matchLabels": _labels("shell")},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchLabels": RUNNER}}],
                "ports": [{"protocol": "TCP", "port": PORT}],
            }
        ],
    }


def test_a_sub_path_is_refused(pods: Pods) -> None:
    mount = {"name": "v", "mountPath": "/v", "subPath": "a"}
    volumes = {"volumes": [{"name": "v", "emptyDir": {}}]}
    pods.create("sub", SLEEPS, spec=volumes, volumeMounts=[mount])
    found = pods.cluster.wait_for(
        f"{pods.path}/sub", lambda pod: pod["status"]["phase"] == "Failed"
    )
    assert "subPath" in found["status"]["message"]


async def test_two_pods_share_a_claim_and_have_the_confinement_they_ask_for(pods: Pods) -> None:
    pods.claim("work")
    spec = {
        "securityContext": {"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 1234},
        "volumes": [
            {"name": "work", "persistentVolumeClaim": {"claimName": "work"}},
            {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
    }
    container: Object = {
        "volumeMounts": [
            {"name": "work", "mountPath": "/work"},
            {"name": "run", "mountPath": "/run"},
        ],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    writes = """
import os
assert os.getuid() == 1234 and os.getgid() == 1234
open('/work/a', 'w').write('shared')
open('/run/b', 'w').write('x')
assert open('/etc/resolv.conf').read() == 'nameserver 127.0.0.1\\n'
status = open('/proc/self/status').read()
assert 'CapBnd:\\t0000000000000000' in status and 'NoNewPrivs:\\t1' in status
try:
    open('/c', 'w')
except OSError as error:
    assert error.errno == 30, error
else:
    raise AssertionError
try:
    open('/run/big', 'wb').write(bytes(3_000_000))
except OSError as error:
    assert error.errno == 28, error
else:
    raise AssertionError
"""
    pods.create("writer", writes, spec=spec, **container)
    assert pods.ended("writer")["exitCode"] == 0, await pods.log("writer")
    reads = "import sys; sys.exit(open('/work/a').read() != 'shared')"
    pods.create("reader", reads, spec=spec, **container)
    assert pods.ended("reader")["exitCode"] == 0


def test_a_claim_is_one_nodes_at_a_time(pods: Pods) -> None:
    pods.claim("work")
    mounts = [{"name": "work", "mountPath": "/work"}]
    for node in ("node-1", "node-2"):
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}],
        }
        pods.create(node, SLEEPS, spec=spec, volumeMounts=mounts)
        if node == "node-1":
            pods.runs(node)
    pods.waits("node-2", "ContainerCreating")
    path = f"{pods.path}/node-1"
    pods.cluster.request("DELETE", path, {"gracePeriodSeconds": 0})
    pods.runs("node-2")


def test_policies_hold_in_both_directions(pods: Pods) -> None:
    address = pods.serve("shell", _labels("shell"))
    assert pods.reaches(address, PORT, {})
    pods.policy("shell", **_from_runner())
    assert not pods.reaches(address, PORT, {})
    assert pods.reaches(address, PORT, RUNNER)
    assert not pods.reaches(address, PORT + 1, RUNNER)
    host, port = pods.cluster.plane.address, pods.cluster.plane.port
    assert pods.reaches(host, port, {})
    assert not pods.reaches(host, port, _labels("shell"))


def test_a_block_has_exceptions(pods: Pods) -> None:
    one, other = pods.serve("a"), pods.serve("b")
    block = {"cidr": "0.0.0.0/0", "except": [f"{other}/32", "192.168.0.0/16"]}
    pods.policy(
        "out",
        podSelector={"matchLabels": RUNNER},
        policyTypes=["Egress"],
        egress=[{"to": [{"ipBlock": block}]}],
    )
    assert pods.reaches(one, PORT, RUNNER)
    assert not pods.reaches(other, PORT, RUNNER)


def test_policies_may_come_late(pods: Pods) -> None:
    pods.policy("shell", **_from_runner())
    with pods.cluster.network(policies_after_s=5):
        address = pods.serve("shell", _labels("shell"))
        began = time.monotonic()
        assert pods.reaches(address, PORT, {})
        while pods.reaches(address, PORT, {}):
            assert time.monotonic() < began + 45


async def test_a_second_client_of_the_one_standard_input_is_too_late(pods: Pods) -> None:
    program = f"{READS_INPUT}; {SLEEPS}"
    pods.create("reader", program, stdin=True, stdinOnce=True)
    await asyncio.to_thread(pods.runs, "reader")
    await _send(pods, "reader", b"first")
    await _send(pods, "reader", b"second")
    await asyncio.to_thread(
        pods.cluster.request, "DELETE", f"{pods.path}/reader", {"gracePeriodSeconds": 1}
    )
    assert await pods.log("reader") == "5\n"


def test_a_pod_has_a_token_and_links_to_services_only_where_it_may(pods: Pods) -> None:
    service = {"metadata": {"name": "the-memory"}, "spec": {"ports": [{"port": 8080}]}}
    pods.cluster.request("POST", f"/api/v1/namespaces/{pods.namespace}/services", service)
    program = """
import os, sys
print(os.environ.get('THE_MEMORY_SERVICE_PORT'), os.path.exists('/var/run/secrets'))
sys.exit((os.environ.get('THE_MEMORY_SERVICE_PORT') == '8080') + 2 * os.path.exists(
    '/var/run/secrets/kubernetes.io/serviceaccount/token'))
"""
    pods.create("without", program)
    both = {"automountServiceAccountToken": True, "enableServiceLinks": True}
    pods.create("with", program, spec=both)
    assert pods.ended("without")["exitCode"] == 0
    assert pods.ended("with")["exitCode"] == 3


def test_what_the_stand_in_cannot_do_it_refuses(pods: Pods) -> None:
    hook = {"preStop": {"exec": {"command": ["true"]}}}
    pods.create("hooked", SLEEPS, lifecycle=hook)
    found = pods.cluster.wait_for(
        f"{pods.path}/hooked", lambda pod: pod["status"]["phase"] == "Failed"
    )
    assert "lifecycle" in found["status"]["message"]


def test_a_pod_has_so_many_processes_and_no_more(pods: Pods) -> None:
    program = """
import os, sys, time
for started in range(2000):
    try:
        if not os.fork():
            time.sleep(600)
    except BlockingIOError:
        sys.exit(0 if started > 900 else 2)
sys.exit(1)
"""
    pods.create("forks", program)
    assert pods.ended("forks")["exitCode"] == 0


def test_a_pod_that_gets_another_label_is_another_one_to_policies(pods: Pods) -> None:
    address = pods.serve("shell", {"app.kubernetes.io/name": "other"})
    pods.policy("shell", **_from_runner())
    assert pods.reaches(address, PORT, {})
    where = f"{pods.path}/shell"
    found = pods.cluster.request("GET", where)
    found["metadata"]["labels"] = _labels("shell")
    pods.cluster.request("PUT", where, found)
    deadline = time.monotonic() + 60
    while pods.reaches(address, PORT, {}):
        assert time.monotonic() < deadline


def test_a_policy_may_name_a_namespace_by_its_labels(pods: Pods) -> None:
    where = f"/api/v1/namespaces/{pods.namespace}"
    found = pods.cluster.request("GET", where)
    found["metadata"]["labels"] = {"team": "a"}
    pods.cluster.request("PUT", where, found)
    address = pods.serve("shell", _labels("shell"))
    for team in ("b", "a"):
        pods.policy(
            f"of-{team}",
            podSelector={},
            policyTypes=["Ingress"],
            ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": team}}}]}],
        )
        assert pods.reaches(address, PORT, {}) is (team == "a")


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_volume_outlives_its_claim_only_where_its_class_says_so(pods: Pods, policy: str) -> None:
    classes, ask = "/apis/storage.k8s.io/v1/storageclasses", pods.cluster.request
    name = f"{policy.lower()}-{pods.namespace}"
    ask(
        "POST",
        classes,
        {
            "metadata": {"name": name},
            "provisioner": "oxydra.io/standin",
            "volumeBindingMode": "WaitForFirstConsumer",
            "reclaimPolicy": policy,
        },
    )
    claims = f"/api/v1/namespaces/{pods.namespace}/persistentvolumeclaims"
    spec = {
        "storageClassName": name,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    ask("POST", claims, {"metadata": {"name": "work"}, "spec": spec})
    pods.create(
        "writer",
        "open('/work/a', 'w').write('x')",
        spec={
            "securityContext": {"fsGroup": 10001},
            "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}],
        },
        volumeMounts=[{"name": "work", "mountPath": "/work"}],
    )
    assert pods.ended("writer")["exitCode"] == 0
    volume = f"/api/v1/persistentvolumes/{ask('GET', f'{claims}/work')['spec']['volumeName']}"
    place = Path(ask("GET", volume)["spec"]["hostPath"]["path"])
    assert (place / "a").read_text() == "x"
    ask("DELETE", f"{pods.path}/writer")
    ask("DELETE", f"{claims}/work")
    if policy == "Retain":
        pods.cluster.wait_for(volume, lambda found: found["status"]["phase"] == "Released")
        assert (place / "a").read_text() == "x"
        ask("DELETE", volume)
    else:
        deadline = time.monotonic() + 60
        while place.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
    ask("DELETE", f"{classes}/{name}")
