"""deploy/compose/sqld.yaml, brought up with the real engine, and its users made as the
guide says: each has a memory that no other can read.

The compose plugin is no part of every engine, so the service is handed to `docker run`.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]

from guest.errors import StorageError
from guest.memory.models import RemoteConfig
from tests.support.guests.engine import docker
from tests.support.memory.store import ORIGIN, opened
from tests.support.servers import sqld, sqld_image

pytestmark = [pytest.mark.docker, pytest.mark.sqld]

Script = Callable[..., str]


def as_run_options(service: dict[str, Any], keys: Path) -> list[str]:
    """The service as options of `docker run`, on a port of the engine's choice. Fails for
    a key it does not know, so that none is forgotten."""
    made = []
    for key, value in service.items():
        match key:
            case "command" | "container_name" | "image" | "restart" | "stop_grace_period":
                continue
            case "user":
                made.append(f"--user={value}")
            case "read_only" | "init":
                made.append(f"--{key.replace('_', '-')}")
            case "cap_drop" | "security_opt" | "tmpfs":
                made += [f"--{key.replace('_', '-')}={each}" for each in value]
            case "ports":
                assert value == ["${SQLD_ADDRESS:-127.0.0.1}:8080:8080"]
                made.append("--publish=127.0.0.1::8080")
            case "volumes":
                assert value[0] == "sqld-data:/var/lib/sqld"
                made.append("--volume=/var/lib/sqld")
                made += [f"--volume={each.replace('./sqld-keys', str(keys))}" for each in value[1:]]
            case _:
                raise AssertionError(f"no translation of {key}")
    return made


def script(*words: str, **environment: str) -> str:
    command = [str(sqld_image.COMPOSE / "sqld-users.sh"), *words]
    environ = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Script, str]]:
    """The port of the server, the script for its users, and the name of its container."""
    keys = tmp_path_factory.mktemp("keys")
    script("keys", SQLD_KEYS=str(keys))
    assert (keys / "private.pem").stat().st_mode & 0o777 == 0o600
    content = yaml.safe_load((sqld_image.COMPOSE / "sqld.yaml").read_text())
    service = content["services"]["sqld"]
    options = as_run_options(service, keys)
    name = f"oxydra-sqld-test-{os.getpid()}"
    command = [word.replace("$$", "$") for word in service["command"]]
    docker("run", "--detach", "--name", name, *options, sqld_image.build(), *command)
    try:
        port = int(docker("port", name, "8080").rpartition(":")[2])
        sqld.wait_for(lambda: docker("logs", name), port)

        def users(*words: str) -> str:
            return script(*words, SQLD_KEYS=str(keys), SQLD_CONTAINER=name)

        yield port, users, name
    finally:
        docker("rm", "--force", "--volumes", name)


async def test_two_users_each_have_a_memory_of_their_own(
    composed: tuple[int, Script, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sqld.localhost_names(monkeypatch)
    port, users, _ = composed
    tokens = {user: users("add", user) for user in ("alice", "bob")}
    places = {user: f"http://{user}.localhost:{port}" for user in tokens}

    def of(user: str, token: str) -> RemoteConfig:
        return RemoteConfig(places[user], tokens[token])

    for user in tokens:
        (tmp_path / user).mkdir()
        async with opened(tmp_path / user / "m.db", remote=of(user, user)) as memory:
            await memory.save(f"what only {user} knows", [], ORIGIN)
            found = await memory.search("knows")
            assert [hit.text for hit in found.results] == [f"what only {user} knows"]
    for user, other in (("alice", "bob"), ("bob", "alice")):
        async with sqld.connected(places[user], tokens[other]) as thief:
            with pytest.raises(StorageError, match="there is no memory at"):
                await thief.execute("SELECT content FROM notes")
        async with sqld.connected(places[user]) as nobody:
            with pytest.raises(StorageError, match="refuses the token"):
                await nobody.execute("SELECT content FROM notes")
    async with sqld.connected(places["alice"], users("token", "alice", "1")) as renewed:
        assert (await renewed.execute("SELECT COUNT(*) FROM notes")).rows == ((1,),)
    async with sqld.connected(places["alice"], users("token", "alice", "-1")) as expired:
        with pytest.raises(StorageError, match="refuses the token"):
            await expired.execute("SELECT 1")


async def test_a_user_who_is_removed_leaves_nothing_to_a_later_one(
    composed: tuple[int, Script, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sqld.localhost_names(monkeypatch)
    port, users, _ = composed
    remote = RemoteConfig(f"http://carol.localhost:{port}", users("add", "carol"))
    async with opened(tmp_path / "before.db", remote=remote) as memory:
        await memory.save("what only carol knows", [], ORIGIN)
    users("remove", "carol")
    async with sqld.connected(remote.url, remote.auth_token) as gone:
        with pytest.raises(StorageError, match="there is no memory at"):
            await gone.execute("SELECT content FROM notes")
    remote = RemoteConfig(remote.url, users("add", "carol"))
    async with opened(tmp_path / "after.db", remote=remote) as memory:
        assert (await memory.search("knows")).results == ()


def test_the_server_says_that_it_is_well(composed: tuple[int, Script, str]) -> None:
    with urlopen(f"http://127.0.0.1:{composed[0]}/health", timeout=5) as answer:
        assert answer.status == 200


def test_no_other_account_can_put_its_own_key_among_them(tmp_path: Path) -> None:
    old = os.umask(0o000)
    try:
        script("keys", SQLD_KEYS=str(tmp_path / "new" / "keys"))
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*")}
    assert modes == {"keys": 0o755, "private.pem": 0o600, "public.pem": 0o644}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755


_AS_ANOTHER_ACCOUNT = """
import sys
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

