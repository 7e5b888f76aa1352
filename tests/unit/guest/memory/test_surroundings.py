"""Where a passage stands decides its place among the first candidates."""

import pytest

from guest.memory.search.ranking import Ranked
from guest.memory.search.standing import Standing, of_note, of_turn, weighed

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


def worth_of_turn(text: str) -> float:
    return of_turn(text, "a").worth


def test_a_turn_counts_less_than_a_note_and_a_short_one_less_still() -> None:
    assert 0 < worth_of_turn("ok") < worth_of_turn("ok, on Friday") < worth_of_turn(LONG) < 1
    assert worth_of_turn("") == 0
    note, turn = weighed([passage(0.5)] * 2, [Standing(), of_turn(LONG, "")])
    assert turn < note


def test_what_asks_counts_less_but_raises_what_is_in_its_session_as_much() -> None:
    for question in ("Where is it?", "在哪里？ ", "أين هو؟"):
        says, asks = (weighed([passage(0.5)], [of_note(each, "")])[0] for each in ("It.", question))
        assert asks < says
    assert of_turn(LONG, "").asks is of_note("Is it? It is.", "").asks is False
    told, asked = (
        weighed([passage(0.9), passage(0.5)], [Standing("a", 1.0, asks), Standing("a")])
        for asks in (False, True)
    )
    assert asked[0] < told[0]
    assert asked[1] == told[1]


def test_what_is_named_stays_first_however_short_it_is_and_also_in_a_question() -> None:
    for text in ("AB-1234", "AB-1234?"):
        standings = [of_turn(text, "conversation a"), Standing("a")]
        named, note = weighed([passage(0.8, exact=True), passage(0.5)], standings)
        assert named == pytest.approx(0.8)
        assert named > note
