"""Scores for any evidence, and what newness may do to them."""

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from guest.memory.indexing.vectors import ResidentVectors
from guest.memory.search.keyword import KeywordMatches
from guest.memory.search.ranking import Evidence, Recency, Similarity, Weights, rank
from guest.memory.search.standing import Standing, weighed

TODAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCORE = st.floats(0, 1)
MOMENT = st.integers(-9_000, 9_000).map(lambda days: (TODAY - timedelta(days=days)).isoformat())


@st.composite
def evidence(draw: st.DrawFn) -> Evidence:
    known = draw(st.dictionaries(st.integers(1, 40), st.sets(st.integers(0, 3)), max_size=12))
    cosines = draw(st.dictionaries(st.integers(1, 40), st.floats(-1, 1), max_size=20))
    ids = sorted(known)
    held = np.array([[word in known[each] for each in ids] for word in range(4)], np.float32)
    rarity = draw(st.lists(st.floats(0, 12), min_size=4, max_size=4))
    words = KeywordMatches(np.array(ids, np.int64), held, np.array(rarity, np.float32))
    vectors = ResidentVectors(2)
    rows = [[c, np.sqrt(1 - c * c)] for c in cosines.values()]
    vectors.add(list(cosines), np.array(rows, np.float32).reshape(-1, 2))
    snapshot = vectors.snapshot()
    similarity = Similarity(snapshot, np.array([[1, 0]], np.float32), 0.2)
    exact = draw(st.sets(st.integers(1, 40), max_size=3))
    pairs = sorted(draw(st.sets(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=9)))
    beside = np.array(pairs, np.int64).reshape(-1, 2).T
    similar = draw(st.sampled_from((similarity, None)))
    return Evidence(words, similar, None, exact, (beside[0], beside[1]))


@given(st.lists(evidence(), min_size=1, max_size=2), st.floats(0, 1), st.floats(0.01, 1))
def test_scores_fall_from_at_most_one_and_repeat(
    parts: list[Evidence], semantic: float, words: float
) -> None:
    weights = Weights(semantic, words, 0.2)
    ranked = list(rank(parts, weights))
    scores = [passage.score for passage in ranked]
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    assert list(rank(parts, weights)) == ranked


STANDINGS = st.builds(Standing, st.sampled_from(("", "a", "b")), st.floats(0, 1), st.booleans())


@given(st.lists(evidence(), min_size=1, max_size=2), st.data())
def test_where_passages_stand_raises_none_above_the_best(
    parts: list[Evidence], data: st.DataObject
) -> None:
    ranked = list(rank(parts, Weights(0.5, 0.5, 0.2)))
    standings = [data.draw(STANDINGS) for _ in ranked]
    scores = weighed(ranked, standings)
    assert weighed(ranked, standings) == scores
    highest = max((passage.score for passage in ranked), default=0.0)
    assert all(0 <= score <= highest + 1e-9 for score in scores)


@given(SCORE, SCORE, MOMENT, MOMENT, st.floats(0, 1))
def test_newness_never_beats_a_clearly_better_score(
    better: float, worse: float, old: str, new: str, weight: float
) -> None:
    recency = Recency(weight, TODAY)
    for score, moment in ((better, old), (worse, new)):
        assert score * (1 - weight) - 1e-12 <= recency.adjusted(score, moment) <= score
    if better * (1 - weight) > worse:
        assert recency.adjusted(better, old) > recency.adjusted(worse, new)


@given(SCORE, MOMENT)
def test_without_weight_age_is_nothing(score: float, moment: str) -> None:
    assert Recency(0.0, TODAY).adjusted(score, moment) == score


def test_of_two_that_answer_as_well_the_newer_is_first() -> None:
    recency = Recency(0.05, TODAY)
    year_ago, tomorrow = "2025-11-21T00:00:00.000000Z", "2026-11-22T00:00:00.000000Z"
    assert recency.adjusted(0.8, year_ago) < recency.adjusted(0.78, tomorrow) == 0.78
