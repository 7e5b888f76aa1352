"""deploy/compose/sqld.yaml, brought up with the real engine, and its users made as the
guide says: each has a memory that no other can read.

The compose plugin is no part of every engine, so the service is handed to `docker run`.
"""

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
    """The service as options of `docker run`, on ports of the engine's choice. Fails for
    a key it does not know, so that none is forgotten."""
    made = []
    for key, value in service.items():
        match key:
            case "command" | "image" | "restart" | "stop_grace_period":
                continue
            case "user":
                made.append(f"--user={value}")
            case "read_only" | "init":
                made.append(f"--{key.replace('_', '-')}")
            case "cap_drop" | "security_opt" | "tmpfs":
                made += [f"--{key.replace('_', '-')}={each}" for each in value]
            case "ports":
                assert all(
                    each.startswith(("${SQLD_ADDRESS:-127.0.0.1}:", "127.")) for each in value
                )
                made += [f"--publish=127.0.0.1::{each.rpartition(':')[2]}" for each in value]
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
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Script]]:
    """The port of the server, and the script for its users."""
    keys = tmp_path_factory.mktemp("keys")
    script("keys", SQLD_KEYS=str(keys))
    assert (keys / "private.pem").stat().st_mode & 0o777 == 0o600
    content = yaml.safe_load((sqld_image.COMPOSE / "sqld.yaml").read_text())
    service = content["services"]["sqld"]
    options = as_run_options(service, keys)
    name = f"oxydra-sqld-test-{os.getpid()}"
    docker("run", "--detach", "--name", name, *options, sqld_image.build(), *service["command"])
    try:
        port, admin = (
            int(docker("port", name, inside).rpartition(":")[2]) for inside in ("8080", "9090")
        )
        sqld.wait_for(lambda: docker("logs", name), port)

        def users(*words: str) -> str:
            url = f"http://127.0.0.1:{admin}"
            return script(*words, SQLD_KEYS=str(keys), SQLD_ADMIN=url)

        yield port, users
    finally:
        docker("rm", "--force", "--volumes", name)


async def test_two_users_each_have_a_memory_of_their_own(
    composed: tuple[int, Script], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sqld.localhost_names(monkeypatch)
    port, users = composed
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


def test_the_server_says_that_it_is_well(composed: tuple[int, Script]) -> None:
    with urlopen(f"http://127.0.0.1:{composed[0]}/health", timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("user", ["Alice", "a_b", "../x", "", "a.b"])
def test_a_user_that_cannot_be_a_host_name_is_refused(user: str) -> None:
    command = [str(sqld_image.COMPOSE / "sqld-users.sh"), "add", user]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "lower-case letters" in done.stderr
