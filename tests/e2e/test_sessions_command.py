"""`runner sessions` and `runner memory reembed`, as a user runs them."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.commands.household import Household


@pytest.fixture
def house(household: Household) -> Iterator[Household]:
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "hashing"
    household.environment["OXYDRA_SHELL__ENABLED"] = "false"
    yield household
    household.stop()


def works(house: Household, *words: str, stdin: str = "") -> str:
    done = house.run(*words, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(house: Household, *words: str, stdin: str = "") -> str:
    done = house.run(*words, stdin=stdin)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def listed(house: Household, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(works(house, "sessions", "list", "--json", *more))
    return found


def memory_of(house: Household) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(works(house, "status", "--json"))["memory"]
    return found


def test_conversations_are_listed_named_put_away_resumed_and_forgotten(house: Household) -> None:
    refusal = refused(house, "sessions", "list")
    assert "no runner runs for user default" in refusal
    assert "start --detach" in refusal
    works(house, "start", "--detach")
    works(house, "chat", stdin="remember that my boat is called Albatross\n")
    works(house, "chat", "--session", "plans", stdin="the code word is quixotry\n")
    plans, boat = listed(house)
    assert (plans["session_id"], plans["turns"], plans["archived_at"]) == ("plans", 1, None)
    assert (plans["title"], boat["title"]) == (
        "the code word is quixotry",
        "remember that my boat is called Albatross",
    )

    start = boat["session_id"].removeprefix("session-")[:12]
    assert works(house, "sessions", "rename", start, "The boat") == (
        f"{boat['session_id']}: The boat\n"
    )
    assert "The boat" in works(house, "sessions", "list")

    works(house, "sessions", "archive", start)
    assert [each["session_id"] for each in listed(house)] == ["plans"]
    works(house, "sessions", "unarchive", start)

    shown = works(house, "sessions", "show", "pla")
    assert "the code word is quixotry" in shown
    switched = works(house, "chat", stdin="/switch pla\nhello\n")
    assert "session plans" in switched

    assert "nobody can be asked" in refused(house, "sessions", "forget", "plans", stdin="y\n")
    assert works(house, "sessions", "forget", "plans", "--yes") == "plans is forgotten\n"
    assert [each["title"] for each in listed(house, "--all")] == ["The boat"]
    assert "Albatross" in works(house, "chat", stdin="what do you know about my boat?\n")
    works(house, "stop")
    internal = house.workspaces / "default" / ".oxydra"
    kept = b"".join(path.read_bytes() for path in internal.rglob("*") if path.is_file())
    assert b"quixotry" not in kept
    assert b"Albatross" in kept


def test_vectors_are_made_anew_and_status_shows_it(house: Household) -> None:
    works(house, "start", "--detach")
    works(house, "chat", stdin="remember that my boat is called Albatross\n")
    told = works(house, "memory", "reembed")
    assert "passages get new vectors" in told
    deadline = time.monotonic() + 60
    while (memory := memory_of(house))["passages_embedded"] != memory["passages"]:
        assert time.monotonic() < deadline, memory
    assert memory["embedding_model"].startswith("hashing-")
    assert (memory["notes"], memory["encrypted"]) == (1, False)
    assert "passages, all embedded" in works(house, "status")
