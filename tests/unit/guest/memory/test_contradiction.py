"""Signs, by plain rules, that two notes on the same matter say different things."""

import pytest

from guest.memory.models import Hit
from guest.memory.search.contradiction import contradictions, differ, read


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
        ("User's name is Shantanu", "user's name is SG"),
        ("Oliver drives to work", "Oliver cycles to work"),
        ("The pill: 20 mg", "The pill: 40 mg"),
        ("Anna's number is 0170 123 456", "Anna's number is 0171 654 321"),
        ("Met Tom today. He is well; Tom lives in Ulm", "Tom lives in Bonn"),
        ("Max is 6 years old", "Max is 7 years old"),
        ("Max is allergic to nuts", "Max is allergic to milk"),
        ("User is a nurse", "User is a teacher now"),
        ("私は東京に住んでいます", "私は大阪に住んでいます"),
        ("我住在北京", "我住在上海"),
    ],
)
def test_what_may_contradict(first: str, second: str) -> None:
    assert differ(read(first), read(second))
    assert differ(read(second), read(first))


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
        ("Julia is a vet", "Julia is my cousin"),
        ("The train to Rome leaves at 6:50", "The train to Madrid leaves at 8:15"),
        ("Max is 6", "Max is 7"),
        ("Monday: meeting about hiring", "Friday: meeting about the budget"),
        ("2026-03-01 Anna is in Rome", "2026-03-08 Anna is in Oslo"),
        ("It is raining", "It is warm"),
        ("Our house is " + "a b c d e f g h i j k".replace(" ", "x "), "Our house is small"),
        ("My mother lives in Graz", "My father lives in Linz"),
        ("", ""),
        ("10", "12"),
    ],
)
def test_what_does_not(first: str, second: str) -> None:
    assert not differ(read(first), read(second))
    assert not differ(read(second), read(first))


def hit(note_id: str, older_than: str) -> Hit:
    return Hit(
        note_id, "text", 0.9, "user_memory", "semantic", (), "", "", 1, older_than=older_than
    )


def test_a_line_for_each_note_that_may_contradict() -> None:
    (line,) = contradictions((hit("note-1", ""), hit("note-2", "note-3")))
    assert line.startswith("note-2 may say something else on the same matter")
