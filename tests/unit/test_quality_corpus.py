"""What the quality of search is measured on keeps to its own rules."""

import re

import pytest

from bench.quality.corpus import HALVES, Half, chats

_DATE = re.compile(
    r"\b(January|February|April|June|July|August|September|October|November|December|20\d\d)\b"
)


@pytest.mark.parametrize("half", HALVES)
def test_a_half_is_large_enough(half: Half) -> None:
    part = chats(half)
    assert len(part.entries) >= 1500
    assert len({entry.session for entry in part.entries}) >= 30
    assert len(part.questions) >= 800
    several = [question for question in part.questions if question.kind == "several"]
    assert len(several) >= len(part.questions) / 3
    assert all(len(question.answers) > 1 for question in several)


@pytest.mark.parametrize("half", HALVES)
def test_no_turn_tells_its_date(half: Half) -> None:
    assert [entry.name for entry in chats(half).entries if _DATE.search(entry.text)] == []


@pytest.mark.parametrize("half", HALVES)
def test_turns_and_questions_differ(half: Half) -> None:
    """As notes, turns with the same text would be one."""
    part = chats(half)
    for texts in ([e.text for e in part.entries], [q.text for q in part.questions]):
        assert len(set(texts)) == len(texts)


def test_the_halves_never_meet() -> None:
    development, test = map(chats, HALVES)
    assert not {e.text for e in development.entries} & {e.text for e in test.entries}
    assert not {q.text for q in development.questions} & {q.text for q in test.questions}
