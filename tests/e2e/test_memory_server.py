"""A memory on a real libSQL server, through the real command: used, moved, lost and back again."""

import json
import os
import time
from collections.abc import Iterator

import pytest

from tests.support.commands.household import Household
from tests.support.servers import sqld

pytestmark = pytest.mark.sqld

FACT = "my boat is called Albatross"
QUESTION = "what do you know about my boat?"


@pytest.fixture
def keys() -> sqld.Keys:
    return sqld.Keys()


@pytest.fixture
def server(keys: sqld.Keys) -> Iterator[sqld.Sqld]:
    with sqld.running(keys) as running:
        yield running


@pytest.fixture
def house(household: Household, server: sqld.Sqld, keys: sqld.Keys) -> Iterator[Household]:
    household.environment |= {
        "OXYDRA_EMBEDDER__BACKEND": "none",
        "OXYDRA_SHELL__ENABLED": "false",
        "OXYDRA_MEMORY__REMOTE_URL": server.url(),
        "OXYDRA_MEMORY__SERVER_HOLDS_ONE_USER": "true",
        "OXYDRA_MEMORY__AUTH_TOKEN_ENV": "MEMORY_TOKEN",
        "MEMORY_TOKEN": keys.token("default"),
    }
    yield household
    household.stop()


def until_back(house: Household) -> None:
    """Wait until the agent has noticed that the server is there again."""
    deadline = time.monotonic() + 60
    while (state := json.loads(house.works("status", "--json"))["memory"]["state"]) != "ready":
        assert time.monotonic() < deadline, state


def test_what_is_remembered_lies_on_the_server(house: Household) -> None:
    assert "Saved" in house.said(f"remember that {FACT}")
    for file in (house.workspaces / "default" / ".oxydra").iterdir():
        file.unlink()
    assert "Albatross" in house.said(QUESTION)
    assert "know nothing" in house.said("forget my boat", QUESTION)


def test_a_memory_leaves_a_shared_server_for_one_of_its_own(
    house: Household, server: sqld.Sqld
) -> None:
    """As the guide says it; before, nothing was asked of a server."""
    house.said(f"remember that {FACT}")
    house.environment["OXYDRA_MEMORY__SERVER_HOLDS_ONE_USER"] = "false"
    refused = house.run("start", "--detach")
    assert refused.returncode == 1
    assert "may reach files (fsdir, readfile, writefile)" in refused.stderr
    assert "sqld-users.sh add USER" in refused.stderr
    house.works("memory", "move", "--to", "local")
    refused = house.run("memory", "move", "--to", "remote")
    assert "may reach files" in refused.stderr
    keys = sqld.Keys()
    with sqld.running(keys) as own:
        house.environment |= {
            "OXYDRA_MEMORY__REMOTE_URL": own.url(),
            "OXYDRA_MEMORY__SERVER_HOLDS_ONE_USER": "true",
            "MEMORY_TOKEN": keys.token("default"),
        }
        house.works("memory", "move", "--to", "remote")
        server.stop()
        assert "Albatross" in house.said(QUESTION)


def test_while_the_server_is_away_nothing_is_claimed_and_the_talk_goes_on(
    house: Household, server: sqld.Sqld
) -> None:
    house.works("start", "--detach")
    assert "Saved" in house.said(f"remember that {FACT}")
    assert "Albatross" in house.said(QUESTION)
    server.stop()
    shown = house.said("remember that my car is red", QUESTION, "help")
    saving, finding, helping = shown.split("\n> ")
    assert "Saved:" not in saving
    assert "Stored" not in saving
    assert "could not" in saving.lower() or "cannot" in saving.lower()
    assert "Albatross" in finding
    assert "ago" in finding
    assert "remember" in helping
    server.start()
    until_back(house)
    shown = house.said("what do you know about my car?", "remember that my car is blue")
    assert "car is red" not in shown.split("\n> ")[0]
    assert "Saved" in shown
    assert "blue" in house.said("what do you know about my car?")


def test_a_token_is_renewed_without_a_restart(
    house: Household, keys: sqld.Keys, server: sqld.Sqld
) -> None:
    house.works("start", "--detach")
    house.said(f"remember that {FACT}")
    good, other = keys.token("default", id="second"), sqld.Keys().token("default")
    house.environment["MEMORY_TOKEN"] = other
    refused = house.run("memory", "token")
    assert refused.returncode == 1
    assert other not in refused.stdout + refused.stderr
    assert "Albatross" in house.said(QUESTION)
    house.environment["MEMORY_TOKEN"] = good
    assert "in use" in house.works("memory", "token")
    assert "Saved" in house.said("remember that my car is red")
    house.works("restart")
    assert "car is red" in house.said("what do you know about my car?")
    logs = b"".join(file.read_bytes() for file in house.path.rglob("*.log"))
    for token in (good, other):
        assert token.encode() not in logs


def test_with_a_wrong_token_nothing_is_claimed_and_the_token_is_named(house: Household) -> None:
    house.environment["MEMORY_TOKEN"] = sqld.Keys().token("default")
    done = house.run("chat", stdin=f"remember that {FACT}\n")
    told = done.stdout + done.stderr
    assert "Saved:" not in told
    assert "token" in told
    assert house.environment["MEMORY_TOKEN"] not in told
    assert os.path.basename(str(house.path)) not in done.stdout
