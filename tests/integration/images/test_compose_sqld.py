"""deploy/compose/sqld.yaml and sqld-users.sh, with the real engine, server and proxy, as the guide
says: each user has a server that nobody else's token or SQL reaches.

The compose plugin is no part of every engine, so the proxy is handed to `docker run`.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from guest.errors import StorageError
from guest.memory.models import RemoteConfig
from tests.support.guests.engine import docker
from tests.support.memory.store import ORIGIN, opened
from tests.support.servers import sqld, sqld_image
from tests.support.servers.authority import Authority

pytestmark = [pytest.mark.docker, pytest.mark.sqld]


@dataclass(frozen=True)
class Deployed:
    """The proxy's port, who signed its certificate, and the script for users. They have names of
    this run, since the engine may hold others'."""

    port: int
    ca_pem: str
    environment: dict[str, str]
    users: tuple[str, ...]

    def script(self, *words: str) -> str:
        done = script(*words, **self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def url(self, user: str) -> str:
        return f"https://{user}.memory.localhost:{self.port}"

    def remote(self, user: str, token: str) -> RemoteConfig:
        return RemoteConfig(self.url(user), token, self.ca_pem, one_user=True)


def script(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [str(sqld_image.COMPOSE / "sqld-users.sh"), *words]
    environ = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


def as_run_options(service: dict[str, Any], keys: Path, networks: dict[str, str]) -> list[str]:
    """The service as options of `docker run`, on a port of the engine's choice. Fails for
    a key it does not know, so that none is forgotten."""
    made = []
    for key, value in service.items():
        match key:
            case "container_name" | "image" | "restart":
                continue
            case "user":
                made.append(f"--user={value}")
            case "mem_limit":
                made.append(f"--memory={value}")
            case "read_only" | "init":
                made.append(f"--{key.replace('_', '-')}")
            case "cap_drop" | "cap_add" | "security_opt" | "dns":
                made += [f"--{key.replace('_', '-')}={each}" for each in value]
            case "networks":
                assert value == ["memory", "outside"]
                made.append(f"--network={networks['outside']}")
            case "ports":
                assert value == ["${MEMORY_ADDRESS:-127.0.0.1}:8443:8443"]
                made.append("--publish=127.0.0.1::8443")
            case "volumes":
                made += [f"--volume={each.replace('./sqld-keys', str(keys))}" for each in value]
            case _:
                raise AssertionError(f"no translation of {key}")
    return made


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    keys = tmp_path_factory.mktemp("keys")
    run = secrets.token_hex(4)
    users = tuple(f"{name}-{run}" for name in ("alice", "bob", "carol"))
    content = yaml.safe_load((sqld_image.COMPOSE / "sqld.yaml").read_text())
    assert content["networks"]["memory"] == {"name": "oxydra-memory", "internal": True}
    networks = {name: f"oxydra-test-{name}-{run}" for name in ("memory", "outside")}
    authority = Authority(keys)
    shutil.copy(authority.certificate_for("*.memory.localhost"), keys / "proxy.pem")
    (keys / "proxy.pem").chmod(0o600)
    service = content["services"]["proxy"]
    assert not service["container_name"].startswith("oxydra-memory-")  # a user's
    assert service["dns"] == ["127.0.0.1"]  # so that no machine outside has a server's name
    options = as_run_options(service, keys, networks)
    proxy = f"oxydra-test-proxy-{run}"
    environment = {
        "SQLD_KEYS": str(keys / "sqld-keys"),
        "SQLD_IMAGE": sqld_image.build(),
        "SQLD_NETWORK": networks["memory"],
    }
    try:
        docker("network", "create", "--internal", networks["memory"])
        docker("network", "create", networks["outside"])
        docker("run", "--detach", "--name", proxy, *options, sqld_image.build_proxy())
        docker("network", "connect", networks["memory"], proxy)
        port = int(docker("port", proxy, "8443").rpartition(":")[2])
        answers = ["curl", "--silent", "--insecure", f"https://127.0.0.1:{port}/health"]
        answers += ["--retry", "60", "--retry-delay", "1", "--retry-all-errors"]
        subprocess.run(answers, capture_output=True, check=True)  # the engine accepts before it
        yield Deployed(port, authority.pem, environment, users)
    finally:
        for user in users:
            script("remove", user, **environment)
        docker("rm", "--force", proxy)
        docker("network", "rm", *networks.values())


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    sqld.localhost_names(monkeypatch)


async def told(place: RemoteConfig, sql: str, *words: str) -> tuple[Any, ...]:
    async with sqld.connected(place.url, place.auth_token, ca_pem=place.ca_pem) as database:
        return (await database.execute(sql, words)).rows


async def test_each_user_has_a_server_that_no_other_reaches(
    deployed: Deployed, tmp_path: Path
) -> None:
    alice, bob, _ = deployed.users
    tokens = {user: deployed.script("add", user) for user in (alice, bob)}
    places = {user: deployed.remote(user, token) for user, token in tokens.items()}
    for user, place in places.items():
        (tmp_path / user).mkdir()
        async with opened(tmp_path / user / "m.db", remote=place) as memory:
            await memory.save(f"what only {user} knows", [], ORIGIN)
            found = await memory.search("knows")
            assert [hit.text for hit in found.results] == [f"what only {user} knows"]

    for token in (tokens[bob], "", "garbage"):
        with pytest.raises(StorageError, match="refuses the token"):
            await told(deployed.remote(alice, token), "SELECT content FROM notes")
    with pytest.raises(StorageError, match="there is no memory at"):
        await told(deployed.remote("nobody", tokens[alice]), "SELECT 1")

    read = "SELECT count(*) FROM fsdir(?) WHERE instr(data, CAST(? AS BLOB))"
    for user, hers in ((alice, True), (bob, False)):
        for directory in ("/var/lib/sqld", "/tmp", "/home"):
            held = await told(places[alice], read, directory, f"what only {user} knows")
            assert (held[0][0] > 0) is (hers and directory == "/var/lib/sqld"), directory
    with pytest.raises(StorageError, match="failed") as raised:
        await told(places[alice], "SELECT name FROM fsdir('/var/lib/docker')")
    assert "cannot stat" in raised.value.details

    seen = json.loads(docker("inspect", *(f"oxydra-memory-{user}" for user in (alice, bob))))
    uids = {each["Config"]["User"] for each in seen}
    volumes = {mount["Name"] for each in seen for mount in each["Mounts"]}
    assert len(uids) == len(volumes) == 2
    assert "0:0" not in uids
    for each in seen:
        assert each["HostConfig"]["PortBindings"] == {}
        assert each["HostConfig"]["CapDrop"] == ["ALL"]
        assert each["HostConfig"]["ReadonlyRootfs"] is True
        assert list(each["NetworkSettings"]["Networks"]) == [deployed.environment["SQLD_NETWORK"]]

    renewed = deployed.remote(alice, deployed.script("token", alice, "1"))
    assert await told(renewed, "SELECT count(*) FROM notes") == ((1,),)
    expired = deployed.remote(alice, deployed.script("token", alice, "-1"))
    with pytest.raises(StorageError, match="refuses the token"):
        await told(expired, "SELECT 1")


async def test_a_server_started_anew_keeps_what_it_holds_and_a_removed_one_leaves_nothing(
    deployed: Deployed, tmp_path: Path
) -> None:
    *_, carol = deployed.users
    first = deployed.script("add", carol)
    async with opened(tmp_path / "before.db", remote=deployed.remote(carol, first)) as memory:
        await memory.save("what only carol knows", [], ORIGIN)
    added = script("add", carol, **deployed.environment)
    assert "reaches the files of its process (fsdir readfile writefile)" in added.stderr
    again = deployed.remote(carol, added.stdout.strip())
    assert await told(again, "SELECT count(*) FROM notes") == ((1,),)
    beside = [each.name for each in Path(deployed.environment["SQLD_KEYS"]).iterdir()]
    assert all(each in deployed.users or "." in each for each in beside)  # as no user's name has
    uid = docker("inspect", "--format", "{{.Config.User}}", f"oxydra-memory-{carol}")

    docker("exec", f"oxydra-memory-{carol}", "mkdir", "/var/lib/sqld/dbs/bob")
    refused = script("add", carol, **deployed.environment)
    assert "holds other databases (bob)" in refused.stderr

    deployed.script("remove", carol)
    with pytest.raises(StorageError, match="there is no memory at"):
        await told(again, "SELECT 1")
    later = deployed.remote(carol, deployed.script("add", carol))
    assert docker("inspect", "--format", "{{.Config.User}}", f"oxydra-memory-{carol}") != uid
    with pytest.raises(StorageError, match="refuses the token"):
        await told(again, "SELECT 1")
    async with opened(tmp_path / "after.db", remote=later) as memory:
        assert (await memory.search("knows")).results == ()


def test_the_proxy_takes_no_plain_request_and_leads_nowhere_else(deployed: Deployed) -> None:
    with socket.create_connection(("127.0.0.1", deployed.port), timeout=10) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: alice\r\n\r\n")
        assert not plain.recv(4096).startswith(b"HTTP/1.1 2")
    for host in ("..", "127.0.0.1", "bridge", "-", "%2e", "a_b.memory.localhost", "x" * 64, ""):
        command = ["curl", "--silent", "--insecure", "--header", f"Host: {host}"]
        command += ["--write-out", "%{http_code}", "--output", "/dev/null"]
        command.append(f"https://127.0.0.1:{deployed.port}/health")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout in ("404", "400"), host


def test_keys_are_the_operators_alone_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o000)
    try:
        done = script("keys", "alice", SQLD_KEYS=str(tmp_path / "new" / "keys"))
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*")}
    assert modes == {"keys": 0o700, "alice": 0o700, "private.pem": 0o600, "public.pem": 0o600}
    private = (tmp_path / "new/keys/alice/private.pem").read_bytes()
    assert script("keys", "alice", SQLD_KEYS=str(tmp_path / "new" / "keys")).returncode == 0
    assert (tmp_path / "new/keys/alice/private.pem").read_bytes() == private


@pytest.mark.parametrize("user", ["Alice", "a_b", "../x", "", "a.b", "a-", "x" * 50])
def test_a_user_that_cannot_be_a_host_name_is_refused(user: str, tmp_path: Path) -> None:
    done = script("add", user, SQLD_KEYS=str(tmp_path))
    assert done.returncode == 2
    assert "lower-case letters" in done.stderr
    assert list(tmp_path.iterdir()) == []
