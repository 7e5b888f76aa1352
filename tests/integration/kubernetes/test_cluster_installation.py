"""The chart in a cluster: two users are brought up, talk, and lose nothing they were promised,
whatever is killed."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.installation import Installation
from tests.support.kubernetes.kubectl import Kubectl

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.model,
    pytest.mark.xdist_group("kubernetes"),
]

USERS = ("alice", "bob")
ROLES = ("agent", "shell")
LEASE_S = 30
VALUES: dict[str, Any] = {
    "users": [*USERS],
    "kubernetes": {"leaseSeconds": LEASE_S},
    "runner": {"nodeSelector": {"kubernetes.io/hostname": "node-1"}},
}
ACKNOWLEDGED = re.compile(r"remember", re.IGNORECASE)


@pytest.fixture(scope="module")
def installation(cluster: Cluster) -> Iterator[Installation]:
    namespace = "oxydra-installed"
    cluster.make_namespace(namespace)
    made = Installation(cluster, namespace, VALUES)
    made.install()
    made.until_active()
    made.until_running(USERS)
    yield made
    cluster.remove_namespace(namespace)


def uids(installation: Installation, user: str) -> dict[str, str]:
    """The pods of a user's guests, by role."""
    found = installation.pods()
    return {
        pod["metadata"]["labels"]["oxydra.io/role"]: pod["metadata"]["uid"]
        for pod in found
        if (pod["metadata"].get("annotations") or {}).get("oxydra.io/user-id") == user
    }


def until(is_so: Callable[[], object], *, within_s: float = 120.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.5)


def knows(installation: Installation, user: str, about: str, what: str) -> bool:
    return what in installation.say(user, f"what do you know about the {about}")


def kill(container: str) -> None:
    subprocess.run(["docker", "kill", "--signal", "KILL", container], check=True)


def test_two_users_talk_and_neither_knows_what_the_other_has_said(
    installation: Installation,
) -> None:
    assert ACKNOWLEDGED.search(
        installation.say("alice", "remember that the spare key is under the blue pot")
    )
    assert ACKNOWLEDGED.search(installation.say("bob", "remember that the bike is in the cellar"))
    assert knows(installation, "alice", "key", "blue pot")
    assert knows(installation, "bob", "bike", "cellar")
    assert not knows(installation, "bob", "key", "blue pot")
    assert not knows(installation, "alice", "bike", "cellar")


@pytest.mark.parametrize("user", ["alice", pytest.param("bob", marks=pytest.mark.long)])
def test_the_boundary_holds(installation: Installation, user: str) -> None:
    found = installation.command("--user", user, "doctor", "--boundary")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "the boundary holds" in found.stdout


def test_search_is_by_meaning_with_the_clusters_embedder(installation: Installation) -> None:
    installation.say("alice", "remember that the cat is called Tom")
    search = ("--user", "alice", "memory", "search", "feline companion")
    until(lambda: "called Tom" in installation.command(*search).stdout)
    until(
        lambda: any(
            guest["role"] == "embedder" and guest["state"] == "ready"
            for guest in installation.status("alice")["guests"]
        )
    )


@pytest.mark.long
def test_an_embedder_that_is_killed_gets_its_envelope_again(installation: Installation) -> None:
    (pod,) = installation.pods(role="embedder")
    name = pod["metadata"]["name"]
    kill(installation.cluster.container(f"{installation.guests}/{name}"))
    path = f"/api/v1/namespaces/{installation.guests}/pods/{name}"

    def is_ready(found: dict[str, Any]) -> bool:
        (container,) = found["status"]["containerStatuses"]
        return bool(container["restartCount"] and container["ready"])

    installation.cluster.wait_for(path, is_ready)
    until(
        lambda: all(
            guest["state"] == "ready"
            for guest in installation.status("bob")["guests"]
            if guest["role"] == "embedder"
        )
    )


