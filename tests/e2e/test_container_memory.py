"""Memory in the container tier: on a server that the agent's network reaches, and in encrypted
files that only the agent guest works on."""

import json
from collections.abc import Iterator

import pytest

from runner.workspace.disk_space import passing
from tests.support.commands.household import Household
from tests.support.guests.engine import bridge_address
from tests.support.servers import sqld

pytestmark = pytest.mark.docker

KEY = "a key that only this test knows"
FACT = "my boat is called Albatross"
QUESTION = "what do you know about my boat?"


@pytest.fixture
def house() -> Iterator[Household]:
    made = Household(containers=True)
    made.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    yield made
    made.stop()
    made.remove()


@pytest.mark.sqld
def test_a_memory_on_a_server_outlives_its_containers(house: Household) -> None:
    keys = sqld.Keys()
    with sqld.running(keys, listen="0.0.0.0") as server:
        house.environment |= {
            "OXYDRA_MEMORY__REMOTE_URL": f"http://{bridge_address()}:{server.port}",
            "OXYDRA_MEMORY__SERVER_HOLDS_ONE_USER": "true",
            "OXYDRA_MEMORY__AUTH_TOKEN_ENV": "MEMORY_TOKEN",
            "MEMORY_TOKEN": keys.token("default"),
        }
        house.works("start", "--detach")
        assert "Saved" in house.said(f"remember that {FACT}")
        status = json.loads(house.works("status", "--json"))
        assert status["boundary"]["passed"]
        assert status["memory"]["store"] == "remote"
        house.works("stop")
        house.environment["OXYDRA_SHELL__ENABLED"] = "false"
        for file in (house.workspaces / "default" / ".oxydra").iterdir():
            if file.is_file():
                file.unlink()
        assert "Albatross" in house.said(QUESTION)


def test_files_are_encrypted_backed_up_and_restored_in_the_guest(house: Household) -> None:
    house.environment["OXYDRA_SHELL__ENABLED"] = "false"
    internal = house.workspaces / "default" / ".oxydra"
    assert "Saved" in house.said(f"remember that {FACT}")
    house.environment |= {"OXYDRA_MEMORY__ENCRYPTION__KEY_ENV": "MEMORY_KEY", "MEMORY_KEY": KEY}
    refused = house.run("start", "--detach")
    assert refused.returncode == 1
    assert "runner memory rekey" in refused.stderr
    house.works("memory", "rekey")
    kept = b"".join(file.read_bytes() for file in internal.rglob("*") if file.is_file())
    assert b"Albatross" not in kept

    house.works("start", "--detach")
    assert "Albatross" in house.said(QUESTION)
    notices = json.loads(house.works("status", "--json"))["notices"]
    said = passing(internal, house.workspaces)
    assert [each for each in notices if "a local file on" in each] == said
    backup = house.path / "saved.db"
    house.works("memory", "backup", str(backup))
    assert "know nothing" in house.said("forget my boat", QUESTION)
    house.works("stop")
    house.works("memory", "restore", str(backup), "--yes")
    assert "Albatross" in house.said(QUESTION)
    assert house.settles(), house.left_behind()
