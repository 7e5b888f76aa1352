"""The ledger counts what is wrong: a table of zeros means something."""

import multiprocessing
import os

import pytest

from tests.faults.ledger import Found, Ledger, Tally
from tests.support.crashing.killing import Line, Lines
from tests.support.memory.model import NoteModel

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
WRITTEN: list[Line] = [
    {"will": "write", "key": "k", "mode": "append", "text": "tea"},
    {"did": "write", "id": "n1", "version": 1},
    {"will": "write", "key": "k", "mode": "append", "text": "milk"},
    {"did": "write", "id": "n1", "version": 2},
]
CLEARED: list[Line] = [*WRITTEN, {"will": "clear", "key": "k"}, {"did": "clear"}]
UNDONE: list[Line] = [*UPDATED, {"will": "undo", "id": "n1"}, {"did": "undo", "version": 3}]
REPLACED: list[Line] = [
    *SAVED,
    {"will": "save", "text": "cats", "type": "decision"},
    {"did": "save", "id": "n2"},
    {"will": "supersede", "id": "n1", "by": "n2"},
    {"did": "supersede"},
]
ORPHANED: list[Line] = [*REPLACED, {"will": "delete", "id": "n2"}, {"did": "delete"}]
HERE: list[Line] = [
    *SAID,
    {"will": "save", "text": "tea", "scope": "s"},
    {"did": "save", "id": "n1"},
    {"will": "forget", "session": "s"},
    {"did": "forget"},
]
FORGOTTEN: list[Line] = [*SAID, {"will": "forget", "session": "s"}, {"did": "forget"}]
DENIED: list[Line] = [SAVED[0], {"failed": "away", "known": True}]
TEA = Found({"n1": NoteModel("tea", 1)}, {})
COFFEE = Found({"n1": NoteModel("coffee", 2, ("tea",))}, {})
FIRST = Found({"n1": NoteModel("tea", 1, key="k")}, {})
BOTH = Found({"n1": NoteModel("tea\nmilk", 2, ("tea",), key="k")}, {})
TWICE = Found({"n1": NoteModel("tea\nmilk\nmilk", 3, ("tea", "tea\nmilk"), key="k")}, {})
CATS = NoteModel("cats", 1, type="decision")
TEA_AND_CATS = Found({"n1": NoteModel("tea", 1), "n2": CATS}, {})
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
        (SAVED, NOTHING),
        (SAVED, Found({"n1": NoteModel("other", 1)}, {})),
        (UPDATED, TEA),
        (DELETED, TEA),
        (SAID, Found({}, {"s": ()})),
        (SAID, NOTHING),
        (FORGOTTEN, HELLO),
        (WRITTEN, FIRST),
        (WRITTEN, NOTHING),
        (WRITTEN, TWICE),
        (CLEARED, BOTH),
        (UNDONE, COFFEE),
        (REPLACED, TEA_AND_CATS),
        (HERE[:6], HELLO),
    ],
)
def test_an_acknowledged_change_that_is_missing_is_counted(lines: list[Line], found: Found) -> None:
    tally = settled(lines, found)
    assert (tally.lost, tally.false_successes, len(tally.wrong)) == (1, 0, 1)
    tally = settled(lines, found, survived=True)
    assert (tally.lost, tally.false_successes, len(tally.wrong)) == (0, 1, 1)


def test_a_note_that_only_a_forgotten_session_saw_is_counted() -> None:
    found = Found({"n1": NoteModel("tea", 1, scope="s")}, {})
    assert settled(HERE, found).lost == 1


def test_a_name_of_what_is_gone_is_counted() -> None:
    assert settled(ORPHANED, Found({"n1": NoteModel("tea", 1, superseded_by="n2")}, {})).lost == 1


def test_a_denied_change_that_was_made_is_counted() -> None:
    assert settled(DENIED, TEA).false_failures == 1


def test_what_nobody_has_stored_is_counted() -> None:
    assert settled([], TEA).half_made == 1


def test_an_update_that_was_made_twice_is_counted() -> None:
    twice: list[Line] = [*UPDATED[:3], {"did": "update", "version": 3}]
    assert settled(twice, Found({"n1": NoteModel("coffee", 3, ("tea",))}, {})).doubles == 1
    again: list[Line] = [*WRITTEN[:3], {"did": "write", "id": "n1", "version": 3}]
    assert settled(again, TWICE).doubles == 1


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


def test_a_line_that_comes_with_another_is_heard_the_next_time() -> None:
    """A guest that is quick writes both before we look."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    heard: list[Line] = []
    lines = Lines(reader, heard.append)
    os.write(writer.fileno(), b'{"will": "open"}\n{"did": "open"}\n{"will": "sa')
    writer.close()
    assert lines.listen(1.0, lambda line: "will" in line)
    assert heard == [{"will": "open"}]
    assert lines.listen(1.0, lambda line: "did" in line)
    assert not lines.listen(1.0, lambda line: True)
    lines.close()
    assert heard == [{"will": "open"}, {"did": "open"}]
