"""The stand-in for a kubelet does what tests trust it with, asked by the real API server.

None of it is the product, so only long runs look at it."""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client, config
from kubernetes_asyncio.stream import WsApiClient

from runner.images.naming import ImageRole, image_name
from tests.support.kubernetes.api import ApiError
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
LEAVES_SLOWLY = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit(5)))
print('here', flush=True)
time.sleep(600)
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

    def is_gone(self, name: str) -> bool:
        try:
            self.cluster.request("GET", f"{self.path}/{name}")
        except ApiError as error:
            return error.status == 404
        return False

    async def log(self, name: str, *, timestamps: bool = False) -> str:
        """The log, followed to its end."""
        configuration = await _configuration(self.cluster)
        async with client.ApiClient(configuration) as api:
            answer: Any = await client.CoreV1Api(api).read_namespaced_pod_log(
                name,
                self.namespace,
                container="guest",
                follow=True,
                timestamps=timestamps,
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


async def test_what_is_sent_to_standard_input_arrives_whole_and_ends_with_the_first_client(
    pods: Pods,
) -> None:
    pods.create("reader", READS_INPUT, stdin=True, stdinOnce=True)
    await asyncio.to_thread(pods.runs, "reader")
    await _send(pods, "reader", bytes(60_000))
    assert (await asyncio.to_thread(pods.ended, "reader"))["exitCode"] == 0
    assert await pods.log("reader") == "60000\n"


async def test_nothing_that_was_sent_is_in_the_store(pods: Pods) -> None:
    pods.create("reader", READS_INPUT, stdin=True, stdinOnce=True)
    await asyncio.to_thread(pods.runs, "reader")
    secret = b"canary-in-no-store"
    await _send(pods, "reader", secret)
    await asyncio.to_thread(pods.ended, "reader")
    files = [each for each in pods.cluster.plane.etcd_directory.rglob("*") if each.is_file()]
    assert any(b"reader" in each.read_bytes() for each in files)
    assert not any(secret in each.read_bytes() for each in files)


async def test_a_log_is_followed_to_its_end_with_times(pods: Pods) -> None:
    program = "import time\nfor n in range(5): print('line', n, flush=True); time.sleep(0.3)"
    pods.create("talker", program)
    await asyncio.to_thread(pods.runs, "talker")
    lines = (await pods.log("talker", timestamps=True)).splitlines()
    assert [line.partition(" ")[2] for line in lines] == [f"line {n}" for n in range(5)]
    assert all(line.startswith("20") and "T" in line.split()[0] for line in lines)


def test_an_exit_code_is_told(pods: Pods) -> None:
    pods.create("fails", "raise SystemExit(3)")
    ended = pods.ended("fails")
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")


def test_memory_beyond_the_limit_is_told(pods: Pods) -> None:
    limits = {"limits": {"memory": "64Mi", "cpu": "500m"}}
    pods.create("eats", "x = bytearray(500_000_000)", resources=limits)
    assert pods.ended("eats")["reason"] == "OOMKilled"


def test_a_pod_that_always_restarts_counts(pods: Pods) -> None:
    pods.create("again", "raise SystemExit(1)", spec={"restartPolicy": "Always"})
    pods.cluster.wait_for(
        f"{pods.path}/again",
        lambda pod: pod["status"].get("containerStatuses", [{}])[0].get("restartCount", 0) >= 2,
    )


def test_a_missing_image_is_told(pods: Pods) -> None:
    pods.create("lacks", SLEEPS, image="oxydra-is-not-there:1", imagePullPolicy="Never")
    pods.waits("lacks", "ErrImageNeverPull")


def test_a_sub_path_is_refused(pods: Pods) -> None:
    mount = {"name": "v", "mountPath": "/v", "subPath": "a"}
    volumes = {"volumes": [{"name": "v", "emptyDir": {}}]}
    pods.create("sub", SLEEPS, spec=volumes, volumeMounts=[mount])
    found = pods.cluster.wait_for(
        f"{pods.path}/sub", lambda pod: pod["status"]["phase"] == "Failed"
    )
    assert "subPath" in found["status"]["message"]


async def test_a_deleted_pod_is_asked_first_and_its_exit_code_is_seen(pods: Pods) -> None:
    pods.create("slow", LEAVES_SLOWLY)
    await asyncio.to_thread(pods.runs, "slow")
    log = asyncio.create_task(pods.log("slow"))
    seen: list[int] = []

    async def watch(watching: asyncio.Event) -> None:
        configuration = await _configuration(pods.cluster)
        async with client.ApiClient(configuration) as api:
            response: Any = await client.CoreV1Api(api).list_namespaced_pod(
                pods.namespace, watch=True, _preload_content=False
            )
            watching.set()
            async for line in response.content:
                event = json.loads(line)
                state = event["object"]["status"]["containerStatuses"][0]["state"]
                if "terminated" in state and event["type"] == "MODIFIED":
                    seen.append(state["terminated"]["exitCode"])
                if event["type"] == "DELETED":
                    return

    watching = asyncio.Event()
    watch_task = asyncio.create_task(watch(watching))
    await watching.wait()
    await asyncio.to_thread(pods.cluster.request, "DELETE", f"{pods.path}/slow")
    await asyncio.wait_for(watch_task, 60)
    assert seen[0] == 5
    assert pods.is_gone("slow")
    assert await log == "here\nasked\n"


def test_who_does_not_go_is_killed_after_its_grace(pods: Pods) -> None:
    pods.create("stays", f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEPS}")
    pods.runs("stays")
    began = time.monotonic()
    pods.cluster.request("DELETE", f"{pods.path}/stays", {"gracePeriodSeconds": 2})
    while not pods.is_gone("stays"):
        time.sleep(0.05)
    assert 1.5 < time.monotonic() - began < 25


def test_grace_may_be_cut_short(pods: Pods) -> None:
    pods.create("stays", f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEPS}")
    pods.runs("stays")
    began = time.monotonic()
    for grace in (60, 1):
        pods.cluster.request("DELETE", f"{pods.path}/stays", {"gracePeriodSeconds": grace})
    while not pods.is_gone("stays"):
        assert time.monotonic() < began + 45
        time.sleep(0.05)


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


def test_a_pod_reaches_the_api_server_with_its_token(pods: Pods) -> None:
    program = """
import json, os, ssl, urllib.request
place = '/var/run/secrets/kubernetes.io/serviceaccount/'
host, port = os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT']
request = urllib.request.Request(
    f'https://{host}:{port}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
    json.dumps({'spec': {'resourceAttributes': {'verb': 'get', 'resource': 'pods'}}}).encode(),
    {'Authorization': 'Bearer ' + open(place + 'token').read(), 'Content-Type': 'application/json'},
)
tls = ssl.create_default_context(cafile=place + 'ca.crt')
answer = json.load(urllib.request.urlopen(request, context=tls))
assert answer['status']['allowed'] is False
"""
    pods.create("asks", program, spec={"automountServiceAccountToken": True})
    assert pods.ended("asks")["exitCode"] == 0


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


def _host_reaches(address: str) -> bool:
    program = ["python3", "-c", CONNECTS, address, str(PORT)]
    return subprocess.run(program, check=False, capture_output=True).returncode == 0


def test_this_machine_may_count_as_a_pod(pods: Pods) -> None:
    address = pods.serve("shell", _labels("shell"))
    pods.policy("shell", **_from_runner())
    assert _host_reaches(address)
    with pods.cluster.network(host_is=RUNNER):
        assert _host_reaches(address)
    with pods.cluster.network(host_is=_labels("agent")):
        assert not _host_reaches(address)


def test_a_network_may_take_no_notice_of_policies(pods: Pods) -> None:
    pods.policy("shell", **_from_runner())
    with pods.cluster.network(enforces_policies=False):
        address = pods.serve("shell", _labels("shell"))
        assert pods.reaches(address, PORT, {})
    assert not pods.reaches(address, PORT, {})


def test_policies_may_come_late(pods: Pods) -> None:
    pods.policy("shell", **_from_runner())
    with pods.cluster.network(policies_after_s=5):
        address = pods.serve("shell", _labels("shell"))
        began = time.monotonic()
        assert pods.reaches(address, PORT, {})
        while pods.reaches(address, PORT, {}):
            assert time.monotonic() < began + 45


def test_a_runtime_class(pods: Pods) -> None:
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    name = f"unknown-{pods.namespace}"
    pods.cluster.request("POST", classes, {"metadata": {"name": name}, "handler": "kata"})
    pods.create("kata", SLEEPS, spec={"runtimeClassName": name})
    found = pods.cluster.wait_for(
        f"{pods.path}/kata", lambda pod: pod["status"]["phase"] == "Failed"
    )
    assert found["status"]["reason"] == "FailedCreatePodSandBox"
    pods.cluster.request("DELETE", f"{classes}/{name}")


@pytest.mark.runsc
async def test_a_pod_in_gvisor_gets_its_input(pods: Pods) -> None:
    """Its network is not tried: tools/get_runsc.sh registers the runtime without one."""
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    name = f"gvisor-{pods.namespace}"
    ask = pods.cluster.request
    await asyncio.to_thread(ask, "POST", classes, {"metadata": {"name": name}, "handler": "runsc"})
    try:
        spec = {"runtimeClassName": name}
        program = f"import os, sys; assert os.uname().release != sys.argv[1]; {READS_INPUT}"
        kernel = os.uname().release
        pods.create("reader", program, kernel, spec=spec, stdin=True, stdinOnce=True)
        await asyncio.to_thread(pods.runs, "reader")
        await _send(pods, "reader", bytes(60_000))
        await asyncio.to_thread(pods.ended, "reader")
        assert await pods.log("reader") == "60000\n"
    finally:
        await asyncio.to_thread(ask, "DELETE", f"{classes}/{name}")


def test_an_api_server_that_goes_away_takes_no_pod_with_it(pods: Pods) -> None:
    address = pods.serve("shell")
    pods.cluster.plane.pause_api_server()
    assert _host_reaches(address)
    pods.cluster.plane.resume_api_server()
    pods.cluster.plane.kill_api_server()
    assert _host_reaches(address)
    pods.cluster.plane.start_api_server()
    pods.create("later", "raise SystemExit(4)")
    assert pods.ended("later")["exitCode"] == 4
    pods.runs("shell")


def test_a_node_that_is_killed_takes_its_pods_with_it_and_no_others(pods: Pods) -> None:
    lost, stays = (
        pods.serve(node, spec={"nodeSelector": {"kubernetes.io/hostname": node}})
        for node in ("node-1", "node-2")
    )
    pods.cluster.kill_node("node-1")
    assert not _host_reaches(lost)
    assert _host_reaches(stays)
    pods.cluster.wait_for(
        "/api/v1/nodes/node-1",
        lambda node: any(
            each["type"] == "Ready" and each["status"] == "Unknown"
            for each in node["status"]["conditions"]
        ),
    )
    pods.cluster.start_node("node-1")
    assert pods.ended("node-1")["exitCode"] == 137
    on_it = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    assert _host_reaches(pods.serve("new", spec=on_it))


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


def test_variables_come_from_secrets_and_configuration(pods: Pods) -> None:
    where = f"/api/v1/namespaces/{pods.namespace}"
    program = """
import os
assert os.environ['all'] == 'of it' and os.environ['P_name'] == 'value'
assert os.environ['ONE'] == 'of it' and 'NONE' not in os.environ
"""
    pods.create(
        "reader",
        program,
        env=[
            {"name": "ONE", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "all"}}},
            {
                "name": "NONE",
                "valueFrom": {"secretKeyRef": {"name": "no", "key": "no", "optional": True}},
            },
        ],
        envFrom=[
            {"secretRef": {"name": "keys"}},
            {"prefix": "P_", "configMapRef": {"name": "settings"}},
            {"secretRef": {"name": "not-there", "optional": True}},
        ],
    )
    pods.waits("reader", "CreateContainerConfigError")
    secret = {"metadata": {"name": "keys"}, "stringData": {"all": "of it"}}
    pods.cluster.request("POST", f"{where}/secrets", secret)
    settings = {"metadata": {"name": "settings"}, "data": {"name": "value"}}
    pods.cluster.request("POST", f"{where}/configmaps", settings)
    assert pods.ended("reader")["exitCode"] == 0


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


def test_a_pod_that_fails_its_liveness_probe_starts_again(pods: Pods) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2}
    spec = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 1}
    pods.create("fails", SLEEPS, spec=spec, livenessProbe=probe)
    pods.cluster.wait_for(
        f"{pods.path}/fails",
        lambda pod: pod["status"].get("containerStatuses", [{}])[0].get("restartCount", 0) >= 1,
    )


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


async def test_nobody_runs_a_command_in_a_pod(pods: Pods) -> None:
    pods.create("waits", SLEEPS)
    await asyncio.to_thread(pods.runs, "waits")
    sockets = WsApiClient(await _configuration(pods.cluster))
    connecting: Any = await client.CoreV1Api(sockets).connect_get_namespaced_pod_exec(
        "waits", pods.namespace, command="true", stdout=True, _preload_content=False
    )
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await connecting
    assert refused.value.status == 501
    await sockets.close()
