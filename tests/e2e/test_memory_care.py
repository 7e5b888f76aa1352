"""Keeping a memory as an operator does: backed up, encrypted, re-keyed, restored; all through
the real command."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands.household import Household

FIRST, SECOND = "the first key is long enough", "and so is the second one of them"
FACT = "my boat is called Albatross"


@pytest.fixture
def house(household: Household) -> Iterator[Household]:
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    household.environment["OXYDRA_SHELL__ENABLED"] = "false"
    yield household
    household.run("stop")


def keyed(house: Household, name: str, key: str) -> None:
    """From now on the memory's files have the key in variable `name`."""
    house.environment[name] = key
    house.environment["OXYDRA_MEMORY__ENCRYPTION__KEY_ENV"] = name


def refused(house: Household, *words: str, stdin: str = "") -> str:
    done = house.run(*words, stdin=stdin)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def bytes_at_rest(house: Household) -> bytes:
    internal = house.workspaces / "default" / ".oxydra"
    return b"".join(path.read_bytes() for path in internal.rglob("*") if path.is_file())


def backed_up(house: Household, name: str) -> Path:
    file = house.path / name
    house.works("start", "--detach")
    told = house.works("memory", "backup", str(file))
    house.works("stop")
    assert re.search(r"\d+ notes, \d+ sessions, .* sha256 [0-9a-f]{64}", told), told
    assert file.stat().st_mode & 0o777 == 0o600
    return file


def test_from_plain_to_encrypted_to_another_key_and_back(house: Household) -> None:
    assert "Saved" in house.said(f"remember that {FACT}")
    assert b"Albatross" in bytes_at_rest(house)

    keyed(house, "MEMORY_KEY", FIRST)
    assert "runner memory rekey" in refused(house, "start", "--detach")
    house.works("memory", "rekey")
    assert b"Albatross" not in bytes_at_rest(house)
    assert "Albatross" in house.said("what do you know about my boat?")

    keyed(house, "OTHER_KEY", SECOND)
    assert "key" in refused(house, "start", "--detach")
    house.works("memory", "rekey", "--old-key-env", "MEMORY_KEY")
    assert "Albatross" in house.said("what do you know about my boat?")
    assert b"Albatross" not in bytes_at_rest(house)

    del house.environment["OXYDRA_MEMORY__ENCRYPTION__KEY_ENV"]
    assert "key" in refused(house, "start", "--detach")
    house.works("memory", "rekey", "--old-key-env", "OTHER_KEY")
    assert "Albatross" in house.said("what do you know about my boat?")
    for key in (FIRST, SECOND):
        logs = (path.read_text() for path in house.path.rglob("*.log"))
        assert not any(key in text for text in logs)


def test_a_backup_brings_back_what_was_lost_also_one_of_another_key(house: Household) -> None:
    keyed(house, "MEMORY_KEY", FIRST)
    house.said(f"remember that {FACT}")
    backup = backed_up(house, "saved.db")
    assert b"Albatross" not in backup.read_bytes()
    assert "know nothing" in house.said("forget my boat", "what do you know about my boat?")

    assert "--yes" in refused(house, "memory", "restore", str(backup))
    keyed(house, "OTHER_KEY", SECOND)
    house.works("memory", "rekey", "--old-key-env", "MEMORY_KEY")
    refused(house, "memory", "restore", str(backup), "--yes")
    house.works("memory", "restore", str(backup), "--key-env", "MEMORY_KEY", "--yes")
    assert "Albatross" in house.said("what do you know about my boat?")


def test_a_damaged_backup_is_refused_and_harms_nothing(house: Household) -> None:
    house.said(f"remember that {FACT}")
    backup = backed_up(house, "saved.db")
    content = bytearray(backup.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4096] = b"\x5a" * 4096
    backup.write_bytes(content)
    assert "restore" in refused(house, "memory", "restore", str(backup), "--yes").lower()
    assert "Albatross" in house.said("what do you know about my boat?")


def test_nothing_is_done_to_a_memory_that_is_in_use(house: Household) -> None:
    house.said(f"remember that {FACT}")
    backup = backed_up(house, "saved.db")
    house.works("start", "--detach")
    for words in (("rekey",), ("restore", str(backup), "--yes")):
        assert "runner stop" in refused(house, "memory", *words)
    assert "is there already" in refused(house, "memory", "backup", str(backup))
    status = json.loads(house.works("status", "--json"))
    assert {guest["state"] for guest in status["guests"] if guest["role"] == "agent"} == {"ready"}


def test_without_a_server_there_is_nothing_to_move_to(house: Household) -> None:
    assert "memory.remote_url" in refused(house, "memory", "move", "--to", "remote")
    assert "auth_token_env" in refused(house, "memory", "token")
