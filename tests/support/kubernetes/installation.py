"""Oxydra in a cluster, as an operator has it: installed by the chart, and used by commands in the
replica that is active."""

import copy
import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import helm_python

from tests.support.kubernetes.cluster import Cluster, guests_of

Object = dict[str, Any]
CHART: Final = Path(__file__).parents[3] / "deploy/kubernetes/chart"
_PATHS: Final = {
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PersistentVolumeClaim": "api/v1/namespaces/{}/persistentvolumeclaims",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
}
_COMMAND_S: Final = 90.0


def rendered(values: Object, namespace: str) -> list[Object]:
    """The objects of the chart, those first that others need."""
    import yaml  # type: ignore[import-untyped]

    with helm_python.Chart.load(CHART) as chart:
        texts = chart.render(copy.deepcopy(values), name="oxydra", namespace=namespace)
    found = [
        each
        for name, text in texts.items()
        if name.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each
    ]
    return sorted(found, key=lambda each: each["kind"] == "Deployment")


class Installation:
    """One release of the chart in a namespace; its guests are in `guests`."""

    def __init__(self, cluster: Cluster, namespace: str, values: Object) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.guests = guests_of(namespace)
        self._values = values

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def install(self, *kinds: str, but: Sequence[str] = ()) -> None:
        """Make the objects of these kinds, or all; none of those in `but`."""
        self.cluster.make_namespace(self.guests)
        for each in rendered(self._values, self.namespace):
            if (not kinds or each["kind"] in kinds) and each["kind"] not in but:
                path = _PATHS[each["kind"]].format(each["metadata"]["namespace"])
                self.cluster.request("POST", f"/{path}", each)

    def pods(self, **labels: str) -> list[Object]:
        """The pods with such values of labels `oxydra.io/…`, without those that have ended."""
        select = ",".join(f"oxydra.io/{name}={value}" for name, value in labels.items())
        found = [
            each
            for namespace in (self.namespace, self.guests)
            for each in self.cluster.request(
                "GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={select}"
            )["items"]
        ]
        return [each for each in found if each["status"].get("phase") in ("Pending", "Running")]

    def guest(self, user: str, role: str) -> Object:
        """The pod of one of a user's guests."""
        (found,) = (
            pod
            for pod in self.pods(role=role)
            if pod["metadata"]["annotations"]["oxydra.io/user-id"] == user
        )
        return found

    def container(self, user: str, role: str) -> str:
        """The engine's id for it."""
        name = self.guest(user, role)["metadata"]["name"]
        return self.cluster.container(f"{self.guests}/{name}")

    @property
    def holder(self) -> str:
        """The pod that the Lease names; empty if none does."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/oxydra-runner"
        found = self.cluster.request("GET", path)
        return str(found["spec"].get("holderIdentity") or "")

    def until_active(self, *, but: str = "", within_s: float = 120.0) -> str:
        """The pod that is active, once it is another one than `but` and says that it is."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/oxydra-runner"
        found = self.cluster.wait_for(
            path,
            lambda lease: (lease["spec"].get("holderIdentity") or but) != but,
            within_s=within_s,
        )
        return str(found["spec"]["holderIdentity"])

    def until_running(self, users: Sequence[str], *, within_s: float = 120.0) -> None:
        """Wait until all guests of these users are ready."""
        deadline = time.monotonic() + within_s
        while True:
            said = [self.command("--user", user, "status", "--json") for user in users]
            if all(each.returncode == 0 and _is_ready(json.loads(each.stdout)) for each in said):
                return
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(each.stdout + each.stderr for each in said))
            time.sleep(0.5)

    def command(
        self, *words: str, stdin: str = "", pod: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """`runner WORDS…` in the active replica, or in another one."""
        container = self.cluster.container(f"{self.namespace}/{pod or self.holder}")
        command = ["docker", "exec", "--interactive", container, "runner", *words]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )

    def say(self, user: str, text: str) -> str:
        """What the user's agent answers."""
        found = self.command("--user", user, "chat", stdin=f"{text}\n")
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    def status(self, user: str) -> Object:
        """`runner status`, as JSON."""
        found = self.command("--user", user, "status", "--json")
        assert found.returncode == 0, found.stdout + found.stderr
        return dict(json.loads(found.stdout))

    def log(self, pod: str) -> str:
        """What a pod of the namespace has printed."""
        container = self.cluster.container(f"{self.namespace}/{pod}")
        command = ["docker", "logs", container]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return found.stdout + found.stderr


def _is_ready(status: Object) -> bool:
    states = {each["role"]: each["state"] for each in status["guests"]}
    states.pop("embedder", "")
    return states["agent"] == states["shell"] == "ready" and "starting" not in states.values()
