"""`runner memory` on notes, as a user runs it, with the real agent."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.commands.household import COMMAND, Household
from tests.support.commands.terminal import Terminal

pytestmark = pytest.mark.xdist_group("memory_notes_command")


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    """One agent for all tests; each of them forgets what it saved."""
    household = Household()
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    household.environment["OXYDRA_SHELL__ENABLED"] = "false"
    household.works("start", "--detach")
    yield household
    household.run("stop")
    household.remove()


def told(house: Household, *words: str, stdin: str = "") -> Any:
    return json.loads(house.works("memory", *words, "--json", stdin=stdin))


def test_a_note_is_saved_found_corrected_taken_back_and_forgotten(house: Household) -> None:
    text = "my boat Albatross lies in the old harbour of Kiel"
    saved = told(house, "save", text, "--tag", "boat", "--link", "log.md")
    note_id = saved["note_id"]
    start = note_id.removeprefix("note-")[:8]
    assert saved["message"].splitlines()[0] == f"Stored: [id: {note_id}]"

    edited = told(house, "edit", start, "-", stdin=text.replace("Albatross", "Petrel") + "\n")
    assert (edited["changed"], edited["note"]["version"]) == (True, 2)
    (hit,) = told(house, "search", "what is my boat called", "--tag", "boat")["notes"]
    assert (hit["note_id"], hit["text"]) == (note_id, edited["note"]["text"])
    assert "the user said so" in house.works("memory", "show", start)

    difference = house.works("memory", "history", start)
    assert "\n-my boat Albatross lies" in difference
    assert "\n+my boat Petrel lies" in difference
    assert "\nfrom log.md\n" in difference

    other = told(house, "save", f"{text}, Germany")["note_id"]
    undone = told(house, "undo", start, "--yes")
    assert (undone["done"], undone["note"]["version"]) == ("restored", 3)
    changes = told(house, "history")["changes"]
    assert [(each["note_id"], each["change"], each["version"]) for each in changes] == [
        (note_id, "undo", 3),
        (other, "save", 1),
        (note_id, "update", 2),
        (note_id, "save", 1),
    ]
    assert f"memory forget {note_id}\n" in house.works("memory", "review")

    listed = house.run("memory", "list", "--from", "user", "--type", "fact", "--limit", "1")
    assert listed.stdout.count("note-") == 1
    assert "these are the first 1" in listed.stderr
    assert told(house, "list", "--from-material") == {"notes": [], "more": False}

    refused = house.run("memory", "forget", start, stdin="y\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"memory forget {note_id} --yes" in refused.stderr
    assert told(house, "undo", start, "--yes")["done"] == "forgotten"
    assert told(house, "forget", other, "--yes") == {"forgotten": [other]}
    assert f"note not found: {note_id}" in house.run("memory", "show", note_id).stderr


def test_every_command_shows_the_same_note_in_clear(house: Household) -> None:
    secret = "sk-proj-Zx81kQpLm2Vb7Nc4"
    note_id = told(house, "save", f"the porch opens with {secret}")["note_id"]
    house.works("memory", "edit", note_id, f"the porch opens with {secret} now")
    commands = ("list",), ("show", note_id), ("search", "porch"), ("history", note_id), ("export",)
    shown = {words[0]: house.works("memory", *words) for words in commands}
    shown["chat"] = house.said("/memory porch")
    assert [view for view, text in shown.items() if secret not in text] == []
    answer = house.said("what do you know about the porch?")
    assert "[redacted:" in answer
    assert secret not in answer
    told(house, "forget", note_id, "--yes")


async def test_on_a_terminal_an_editor_opens_and_a_conflict_keeps_the_text(
    house: Household,
) -> None:
    note_id = told(house, "save", "first")["note_id"]
    editor = house.path / "editor.sh"
    meanwhile = " ".join([*COMMAND, "memory", "edit", note_id, "meanwhile"])
    editor.write_text(f'#!/bin/sh\n{meanwhile}\necho mine > "$1"\n')
    editor.chmod(0o700)
    environment = {**house.environment, "EDITOR": os.fspath(editor), "TMPDIR": str(house.path)}
    command, here = [*COMMAND, "memory", "edit", note_id], house.working_directory
    async with Terminal(command, environment, here) as terminal:
        await terminal.expect("has version 2 by now", timeout=60)
        await terminal.expect("your text is in ")
        assert await terminal.ended() == 1
    (kept,) = house.path.glob("note-not-saved-*.txt")
    assert kept.read_text() == "mine"
    command = [*COMMAND, "memory", "forget", note_id]
    async with Terminal(command, house.environment, here) as terminal:
        await terminal.expect("meanwhile\n", timeout=60)
        await terminal.expect("Forget this note? This cannot be undone [y/N]: ")
        terminal.type("y\r")
        await terminal.expect(f"{note_id} is forgotten")
        assert await terminal.ended() == 0