@pytest.mark.parametrize("role", ["agent", pytest.param("shell", marks=pytest.mark.long)])
def test_a_guest_that_is_killed_comes_back(installation: Installation, role: str) -> None:
    word = f"the {role} was killed"
    installation.say("alice", f"remember that the day of {word} was rainy")
    before, others = uids(installation, "alice"), uids(installation, "bob")
    kill(installation.container("alice", role))
    until(lambda: uids(installation, "alice").get(role, before[role]) != before[role])
    installation.until_running(["alice"])
    after = uids(installation, "alice")
    assert {**after, role: ""} == {**before, role: ""}
    assert uids(installation, "bob") == others
    assert knows(installation, "alice", f"day of {word}", "rainy")


@pytest.mark.long
def test_a_backup_brings_the_memory_back_as_it_was(installation: Installation) -> None:
    file = "/var/lib/oxydra/bob.backup"

    def bob(*words: str) -> str:
        found = installation.command("--user", "bob", *words)
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    installation.say("bob", "remember that the first bird was a heron")
    assert bob("memory", "backup", file).startswith(f"{file}: ")
    stays = bob("memory", "backup").partition(":")[0]
    assert stays.startswith("/state/.oxydra/backups/memory-")
    agent = installation.container("bob", "agent")
    listed = ["docker", "exec", agent, "ls", "/state/.oxydra/backups"]
    found = subprocess.run(listed, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [Path(stays).name]
    installation.say("bob", "remember that the second bird was a crane")
    refused = installation.command("--user", "bob", "memory", "restore", file, "--yes")
    assert "the agent is running" in refused.stderr
    bob("stop")
    bob("memory", "restore", file, "--yes")
    bob("start", "--detach")
    installation.until_running(["bob"])
    assert knows(installation, "bob", "first bird", "heron")
    assert not knows(installation, "bob", "second bird", "crane")


@pytest.mark.long
def test_the_successor_of_a_runner_that_leaves_goes_on_with_all_guests(
    installation: Installation,
) -> None:
    before = {user: uids(installation, user) for user in USERS}
    left = installation.holder
    installation.cluster.request("DELETE", f"{installation.pods_path}/{left}")
    assert installation.until_active(but=left) != left
    installation.until_running(USERS)
    assert {user: uids(installation, user) for user in USERS} == before
    assert knows(installation, "alice", "key", "blue pot")


def test_a_runner_that_is_killed_goes_on_with_all_guests(installation: Installation) -> None:
    before = {user: uids(installation, user) for user in USERS}
    killed = installation.holder
    kill(installation.cluster.container(f"{installation.namespace}/{killed}"))
    until(lambda: installation.command("--user", "bob", "status").returncode == 0)
    installation.until_running(["alice"])
    assert {user: uids(installation, user) for user in USERS} == before
    assert knows(installation, "bob", "bike", "cellar")


@pytest.mark.long
def test_users_talk_while_the_api_server_is_away_for_a_minute(installation: Installation) -> None:
    before, active = {user: uids(installation, user) for user in USERS}, installation.holder
    plane = installation.cluster.plane
    plane.kill_api_server()
    try:
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            for user, about, what in (("alice", "key", "blue pot"), ("bob", "bike", "cellar")):
                found = installation.command(
                    "--user",
                    user,
                    "chat",
                    stdin=f"what do you know about the {about}\n",
                    pod=active,
                )
                assert what in found.stdout, found.stderr
            time.sleep(5)
    finally:
        plane.start_api_server()
    until(lambda: installation.holder == active)
    assert {user: uids(installation, user) for user in USERS} == before


def test_a_command_in_the_replica_that_waits_says_which_one_is_active(
    installation: Installation,
) -> None:
    active = installation.holder
    waiting = [
        pod["metadata"]["name"]
        for pod in installation.pods(role="runner")
        if pod["metadata"]["name"] != active
    ]
    found = installation.command("--user", "nobody-yet", "start", pod=waiting[0])
    assert found.returncode == 1
    assert f"{active} is the active runner of {installation.namespace}" in found.stderr
    assert f"kubectl -n {installation.namespace} exec -it {active}" in found.stderr


@pytest.mark.long
def test_a_user_who_is_removed_keeps_the_claims_if_told_so(installation: Installation) -> None:
    started = installation.command("--user", "carol", "start", "--detach")
    assert started.returncode == 0, started.stderr
    installation.say("carol", "remember that the door is green")
    found = installation.command("users", "remove", "carol", "--stop", "--yes")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "which stays, with what it holds" in found.stdout
    kubectl = f"kubectl -n {installation.guests} delete pvc -l oxydra.io/user=carol-"
    assert kubectl in found.stdout
    assert uids(installation, "carol") == {}
    path = f"/api/v1/namespaces/{installation.guests}/persistentvolumeclaims"
    names = [
        each["metadata"]["name"] for each in installation.cluster.request("GET", path)["items"]
    ]
    assert [name for name in names if "carol" in name]
    started = installation.command("--user", "carol", "start", "--detach")
    assert started.returncode == 0, started.stderr
    assert knows(installation, "carol", "door", "green")
    assert installation.command("--user", "carol", "stop").returncode == 0


def test_nothing_of_an_envelope_is_in_the_store_of_the_cluster(installation: Installation) -> None:
    place = "/var/lib/oxydra/run"
    container = installation.cluster.container(f"{installation.namespace}/{installation.holder}")
    search = f"find {place} -name handover.json -exec cat {{}} +"
    found = subprocess.run(
        ["docker", "exec", container, "sh", "-c", search],
        capture_output=True,
        text=True,
        check=True,
    )
    secrets = {each.encode() for each in re.findall(r'"([A-Za-z0-9_-]{32,})"', found.stdout)}
    secrets = {each for each in secrets if each.count(b"-") != 4 or len(each) != 36}  # no launch id
    assert len(secrets) >= 2 * len(USERS)
    stored = [
        path.read_bytes()
        for path in Path(installation.cluster.plane.etcd_directory).rglob("*")
        if path.is_file()
    ]
    assert any(b"oxydra.io/launch" in content for content in stored)
    for content in stored:
        assert not [secret for secret in secrets if secret in content]
        # As guests' keys are written. The Secrets of other tests have keys in another form.
        assert b"BEGIN PRIVATE KEY" not in content


@pytest.mark.long
def test_a_drained_node_loses_no_acknowledged_note(
    installation: Installation, tmp_path: Path
) -> None:
    """The runner itself stays, because the other node is not for it."""
    node = _node_of(installation, "alice")
    before = {user: uids(installation, user) for user in USERS}
    leaving = [user for user in USERS if _node_of(installation, user) == node]
    installation.say("alice", "remember that the last word before was quince")
    kubectl = Kubectl(tmp_path / "bin", installation.cluster.kubeconfig)
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
    kubectl.run("drain", node, *options, "--pod-selector=oxydra.io/user", "--timeout=120s")
    try:
        installation.until_running(USERS)
        for user in leaving:
            assert set(before[user].values()).isdisjoint(uids(installation, user).values())
            assert _node_of(installation, user) != node
        assert knows(installation, "alice", "last word before", "quince")
    finally:
        kubectl.run("uncordon", node)


@pytest.mark.long
def test_a_lost_node_loses_no_acknowledged_note(installation: Installation) -> None:
    cluster = installation.cluster
    _cordon(cluster, "node-1", True)
    try:
        for user in USERS:
            found = installation.command("--user", user, "restart")
            assert found.returncode == 0, found.stderr
    finally:
        _cordon(cluster, "node-1", False)
    for user in USERS:
        assert ACKNOWLEDGED.search(
            installation.say(user, f"remember that the last word of {user} was plum")
        )
    before = {user: uids(installation, user) for user in USERS}
    cluster.kill_node("node-2")
    try:
        until(
            lambda: all(
                {
                    uids(installation, user).get(role, before[user][role]) for role in ROLES
                }.isdisjoint(before[user].values())
                for user in USERS
            ),
            within_s=300,
        )
        installation.until_running(USERS)
        for user in USERS:
            assert knows(installation, user, f"last word of {user}", "plum")
    finally:
        cluster.start_node("node-2")


def _node_of(installation: Installation, user: str) -> str:
    """Where a user's agent is."""
    return str(installation.guest(user, "agent")["spec"]["nodeName"])


def _cordon(cluster: Cluster, node: str, closed: bool) -> None:
    found = cluster.request("GET", f"/api/v1/nodes/{node}")
    found["spec"]["unschedulable"] = closed
    cluster.request("PUT", f"/api/v1/nodes/{node}", found)
