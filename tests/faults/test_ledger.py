"""The ledger counts what is wrong: a table of zeros means something."""

import pytest

from tests.faults.ledger import Found, Kept, Ledger, Line, Tally

SAVED: list[Line] = [{"will": "save", "text": "tea"}, {"did": "save", "id": "n1"}]
UPDATED: list[Line] = [
    *SAVED,
    {"will": "update", "id": "n1", "text": "coffee"},
    {"did": "update", "version": 2},
]
DELETED: list[Line] = [*SAVED, {"will": "delete", "id": "n1"}, {"did": "delete"}]
SAID: list[Line] = [
    {"will": "begin", "session": "s"},
    {"did": "begin"},
    {"will": "append", "session": "s", "text": "hello"},
    {"did": "append"},
]
FORGOTTEN: list[Line] = [*SAID, {"will": "forget", "session": "s"}, {"did": "forget"}]
DENIED: list[Line] = [SAVED[0], {"failed": "away", "known": True}]
OPEN: list[Line] = [SAVED[0], {"failed": "not known", "known": False}]

TEA = Found({"n1": Kept("tea", 1)}, {})
COFFEE = Found({"n1": Kept("coffee", 2)}, {})
NOTHING = Found({}, {})
HELLO = Found({}, {"s": ("hello",)})


def settled(lines: list[Line], found: Found, *, survived: bool = False) -> Tally:
    tally = Tally()
    ledger = Ledger(tally, failures=True, survived=survived)
    for line in lines:
        ledger.read(line)
    ledger.settle(found)
    return tally


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], NOTHING),
        (SAVED, TEA),
        (SAVED[:1], TEA),
        (SAVED[:1], NOTHING),
        (UPDATED, COFFEE),
        (UPDATED[:3], COFFEE),
        (UPDATED[:3], TEA),
        (DELETED, NOTHING),
        (DELETED[:3], NOTHING),
        (DELETED[:3], TEA),
        (SAID, HELLO),
        (SAID[:3], HELLO),
        (SAID[:3], Found({}, {"s": ()})),
        (FORGOTTEN, NOTHING),
        (FORGOTTEN[:5], HELLO),
        (DENIED, NOTHING),
        (OPEN, TEA),
        (OPEN, NOTHING),
    ],
)
def test_what_may_be_is_not_counted(lines: list[Line], found: Found) -> None:
    assert settled(lines, found).wrong == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (SAVED, NOTHING),
        (SAVED, Found({"n1": Kept("other", 1)}, {})),
        (UPDATED, TEA),
        (DELETED, TEA),
        (SAID, Found({}, {"s": ()})),
        (SAID, NOTHING),
        (FORGOTTEN, HELLO),
    ],
)
def test_an_acknowledged_change_that_is_missing_is_counted(lines: list[Line], found: Found) -> None:
    tally = settled(lines, found)
    assert (tally.lost, tally.false_successes, len(tally.wrong)) == (1, 0, 1)
    tally = settled(lines, found, survived=True)
    assert (tally.lost, tally.false_successes, len(tally.wrong)) == (0, 1, 1)


def test_a_denied_change_that_was_made_is_counted() -> None:
    assert settled(DENIED, TEA).false_failures == 1


def test_what_nobody_has_stored_is_counted() -> None:
    assert settled([], TEA).half_made == 1


def test_an_update_that_was_made_twice_is_counted() -> None:
    twice: list[Line] = [*UPDATED[:3], {"did": "update", "version": 3}]
    assert settled(twice, Found({"n1": Kept("coffee", 3)}, {})).doubles == 1


def test_what_the_store_shows_by_itself_is_counted() -> None:
    found = Found({}, {}, half_made=("a", "b"), doubles=("c",), damage=("d", "e"))
    tally = settled([], found)
    assert (tally.half_made, tally.doubles, tally.damaged) == (2, 1, 1)
    assert tally.wrong == ["a", "b", "c", "d", "e"]


def test_a_failure_where_nothing_failed_is_counted() -> None:
    tally = Tally()
    ledger = Ledger(tally)
    for line in DENIED:
        ledger.read(line)
    assert tally.false_failures == 1
