"""Several users of one machine, by the real command."""

import json
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.support.commands.household import Household

USERS = ("alice", "bob")
NO_MODEL = {"OXYDRA_EMBEDDER__BACKEND": "none", "OXYDRA_SHELL__ENABLED": "false"}


@pytest.fixture
def house() -> Iterator[Household]:
    made = Household()
    made.environment.update(NO_MODEL)
    for user in USERS:
        (made.workspaces / user).mkdir(parents=True, mode=0o700)
    yield made
    made.run("stop", "--all")
    made.remove()


def running(house: Household) -> dict[str, bool]:
    listed = json.loads(house.run("users", "list", "--json").stdout)
    return {user["user_id"]: user["running"] for user in listed}


def test_all_are_started_side_by_side_and_stopped(house: Household) -> None:
    assert running(house) == {"alice": False, "bob": False}
    started = house.run("start", "--all", "--detach")
    assert started.returncode == 0, started.stderr
    assert started.stdout.count(": running in the background, pid ") == 2
    assert running(house) == {"alice": True, "bob": True}
    again = house.run("start", "--all", "--detach")
    assert again.returncode == 0
    assert again.stdout.count("runs already") == 2
    assert "running" in house.run("users", "list").stdout
    assert house.run("stop", "--all").returncode == 0
    assert running(house) == {"alice": False, "bob": False}
    assert house.settles()


def test_in_the_foreground_a_killed_host_comes_back_and_a_signal_ends_all(
    house: Household,
) -> None:
    process = house.begin("start", "--all")
    assert process.stdout is not None
    pids: dict[str, int] = {}
    while len(pids) < len(USERS):
        line = process.stdout.readline()
        assert line, process.communicate()
        user, _, rest = line.partition(": running, pid ")
        if rest:
            pids[user] = int(rest)
    os.kill(pids["alice"], signal.SIGKILL)
    psutil.Process(pids["bob"])
    back = process.stdout.readline()
    while not back.startswith("alice: running"):
        back = process.stdout.readline()
        assert back
    assert running(house) == {"alice": True, "bob": True}
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert running(house) == {"alice": False, "bob": False}
    assert house.settles()
