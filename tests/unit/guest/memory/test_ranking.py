"""How two kinds of evidence become one order."""

import numpy as np
import pytest

from guest.memory.indexing.vectors import ResidentVectors
from guest.memory.search.keyword import NO_MATCHES, KeywordMatches
from guest.memory.search.ranking import SEMANTIC_MAX, Evidence, Ranked, Similarity, Weights, rank

EVEN = Weights(semantic=0.5, keyword=0.5, min_similarity=0.2)


def words(**bm25: float) -> KeywordMatches:
    return KeywordMatches(
        np.array([int(name[1:]) for name in bm25], np.int64),
        np.array(list(bm25.values()), np.float32),
    )


def meaning(*only: int, **cosines: float) -> Similarity:
    vectors = ResidentVectors(2)
    vectors.add(
        [int(name[1:]) for name in cosines],
        np.array([[c, np.sqrt(1 - c * c)] for c in cosines.values()], np.float32).reshape(-1, 2),
    )
    snapshot = vectors.snapshot()
    query = np.array([[1, 0]], np.float32)
    return Similarity.measured(
        snapshot, query, EVEN.min_similarity, np.array(only) if only else None
    )


def ranked(*parts: Evidence, weights: Weights = EVEN) -> list[Ranked]:
    return list(rank(parts, weights))


def scores(result: list[Ranked]) -> dict[int, float]:
    return {r.chunk_id: pytest.approx(r.score, abs=1e-4) for r in result}  # type: ignore[misc]


def test_each_kind_is_divided_by_its_highest_and_added_by_weight() -> None:
    result = ranked(Evidence(words(p1=8, p2=4), meaning(p1=0.3, p2=0.6, p3=0.45)))
    assert scores(result) == {2: 0.75, 1: 0.6768, 3: 0.3248}
    uneven = Weights(semantic=3, keyword=1, min_similarity=0.2)
    result = ranked(Evidence(words(p1=8, p2=4), meaning(p1=0.3, p2=0.6)), weights=uneven)
    assert scores(result) == {2: 0.875, 1: 0.5152}


def test_a_keyword_match_keeps_its_true_cosine_below_the_minimum() -> None:
    result = ranked(Evidence(words(p1=1), meaning(p1=0.1, p2=0.5)))
    assert scores(result) == {1: 0.5447, 2: 0.5}
    assert [r.matched_by for r in result] == ["keyword", "semantic"]


def test_without_words_a_cosine_below_the_minimum_is_no_match() -> None:
    assert ranked(Evidence(NO_MATCHES, meaning(p1=0.19, p2=-0.9))) == []


def test_matched_by_says_what_found_it() -> None:
    result = ranked(Evidence(words(p1=1, p2=1), meaning(p1=0.9, p2=0.1, p3=0.8)))
    assert {r.chunk_id: r.matched_by for r in result} == {1: "both", 2: "keyword", 3: "semantic"}


def test_without_vectors_words_count_fully() -> None:
    assert scores(ranked(Evidence(words(p1=8, p2=2), None))) == {1: 1.0, 2: 0.25}
    assert scores(ranked(Evidence(words(p1=8), meaning()))) == {1: 1.0}


def test_a_passage_without_a_vector_is_ranked_by_its_words() -> None:
    result = ranked(Evidence(words(p9=2), meaning(p1=0.9)))
    assert scores(result) == {1: 0.5, 9: 0.5}


def test_only_the_allowed_passages_are_ranked_and_compared() -> None:
    meant = meaning(2, 3, p1=0.9, p2=0.3, p3=0.3)
    evidence = Evidence(words(p1=8, p2=4), meant, np.array([2, 3]))
    assert scores(ranked(evidence)) == {2: 1.0, 3: 0.5}
    assert ranked(Evidence(words(p1=8), None, np.zeros(0, np.int64))) == []


def test_cosines_are_compared_across_parts_and_words_within() -> None:
    notes = Evidence(words(p1=2), meaning(p1=0.8))
    conversation = Evidence(words(p2=20), meaning(p2=0.4))
    result = ranked(notes, conversation)
    assert [(r.part, r.chunk_id) for r in result] == [(0, 1), (1, 2)]
    assert [r.score for r in result] == pytest.approx([1.0, 0.6768], abs=1e-4)


def test_what_was_said_takes_nothing_from_the_notes_that_are_less_near() -> None:
    notes = Evidence(words(p1=2), meaning(p1=0.4))
    alone = ranked(notes)
    asked_before = ranked(notes, Evidence(words(p2=20), meaning(p2=1.0, p3=0.4)))
    assert [r for r in asked_before if r.part == 0] == alone
    assert {r.chunk_id: r.score for r in asked_before if r.part == 1} == pytest.approx(
        {2: 1.0, 3: 0.1265}, abs=1e-4
    )


def test_ties_go_to_the_earlier_part_and_then_to_the_newer_passage() -> None:
    result = ranked(Evidence(words(p1=1, p3=1), None), Evidence(words(p2=1, p4=1), None))
    assert [r.chunk_id for r in result] == [3, 1, 4, 2]


def test_nothing_found_is_nothing_ranked() -> None:
    assert ranked(Evidence(NO_MATCHES, None)) == []


def test_only_the_nearest_come_in_by_their_vectors_alone() -> None:
    many = {f"p{i}": 0.3 + i / 10_000 for i in range(1, SEMANTIC_MAX + 101)}
    result = ranked(Evidence(words(p1=1), meaning(**many)))
    assert len(result) == SEMANTIC_MAX + 1
    assert {r.chunk_id for r in result} == {1} | set(range(101, SEMANTIC_MAX + 101))


def test_a_removed_passage_is_not_found_even_without_a_minimum() -> None:
    vectors = ResidentVectors(2)
    vectors.add([1, 2], np.array([[1, 0], [1, 0]], np.float32))
    snapshot = vectors.snapshot()
    vectors.remove([1])
    similarity = Similarity.measured(snapshot, np.array([[1, 0]], np.float32), least=0.0)
    anything = Weights(0.5, 0.5, min_similarity=0.0)
    result = ranked(Evidence(words(p1=1), similarity), weights=anything)
    assert scores(result) == {2: 0.5, 1: 0.5}
    assert {r.chunk_id: r.matched_by for r in result} == {1: "keyword", 2: "semantic"}


def test_what_is_named_exactly_comes_before_all_else() -> None:
    notes = Evidence(words(p1=8, p2=1), meaning(p1=0.9, p2=0.1, p3=0.9), exact={2})
    first, *others = ranked(notes, Evidence(words(p4=9), meaning(p4=0.9)))
    assert (first.chunk_id, first.exact) == (2, True)
    assert all(each.score <= 0.5 <= first.score and not each.exact for each in others)
    assert ranked(Evidence(words(p1=8), None, exact={9}))[0].score == 1.0


@pytest.mark.parametrize(("semantic", "keyword"), [(0, 0), (-1, 1), (1, -0.1)])
def test_weights_that_cannot_work_are_refused(semantic: float, keyword: float) -> None:
    with pytest.raises(ValueError, match="vector_weight and keyword_weight"):
        Weights(semantic, keyword, 0.2)
