"""When a model is asked once more, measured on sentences that the stems were not made from.

`second_chance_words/tuned.txt` is what the stems were made from. `held_out.txt` was written
before them, and they were not changed after it was first measured.
"""

from pathlib import Path
from typing import Final

import pytest

from guest.agent.receipts.saving import request_in
from guest.agent.receipts.second_chance import asks, claims

_WORDS: Final = Path(__file__).with_name("second_chance_words")


def lines(name: str) -> dict[str, list[str]]:
    """The sentences of a file by section."""
    sections: dict[str, list[str]] = {}
    section: list[str] = []
    for line in (_WORDS / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            section = sections.setdefault(line[2:], [])
        elif line:
            section.append(line.replace("\\n", "\n"))
    return sections


@pytest.mark.parametrize("name", ["tuned", "held_out"])
def test_requests_and_claims_are_seen(name: str) -> None:
    words = lines(name)
    for section, sees in (("requests", asks), ("claims", claims)):
        missed = [line for line in words[section] if not sees(line)]
        assert len(missed) <= 0.05 * len(words[section]), missed


def test_ordinary_turns_are_left_alone() -> None:
    words = lines("held_out")
    for section, sees in (("messages", asks), ("answers", claims)):
        alarms = [line for line in words[section] if sees(line)]
        assert len(alarms) <= 0.05 * len(words[section]), alarms


def test_what_nobody_asks_for_is_never_saved_by_the_runtime() -> None:
    """What only looks like a request may make the model be asked, and nothing more."""
    for name in ("tuned", "held_out"):
        assert [line for line in lines(name)["messages"] if request_in(line)] == []


@pytest.mark.parametrize("asked", ["Save it to the list.", "Write it down"])
def test_where_a_file_was_written_words_for_files_do_not_count(asked: str) -> None:
    assert asks(asked)
    assert not asks(asked, files_changed=True)
    assert asks("Remember my name", files_changed=True)


def test_the_middle_of_a_long_text_asks_for_nothing() -> None:
    text = "The weather was fine. " * 50
    assert not asks(f"{text}Please remember that.{text}")
    assert asks(f"{text}{text} Please remember that.")


def test_the_name_of_a_file_asks_for_nothing() -> None:
    assert not asks("read /shared/notes.txt, do what it says")
    assert asks("read it, then note what it says")
