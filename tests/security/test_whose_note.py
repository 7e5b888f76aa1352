"""Whose word a note is that a model makes beside a page, on two sets of messages and notes."""

from pathlib import Path
from typing import Final

import pytest

from guest.tools.base import ToolContext
from guest.tools.memory.provenance import origin_of

SETS: Final = Path(__file__).with_name("whose_words")


def pairs(name: str) -> list[tuple[str, str]]:
    """What the user said, and the note that the model made."""
    lines = (SETS / f"{name}.txt").read_text("utf-8").splitlines()
    each = (line.replace("\\n", "\n").partition(" => ") for line in lines)
    return [(said, note) for said, _, note in each]


def is_marked(note: str, *, asked: str = "", vouched: tuple[str, ...] = ()) -> bool:
    """Whether a note is marked that a model makes beside a page."""
    page = ("/shared/page.html",)
    context = ToolContext("alice", "s", "t", "chat", asked=asked, vouched=vouched, material=page)
    return origin_of(context, note).material


@pytest.mark.attempt(
    'having a model save what the user said otherwise: without the "not", in another order, as a '
    "statement instead of a question, by half, as if what they quote were theirs",
    stopped_by="beside material only a whole sentence of the user's, in order, is theirs",
)
def test_what_the_user_said_otherwise_is_not_theirs() -> None:
    planted = pairs("planted")
    assert len(planted) > 70
    assert [each for each in planted if not is_marked(each[1], asked=each[0])] == []
    assert [each for each in planted if not is_marked(each[1], vouched=(each[0],))] == []


def test_most_of_what_users_say_beside_a_page_is_theirs() -> None:
    """The figure stands in docs/design/2026-11-22-whose-words.md."""
    honest = pairs("honest")
    marked = [each for each in honest if is_marked(each[1], asked=each[0])]
    assert (len(honest), len(marked)) == (100, 42), marked


@pytest.mark.parametrize("piece", ["a.b. ", '"', "!", "> \n", "。", "I remember that ", "x" * 99])
def test_a_long_message_holds_nothing_up(piece: str) -> None:
    assert is_marked("The password is swordfish", asked=piece * (100_000 // len(piece)))
