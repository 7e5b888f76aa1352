"""Memory on the chart's libSQL server: databases by the script, a name for each, and no way to it
but through egress."""

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
    pytest.mark.sqld,
    pytest.mark.xdist_group("kubernetes"),
]

USERS = ("alice", "bob")
SCRIPT = Path(__file__).parents[3] / "deploy/kubernetes/memory-users.sh"
SERVER = ("StatefulSet", "Service", "NetworkPolicy")
PORT, ADMIN_PORT = 8080, 9090


def values(namespace: str) -> dict[str, Any]:
    settings = f'[memory]\nremote_url = "http://{{user_id}}.{namespace}.svc.cluster.local:{PORT}"\n'
    for user in USERS:
        settings += f'[users.{user}.memory]\nauth_token_env = "{user.upper()}_MEMORY_TOKEN"\n'
    return {
        "users": [*USERS],
        "settings": settings,
        "embedder": {"enabled": False},
        "memoryServer": {"enabled": True, "image": sqld_image.build()},
    }


class Server:
    """The memory server of a namespace, and what manages its databases."""

    def __init__(self, cluster: Cluster, namespace: str, place: Path) -> None:
        self.cluster = cluster
        self.pod = f"/api/v1/namespaces/{namespace}/pods/oxydra-memory-0"
        self.kubectl = Kubectl(
            place / "bin", cluster.plane.kubeconfig(f"{namespace}-admin", namespace=namespace)
        )
        self._variables = {"NAMESPACE": namespace, "SQLD_KEYS": str(place / "keys")}

    def manage(self, *words: str) -> str:
        return self.kubectl.script(SCRIPT, *words, **self._variables).strip()

    def until_ready(self, *, but: str = "") -> str:
        """The address of its pod, once that is ready and another one than `but`."""

        def is_ready(pod: dict[str, Any]) -> bool:
            (container,) = pod["status"].get("containerStatuses") or [{}]
            return pod["metadata"]["uid"] != but and bool(container.get("ready"))

        return str(self.cluster.wait_for(self.pod, is_ready)["status"]["podIP"])


@pytest.fixture
def server(cluster: Cluster, namespace: str, tmp_path: Path) -> Server:
    return Server(cluster, namespace, tmp_path)


@pytest.fixture
def installation(cluster: Cluster, namespace: str, server: Server) -> Installation:
    server.manage("keys")
    made = Installation(cluster, namespace, values(namespace))
    made.install(*SERVER)
    server.until_ready()
    tokens = [
        f"--from-literal={user.upper()}_MEMORY_TOKEN={server.manage('add', user)}" for user in USERS
    ]
    server.kubectl.run("create", "secret", "generic", "oxydra-keys", *tokens)
    made.install(but=SERVER)
    made.until_active()
    made.until_running(USERS)
    return made


def test_memory_is_on_the_server_and_survives_its_pod(
    installation: Installation, server: Server
) -> None:
    installation.say("alice", "remember that the spare key is under the blue pot")
    installation.say("bob", "remember that the bike is in the cellar")
    assert "blue pot" in installation.say("alice", "what do you know about the key")
    assert "blue pot" not in installation.say("bob", "what do you know about the key")
    stores = {user: installation.status(user)["memory"]["store"] for user in USERS}
    assert stores == dict.fromkeys(USERS, "remote")

    before = server.cluster.request("GET", server.pod)
    server.kubectl.run("delete", "pod", "oxydra-memory-0", "--grace-period=1")
    address = server.until_ready(but=before["metadata"]["uid"])
    deadline = time.monotonic() + 60
    while "cellar" not in (said := installation.say("bob", "what do you know about the bike")):
        assert time.monotonic() < deadline, said
        time.sleep(1)
    assert "remember" in installation.say("bob", "remember that the lamp is new").lower()

    ways = {
        (role, port): _connects(installation, role, address, port)
        for role in ("agent", "shell", "egress")
        for port in (PORT, ADMIN_PORT)
    }
    assert {way for way, is_open in ways.items() if is_open} == {("egress", PORT)}

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
    server.manage("remove", "bob")


def _connects(installation: Installation, role: str, address: str, port: int) -> bool:
    """Whether a process in alice's guest reaches a port of a pod."""
    container = installation.container("alice", role)
    command = [
        "docker",
        "exec",
        container,
        "timeout",
        "3",
        "bash",
        "-c",
        f": </dev/tcp/{address}/{port}",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