pid, published, *addresses = sys.argv[1:]
create = "/v1/namespaces/stolen/create"
tried = [f"http://{each}:9090{create}" for each in ("127.0.0.1", *addresses)]
for url in [*tried, f"http://127.0.0.1:{published}{create}"]:
    try:
        urlopen(Request(url, b"{}", {"Content-Type": "application/json"}), timeout=3)
        print("made a database at", url)
    except HTTPError as refused:
        if not url.startswith(f"http://127.0.0.1:{published}/"):
            print("reached the admin port at", url, refused.code)
    except (URLError, OSError):
        pass
for name in ("environ", "root/tmp/admin-key"):
    try:
        print("read", name, Path(f"/proc/{pid}/{name}").read_bytes())
    except OSError:
        pass
print("tried")
"""


@pytest.mark.root
def test_no_other_account_reaches_the_admin_port_or_its_key(
    composed: tuple[int, Script, str],
) -> None:
    port, _, name = composed
    seen = json.loads(docker("inspect", name))[0]
    addresses = [each["IPAddress"] for each in seen["NetworkSettings"]["Networks"].values()]
    words = [str(seen["State"]["Pid"]), str(port), *addresses]
    done = subprocess.run(
        ["/usr/bin/python3", "-c", _AS_ANOTHER_ACCOUNT, *words],
        capture_output=True,
        text=True,
        check=True,
        user=65_534,
        group=65_534,
        extra_groups=[],
        cwd="/",
    )
    assert done.stdout == "tried\n", done.stdout
    key = docker("exec", name, "cat", "/tmp/admin-key")
    assert len(key) == 64
    told = docker("inspect", name) + docker("logs", name) + docker("top", name, "-eo", "pid,args")
    assert key not in told


@pytest.mark.parametrize(
    ("header", "answer"), [("X-None: 1", "401"), ("Authorization: Basic guessed", "401")]
)
def test_the_admin_port_wants_its_key(
    composed: tuple[int, Script, str], header: str, answer: str
) -> None:
    ask = (
        "exec 3<>/dev/tcp/127.0.0.1/9090; "
        'printf "%s\\r\\n" "POST /v1/namespaces/stolen/create HTTP/1.1" "Host: sqld" "$1" '
        '"Content-Length: 2" "Content-Type: application/json" "Connection: close" "" "{}" >&3; '
        'read -r _ code _ <&3; echo "$code"'
    )
    assert docker("exec", composed[2], "bash", "-c", ask, "ask", header).strip() == answer


@pytest.mark.parametrize("user", ["Alice", "a_b", "../x", "", "a.b"])
def test_a_user_that_cannot_be_a_host_name_is_refused(user: str) -> None:
    command = [str(sqld_image.COMPOSE / "sqld-users.sh"), "add", user]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "lower-case letters" in done.stderr
