"""Requests and claims as people and models write them, and what only looks like them.

The sentences in `promise_words/` were written before the tables that are to know them were
looked at, and put in whole. A save that nobody asked for and a sentence that is struck
although it claims nothing are faults; of what is recognised, a few unusual ones may be missed.
"""

from pathlib import Path
from typing import Final

import pytest

from guest.agent.guard.deeds import Deeds
from guest.agent.guard.intent import wish_of
from guest.agent.guard.sentences import split
from guest.tools.base import ToolResult

_WORDS: Final = Path(__file__).with_name("promise_words")
_LANGUAGES: Final = sorted(path.stem for path in _WORDS.iterdir())
_MISSED_MAX: Final = 0.1


def _lines(language: str, section: str) -> list[str]:
    text = (_WORDS / f"{language}.txt").read_text("utf-8")
    here = text.split(f"# {section}\n")[1].split("\n\n")[0]
    return [line.replace("\\n", "\n") for line in here.splitlines()]


def _struck(answer: str, deeds: Deeds) -> bool:
    return any(deeds.is_false(sentence, of_memory=False) for sentence in split(answer))


def _understood(line: str) -> bool:
    """Whether the request is seen, and the words after "=>" are kept; "*" points at something."""
    message, _, wanted = line.partition(" => ")
    wish = wish_of(message)
    if wish is None or wanted == "*":
        return wish is not None and not wish.words
    return wanted in " ".join(wish.words)


@pytest.mark.parametrize("language", _LANGUAGES)
def test_requests_are_seen_with_what_they_ask_for(language: str) -> None:
    lines = _lines(language, "requests")
    missed = [line for line in lines if not _understood(line)]
    assert len(missed) <= _MISSED_MAX * len(lines), missed


@pytest.mark.parametrize("language", _LANGUAGES)
def test_nothing_else_is_taken_for_a_request(language: str) -> None:
    assert [line for line in _lines(language, "others") if wish_of(line)] == []


@pytest.mark.parametrize("language", _LANGUAGES)
def test_claims_of_what_no_tool_did_are_struck(language: str) -> None:
    lines = _lines(language, "claims")
    shown = [line for line in lines if not _struck(line, Deeds(["file_write"]))]
    assert len(shown) <= _MISSED_MAX * len(lines), shown


@pytest.mark.parametrize("language", _LANGUAGES)
def test_what_claims_nothing_is_shown(language: str) -> None:
    lines = _lines(language, "fine")
    assert [line for line in lines if _struck(line, Deeds(["file_write"]))] == []


@pytest.mark.parametrize("language", _LANGUAGES)
def test_what_a_tool_did_to_a_file_may_be_told(language: str) -> None:
    deeds = Deeds(["file_write"])
    deeds.saw("file_write", {"path": "/shared/x.md"}, ToolResult("written", False, "", 1), 1)
    assert [line for line in _lines(language, "done") if _struck(line, deeds)] == []
