"""What is around a passage decides its place among the first candidates."""

import numpy as np
import pytest

from guest.memory.indexing.vectors import ResidentVectors
from guest.memory.search.context_terms import NeighbourTerms, weighed, worth_of_turn
from guest.memory.search.keyword import NO_MATCHES
from guest.memory.search.ranking import Evidence, Ranked, Similarity


def evidence(**cosines: float) -> Evidence:
    vectors = ResidentVectors(2)
    vectors.add(
        [int(name[1:]) for name in cosines],
        np.array([[c, np.sqrt(1 - c * c)] for c in cosines.values()], np.float32).reshape(-1, 2),
    )
    query = np.array([[1, 0]], np.float32)
    return Evidence(NO_MATCHES, Similarity.measured(vectors.snapshot(), query, 0.2))


def passage(chunk_id: int, score: float, *, part: int = 0, nearest: float = 0.8) -> Ranked:
    return Ranked(part, chunk_id, score, "both", nearest=nearest)


def test_what_stands_alone_keeps_its_score() -> None:
    passages = [passage(1, 0.9), passage(2, 0.4)]
    assert weighed(passages, [NeighbourTerms()] * 2, [evidence(p1=0.8)]) == [0.9, 0.4]


def test_an_answer_to_what_was_asked_just_before_comes_first() -> None:
    passages = [passage(2, 0.6), passage(4, 0.5)]
    around = [NeighbourTerms("a", (1,)), NeighbourTerms("b", (3,))]
    first, second = weighed(passages, around, [evidence(p1=0.0, p3=0.8)])
    assert first < second == pytest.approx(0.6)
    without = [Evidence(NO_MATCHES, None)]
    assert weighed(passages, around, without) == [0.6, 0.5]


def test_the_mean_of_all_that_precedes_counts() -> None:
    passages = [passage(9, 0.6), passage(8, 0.6), passage(7, 0.6)]
    around = [NeighbourTerms("a", (1, 2)), NeighbourTerms("b", (3, 4)), NeighbourTerms("c", (1, 4))]
    both, none, one = weighed(passages, around, [evidence(p1=0.8, p2=0.8, p3=0.1, p4=0.1)])
    assert both > one > none


def test_a_session_that_matches_elsewhere_raises_what_stands_in_it() -> None:
    passages = [passage(1, 0.9), passage(2, 0.5), passage(3, 0.4), passage(4, 0.45, part=1)]
    around = [NeighbourTerms(session) for session in ("a", "b", "a", "a")]
    best, other, same, elsewhere = weighed(passages, around, [evidence(), evidence()])
    assert best == pytest.approx(0.9)
    assert other == pytest.approx(0.5)
    assert same > other
    assert elsewhere == pytest.approx(0.45)  # notes and turns of a session do not raise each other


def test_what_hardly_matches_by_itself_does_not_rise_with_its_session() -> None:
    passages = [passage(1, 0.9), passage(2, 0.089), passage(3, 0.091)]
    best, hardly, somewhat = weighed(passages, [NeighbourTerms("a")] * 3, [evidence()])
    assert best == pytest.approx(0.9)
    assert hardly == pytest.approx(0.089)
    assert somewhat > 0.3


def test_the_best_turn_keeps_its_score_beside_notes() -> None:
    passages = [passage(1, 0.7), passage(2, 0.9, part=1), passage(3, 0.3, part=1)]
    around = [NeighbourTerms(), NeighbourTerms("a", (5,), 0.5), NeighbourTerms("b", (5,), 0.5)]
    note, turn, other = weighed(passages, around, [evidence(), evidence(p5=0.1)])
    assert (note, turn) == pytest.approx((0.7, 0.9))
    assert other < turn


def test_a_long_turn_of_the_user_counts_most() -> None:
    long = "The second viewing of the house at Vale Street is on Friday, and I asked Mr Pym " * 2
    assert worth_of_turn(long, by_user=True) == 1.0
    assert 0 < worth_of_turn("ok", by_user=True) < worth_of_turn("ok, on Friday", by_user=True) < 1
    assert worth_of_turn(long, by_user=False) < 1.0
    assert worth_of_turn("", by_user=False) == 0
