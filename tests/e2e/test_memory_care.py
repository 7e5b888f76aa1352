"""Keeping a memory as an operator does: backed up, encrypted, re-keyed, restored; all through
the real command."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.support.commands.household import Household

FIRST, SECOND = "the first key is long enough", "and so is the second one of them"
FACT = "my boat is called Albatross"


@pytest.fixture
def house(household: Household) -> Iterator[Household]:
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    household.environment["OXYDRA_SHELL__ENABLED"] = "false"
    yield household
    household.stop()


def keyed(house: Household, name: str, key: str) -> None:
    """From now on the memory's files have the key in variable `name`."""
    house.environment[name] = key
    house.environment["OXYDRA_MEMORY__ENCRYPTION__KEY_ENV"] = name


def refused(house: Household, *words: str, stdin: str = "") -> str:
    done = house.run(*words, stdin=stdin)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_backup_brings_back_what_was_lost_and_a_damaged_one_harms_nothing(
    house: Household,
) -> None:
    """Also a backup of another key, and nothing while the memory is in use."""
    keyed(house, "MEMORY_KEY", FIRST)
    house.works("start", "--detach")
    house.said(f"remember that {FACT}")
    backup = house.path / "saved.db"
    told = house.works("memory", "backup", str(backup))
    assert re.search(r"\d+ notes, \d+ sessions, .* sha256 [0-9a-f]{64}", told), told
    assert backup.stat().st_mode & 0o777 == 0o600
    assert b"Albatross" not in backup.read_bytes()
    assert [*house.path.rglob("backups/*")] == []

    for words in (("rekey",), ("restore", str(backup), "--yes")):
        assert "runner stop" in refused(house, "memory", *words)
    assert "is there already" in refused(house, "memory", "backup", str(backup))
    status = json.loads(house.works("status", "--json"))
    assert {guest["state"] for guest in status["guests"] if guest["role"] == "agent"} == {"ready"}
    house.works("stop")

    damaged = house.path / "damaged.db"
    content = bytearray(backup.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4096] = b"\x5a" * 4096
    damaged.write_bytes(content)
    assert "restore" in refused(house, "memory", "restore", str(damaged), "--yes").lower()
    question = "what do you know about my boat?"
    before, after = house.said(question, "forget my boat", question).split("> forget my boat\n")
    assert "Albatross" in before
    assert "know nothing" in after

    assert "--yes" in refused(house, "memory", "restore", str(backup))
    keyed(house, "OTHER_KEY", SECOND)
    house.works("memory", "rekey", "--old-key-env", "MEMORY_KEY")
    refused(house, "memory", "restore", str(backup), "--yes")
    planted = house.workspaces / "default/.oxydra/restoring.db/inside"
    planted.mkdir(parents=True)  # by an agent that would rather not be restored
    house.works("memory", "restore", str(backup), "--key-env", "MEMORY_KEY", "--yes")
    assert not planted.exists()
    assert "Albatross" in house.said(question)
