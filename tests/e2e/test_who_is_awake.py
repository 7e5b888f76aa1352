"""Stopped users' agents are started by `runner serve` for what is due, and end again."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.commands.household import Household

USERS = ("alice", "bob")


@pytest.fixture
def house() -> Iterator[Household]:
    made = Household()
    made.environment |= {
        "OXYDRA_EMBEDDER__BACKEND": "none",
        "OXYDRA_SHELL__ENABLED": "false",
        "OXYDRA_SERVE__LISTEN": "127.0.0.1:0",
        "TZ": "UTC",
    }
    for user in USERS:
        (made.workspaces / user).mkdir(parents=True, mode=0o700)
    yield made
    made.run("stop", "--all", "--for-good")
    made.remove()


def status(house: Household, user: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(house.run("--user", user, "status", "--json").stdout)
    return found


def soon(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_stopped_agents_run_for_what_is_due_though_the_server_is_killed(house: Household) -> None:
    house.works("start", "--all", "--detach")
    slot = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=15)
    when = slot.replace(tzinfo=None).isoformat(" ")
    house.works("--user", "alice", "schedules", "create", when, "what do you know about tea")
    house.works("--user", "bob", "memory", "remind", when, "call Ada")
    stopped = house.works("stop", "--all")
    assert stopped.count(f"due next: {slot:%Y-%m-%d %H:%M:%S} UTC; nobody starts the agent") == 2
    assert [status(house, user)["next_due"] for user in USERS] == [slot.isoformat()] * 2
    first = house.begin("serve")
    soon(lambda: status(house, "alice")["running"])
    os.kill(first.pid, signal.SIGKILL)
    house.begin("serve")
    soon(lambda: status(house, "bob")["running"])
    soon(lambda: not any(status(house, user)["running"] for user in USERS))
    assert datetime.now(UTC) > slot
    assert not house.guest_pids("guest.app")
    assert [status(house, user)["next_due"] for user in USERS] == ["", ""]
    house.works("start", "--all", "--detach")
    listed = house.works("--user", "alice", "schedules", "list", "--json")
    (schedule,) = json.loads(listed)
    runs = json.loads(
        house.works("--user", "alice", "schedules", "runs", schedule["name"], "--json")
    )
    assert [(run["state"], run["slot"]) for run in runs] == [("done", runs[0]["slot"])]
    assert datetime.fromisoformat(runs[0]["began_at"]) - slot < timedelta(seconds=10)
    assert house.works("--user", "bob", "notices").count("call Ada") == 1
    house.works("--user", "bob", "memory", "remind", "tomorrow", "call Ada again")
    house.works("--user", "bob", "stop", "--for-good")
    assert status(house, "bob")["next_due"] == ""
