"""Signs, by plain rules, that two notes on the same matter say different things."""

import pytest

from guest.memory.models import Hit
from guest.memory.search.contradiction import contradictions, may_contradict


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The meeting is at 10:30", "The meeting is at 11:30"),
        ("Backups run on Monday", "Backups run on Tuesday"),
        ("The release is in March 2026", "The release is in April 2026"),
        ("Timeout: 30 seconds", "Timeout: 60 seconds"),
        ("Anna eats meat", "Anna does not eat meat"),
        ("Anna doesn't eat meat", "Anna eats meat"),
        ("I am vegetarian", "I am not vegetarian"),
        ("Anna isst Fleisch", "Anna isst kein Fleisch"),
        ("The database is Postgres", "The database is SQLite"),
        ("Der Server heißt Anton", "Der Server heißt Berta"),
        ("user's name: Shantanu", "User's name is SG"),
    ],
)
def test_what_may_contradict(first: str, second: str) -> None:
    assert may_contradict(first, second)
    assert may_contradict(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Anna eats meat", "Anna eats meat"),
        ("Anna eats meat", "anna EATS meat!"),
        ("The database is Postgres", "The database is Postgres 16 on Linux"),
        ("Call Anna at 555", "Call Anna at 555 or 556"),
        ("The database is Postgres", "The cat is called Postgres"),
        ("Anna is 30", "The train leaves at 10:30"),
        ("Tea is green", "There is no milk"),
        ("", ""),
        ("10", "12"),
    ],
)
def test_what_does_not(first: str, second: str) -> None:
    assert not may_contradict(first, second)
    assert not may_contradict(second, first)


def hit(note_id: str, older_than: str) -> Hit:
    return Hit(
        note_id, "text", 0.9, "user_memory", "semantic", (), "", "", 1, older_than=older_than
    )


def test_a_line_for_each_note_that_may_contradict() -> None:
    (line,) = contradictions((hit("note-1", ""), hit("note-2", "note-3")))
    assert line.startswith("note-2 may say something else on the same matter")
