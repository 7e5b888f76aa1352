"""Where a passage stands decides its place among the first candidates."""

import pytest

from guest.memory.search.ranking import Ranked
from guest.memory.search.standing import Standing, weighed, worth_of_turn

LONG = "The second viewing of the house at Vale Street is on Friday, and I asked Mr Pym " * 2


def passage(score: float, *, exact: bool = False) -> Ranked:
    return Ranked(0, 1, score, "both", exact=exact)


def test_what_stands_alone_keeps_its_score() -> None:
    assert weighed([passage(0.9), passage(0.4)], [Standing()] * 2) == [0.9, 0.4]


def test_a_session_that_matches_elsewhere_raises_what_stands_in_it() -> None:
    standings = [Standing(session) for session in ("a", "b", "a")]
    best, other, same = weighed([passage(score) for score in (0.9, 0.5, 0.4)], standings)
    assert (best, other) == pytest.approx((0.9, 0.5))
    assert same > other


def test_a_turn_counts_less_than_a_note_and_a_short_one_less_still() -> None:
    assert 0 < worth_of_turn("ok") < worth_of_turn("ok, on Friday") < worth_of_turn(LONG) < 1
    assert worth_of_turn("") == 0
    note, turn = weighed([passage(0.5)] * 2, [Standing(), Standing("", worth_of_turn(LONG))])
    assert turn < note


def test_a_short_turn_that_holds_what_is_named_stays_first() -> None:
    short = Standing("conversation a", worth_of_turn("AB-1234"))
    named, note = weighed([passage(0.8, exact=True), passage(0.5)], [short, Standing("a")])
    assert named == pytest.approx(0.8)
    assert named > note
