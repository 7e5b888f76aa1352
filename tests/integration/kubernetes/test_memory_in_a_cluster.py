"""Memory on the chart's libSQL servers: one for each user, with a key by the script, and no way to
it but through that user's egress."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.installation import Installation
from tests.support.kubernetes.kubectl import Kubectl
from tests.support.servers import sqld_image

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.long,
    pytest.mark.sqld,
    pytest.mark.xdist_group("kubernetes"),
]

USERS = ("alice", "bob")
SCRIPT = Path(__file__).parents[3] / "deploy/kubernetes/memory-users.sh"
SERVER = ("StatefulSet", "Service", "NetworkPolicy")
PORT = 8080


def values(namespace: str) -> dict[str, Any]:
    url = f"http://memory-{{user_id}}.{namespace}.svc.cluster.local:{PORT}"
    settings = f'[memory]\nremote_url = "{url}"\nserver_holds_one_user = true\n'
    for user in USERS:
        settings += f'[users.{user}.memory]\nauth_token_env = "{user.upper()}_MEMORY_TOKEN"\n'
    return {
        "users": [*USERS],
        "settings": settings,
        "embedder": {"enabled": False},
        "memoryServer": {"enabled": True, "image": sqld_image.digest()},
    }


class Servers:
    """The memory servers of a namespace, and what manages their keys."""

    def __init__(self, cluster: Cluster, namespace: str, place: Path) -> None:
        self.cluster = cluster
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self.kubectl = Kubectl(
            place / "bin", cluster.plane.kubeconfig(f"{namespace}-admin", namespace=namespace)
        )
        self._variables = {"NAMESPACE": namespace, "SQLD_KEYS": str(place / "keys")}

    def manage(self, *words: str) -> str:
        return self.kubectl.script(SCRIPT, *words, **self._variables).strip()

    def pod(self, user: str) -> str:
        return f"{self._pods}/memory-{user}-0"

    def give_uid(self, user: str, uid: int) -> None:
        """The next pod has another uid than the one to whom the files on the volume belong."""
        namespace = self._variables["NAMESPACE"]
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/memory-{user}"
        found = self.cluster.request("GET", path)
        ids = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), uid)
        found["spec"]["template"]["spec"]["securityContext"] |= ids
        self.cluster.request("PUT", path, found)

    def until_ready(self, user: str, *, but: str = "") -> str:
        """The address of the server's pod, once that is ready and another one than `but`."""

        def is_ready(pod: dict[str, Any]) -> bool:
            (container,) = pod["status"].get("containerStatuses") or [{}]
            return pod["metadata"]["uid"] != but and bool(container.get("ready"))

        return str(self.cluster.wait_for(self.pod(user), is_ready)["status"]["podIP"])


@pytest.fixture
def servers(cluster: Cluster, namespace: str, tmp_path: Path) -> Servers:
    return Servers(cluster, namespace, tmp_path)


@pytest.fixture
def installation(cluster: Cluster, namespace: str, servers: Servers) -> Installation:
    tokens = [
        f"--from-literal={user.upper()}_MEMORY_TOKEN={servers.manage('add', user)}"
        for user in USERS
    ]
    servers.kubectl.run("create", "secret", "generic", "oxydra-keys", *tokens)
    made = Installation(cluster, namespace, values(namespace))
    made.install(*SERVER)
    for user in USERS:
        servers.until_ready(user)
    made.install(but=SERVER)
    made.until_active()
    made.until_running(USERS)
    return made


def test_memory_is_on_the_users_server_and_survives_its_pod(
    installation: Installation, servers: Servers
) -> None:
    installation.say("alice", "remember that the spare key is under the blue pot")
    installation.say("bob", "remember that the bike is in the cellar")
    assert "blue pot" in installation.say("alice", "what do you know about the key")
    assert "blue pot" not in installation.say("bob", "what do you know about the key")
    stores = {user: installation.status(user)["memory"]["store"] for user in USERS}
    assert stores == dict.fromkeys(USERS, "remote")

    before = servers.cluster.request("GET", servers.pod("bob"))
    servers.give_uid("bob", before["spec"]["securityContext"]["runAsUser"] + 1)
    servers.kubectl.run("delete", "pod", "memory-bob-0", "--grace-period=1")
    addresses = {
        "bob": servers.until_ready("bob", but=before["metadata"]["uid"]),
        "alice": servers.until_ready("alice"),
    }
    deadline = time.monotonic() + 60
    while "cellar" not in (said := installation.say("bob", "what do you know about the bike")):
        assert time.monotonic() < deadline, said
        time.sleep(1)
    assert "remember" in installation.say("bob", "remember that the lamp is new").lower()

    ways = {
        (user, role, owner)
        for user in USERS
        for role in ("agent", "shell", "egress")
        for owner, address in addresses.items()
        if _connects(installation, user, role, address)
    }
    assert ways == {("alice", "egress", "alice"), ("bob", "egress", "bob")}

    def alice(*words: str) -> str:
        done = installation.command("--user", "alice", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "accepts the new token" in alice("memory", "token")
    alice("stop")
    assert re.search(r"notes +1\b", alice("memory", "move", "--to", "local"))
    alice("start", "--detach")
    installation.until_running(["alice"])
    assert "blue pot" in installation.say("alice", "what do you know about the key")
    servers.manage("remove", "bob")


def _connects(installation: Installation, user: str, role: str, address: str) -> bool:
    """Whether a process in the user's guest reaches the memory server at `address`."""
    container = installation.container(user, role)
    command = [
        "docker",
        "exec",
        container,
        "timeout",
        "3",
        "bash",
        "-c",
        f": </dev/tcp/{address}/{PORT}",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
