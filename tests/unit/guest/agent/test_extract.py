"""A summary without a model: what stays, in which bounds, and that it can be read again."""

import pytest

from guest.agent.prompt import summary
from guest.agent.prompt.summary import Sentence
from guest.memory.models import Event
from guest.memory.search.tokens import tokens_of
from tests.unit.guest.agent.test_summary import talk


def test_statements_of_the_user_decisions_and_ids_stay() -> None:
    chat = [Sentence("assistant", f"Perhaps something different comes now {n}.") for n in range(40)]
    matter = [
        Sentence("user", "We decided to ship the release on Friday."),
        Sentence("tool", "memory_save: Stored: [id: note-12ab] the release"),
        Sentence("user", "The release needs the new tests first."),
    ]
    picked = summary.pick([*chat[:20], *matter, *chat[20:]], 130)
    assert matter[0] in picked
    assert matter[1] in picked
    assert matter[2] in picked
    assert tokens_of(summary.render(picked)) <= 130


@pytest.mark.parametrize("budget", [0, 30, 60, 200, 1000])
def test_what_is_picked_keeps_the_budget_and_says_nothing_twice(budget: int) -> None:
    lines = summary.spoken(talk(60, words=3))
    picked = summary.pick([*lines, *lines], budget)
    assert tokens_of(summary.render(picked)) <= budget or not picked
    assert len({line.text for line in picked}) == len(picked)


def test_a_summary_is_read_as_it_was_written() -> None:
    lines = [
        Sentence("user", "One."),
        Sentence("assistant", "Two: three."),
        Sentence("tool", "look: four"),
    ]
    assert summary.read(summary.render(lines)) == lines
    assert summary.read("- no heading\n\nplain") == [
        Sentence("assistant", "no heading"),
        Sentence("assistant", "plain"),
    ]


def test_sentences_are_taken_apart_and_ids_stay_whole() -> None:
    event = Event(1, "t", "user", "Call 3.14 it.  See /shared/a.md!\nSchluss。次の文", "[]", "now")
    texts = [line.text for line in summary.spoken([event])]
    assert texts == ["Call 3.14 it.", "See /shared/a.md!", "Schluss。", "次の文"]
