"""How two kinds of evidence become one order."""

from dataclasses import replace

import numpy as np
import pytest

from guest.memory.indexing.vectors import ResidentVectors
from guest.memory.search.keyword import NO_MATCHES, KeywordMatches
from guest.memory.search.ranking import (
    LOOKED_AT,
    SEMANTIC_MAX,
    Evidence,
    Ranked,
    Similarity,
    Weights,
    lenders,
    rank,
)

EVEN = Weights(semantic=0.5, keyword=0.5, min_similarity=0.2)


def words(**letters: str) -> KeywordMatches:
    """Matches of passages that hold one word for each of their letters; all words are as rare."""
    known = sorted(set("".join(letters.values())))
    held = [[letter in own for own in letters.values()] for letter in known]
    ids = [int(name[1:]) for name in letters]
    return KeywordMatches(
        np.array(ids, np.int64), np.array(held, np.float32), np.ones(len(known), np.float32)
    )


def meaning(*only: int, **cosines: float) -> Similarity:
    vectors = ResidentVectors(2)
    vectors.add(
        [int(name[1:]) for name in cosines],
        np.array([[c, np.sqrt(1 - c * c)] for c in cosines.values()], np.float32).reshape(-1, 2),
    )
    snapshot = vectors.snapshot()
    query = np.array([[1, 0]], np.float32)
    return Similarity(snapshot, query, EVEN.min_similarity, np.array(only) if only else None)


def ranked(*parts: Evidence, weights: Weights = EVEN) -> list[Ranked]:
    return list(rank(parts, weights))


def scores(result: list[Ranked]) -> dict[int, float]:
    return {r.chunk_id: pytest.approx(r.score, abs=1e-4) for r in result}  # type: ignore[misc]


def scores_of(result: list[Ranked]) -> dict[int, float]:
    return {r.chunk_id: r.score for r in result}


def test_each_kind_is_divided_by_its_highest_and_added_by_weight() -> None:
    result = ranked(Evidence(words(p1="abcd", p2="a"), meaning(p1=0.3, p2=0.6, p3=0.45)))
    assert scores(result) == {1: 0.6768, 2: 0.5625, 3: 0.3248}
    uneven = Weights(semantic=3, keyword=1, min_similarity=0.2)
    result = ranked(Evidence(words(p1="abcd", p2="a"), meaning(p1=0.3, p2=0.6)), weights=uneven)
    assert scores(result) == {2: 0.7812, 1: 0.5152}


def test_a_keyword_match_keeps_its_true_cosine_below_the_minimum() -> None:
    result = ranked(Evidence(words(p1="a"), meaning(p1=0.1, p2=0.5)))
    assert scores(result) == {1: 0.5447, 2: 0.5}
    assert [r.matched_by for r in result] == ["keyword", "semantic"]


def test_without_words_a_cosine_below_the_minimum_is_no_match() -> None:
    assert ranked(Evidence(NO_MATCHES, meaning(p1=0.19, p2=-0.9))) == []


def test_matched_by_says_what_found_it() -> None:
    result = ranked(Evidence(words(p1="a", p2="a"), meaning(p1=0.9, p2=0.1, p3=0.8)))
    assert {r.chunk_id: r.matched_by for r in result} == {1: "both", 2: "keyword", 3: "semantic"}


def test_without_vectors_words_count_fully() -> None:
    assert scores(ranked(Evidence(words(p1="abcd", p2="a"), None))) == {1: 1.0, 2: 0.125}
    assert scores(ranked(Evidence(words(p1="a"), meaning()))) == {1: 1.0}


def test_a_passage_without_a_vector_is_ranked_by_its_words() -> None:
    result = ranked(Evidence(words(p9="a"), meaning(p1=0.9)))
    assert scores(result) == {1: 0.5, 9: 0.5}


def test_only_the_allowed_passages_are_ranked_and_compared() -> None:
    meant = meaning(2, 3, p1=0.9, p2=0.3, p3=0.3)
    evidence = Evidence(words(p1="ab", p2="a"), meant, np.array([2, 3]))
    assert scores(ranked(evidence)) == {2: 1.0, 3: 0.5}
    assert ranked(Evidence(words(p1="a"), None, np.zeros(0, np.int64))) == []


def test_cosines_are_compared_across_parts_and_words_within() -> None:
    notes = Evidence(words(p1="a"), meaning(p1=0.8))
    conversation = Evidence(words(p2="a"), meaning(p2=0.4))
    result = ranked(notes, conversation)
    assert [(r.part, r.chunk_id) for r in result] == [(0, 1), (1, 2)]
    assert [r.score for r in result] == pytest.approx([1.0, 0.6768], abs=1e-4)


def test_what_was_said_takes_nothing_from_the_notes_that_are_less_near() -> None:
    notes = Evidence(words(p1="a"), meaning(p1=0.4))
    alone = ranked(notes)
    asked_before = ranked(notes, Evidence(words(p2="a"), meaning(p2=1.0, p3=0.4)))
    assert [r for r in asked_before if r.part == 0] == alone
    assert {r.chunk_id: r.score for r in asked_before if r.part == 1} == pytest.approx(
        {2: 1.0, 3: 0.1265}, abs=1e-4
    )


def test_ties_go_to_the_earlier_part_and_then_to_the_newer_passage() -> None:
    result = ranked(Evidence(words(p1="a", p3="a"), None), Evidence(words(p2="a", p4="a"), None))
    assert [r.chunk_id for r in result] == [3, 1, 4, 2]


def test_a_word_beside_a_passage_counts_less_than_its_own_however_many_have_it() -> None:
    held = words(p1="a", p3="a", p5="a")
    beside = np.array([1, 2, 2, 4, 4, 4]), np.array([2, 3, 5, 1, 3, 5])
    by_id = {r.chunk_id: r for r in ranked(Evidence(held, None, beside=beside))}
    assert set(by_id) == {1, 2, 3, 4, 5}
    assert by_id[2].score == by_id[4].score < by_id[1].score == by_id[3].score
    assert {r.matched_by for r in by_id.values()} == {"keyword"}
    once = ranked(Evidence(held, None, beside=(np.array([1]), np.array([2]))))
    assert 0 < scores_of(once)[2] == by_id[2].score


def test_of_two_that_have_a_word_the_one_beside_another_comes_first() -> None:
    held = words(p1="ab", p2="a", p3="a")
    result = ranked(Evidence(held, None, beside=(np.array([1]), np.array([2]))))
    assert [r.chunk_id for r in result] == [1, 2, 3]


def test_a_cosine_rises_a_little_to_that_of_a_neighbour() -> None:
    meant = meaning(p1=0.8, p2=0.4, p3=0.4, p4=0.1)
    beside = np.array([1, 1]), np.array([2, 4])
    result = ranked(Evidence(NO_MATCHES, meant, beside=beside))
    assert [r.chunk_id for r in result] == [1, 2, 3, 4]
    assert [r.meaning for r in result] == pytest.approx([0.8, 0.4, 0.4, 0.1])
    alone = ranked(Evidence(NO_MATCHES, meant))
    assert [r.chunk_id for r in alone] == [1, 3, 2]
    assert scores_of(alone)[3] == scores_of(result)[3]


def test_neighbours_that_may_not_be_found_are_none_and_lend_nothing() -> None:
    evidence = Evidence(words(p1="a", p3="a"), None, np.array([3, 4]))
    lent = replace(evidence, beside=(np.array([1, 1, 3]), np.array([2, 3, 4])))
    assert scores_of(ranked(lent))[3] == scores_of(ranked(evidence))[3] == 1.0
    assert set(scores_of(ranked(lent))) == {3, 4}


def test_the_best_by_their_own_evidence_lend() -> None:
    held = words(**{f"p{i}": "ab" if i % 2 else "a" for i in range(1, 200)})
    best = lenders(Evidence(held, None), EVEN)
    assert len(best) == LOOKED_AT
    assert all(best % 2)


def test_nothing_found_is_nothing_ranked() -> None:
    assert ranked(Evidence(NO_MATCHES, None)) == []


def test_only_the_nearest_come_in_by_their_vectors_alone() -> None:
    many = {f"p{i}": 0.3 + i / 10_000 for i in range(1, SEMANTIC_MAX + 101)}
    result = ranked(Evidence(words(p1="a"), meaning(**many)))
    assert len(result) == SEMANTIC_MAX + 1
    assert {r.chunk_id for r in result} == {1} | set(range(101, SEMANTIC_MAX + 101))


def test_a_removed_passage_is_not_found_even_without_a_minimum() -> None:
    vectors = ResidentVectors(2)
    vectors.add([1, 2], np.array([[1, 0], [1, 0]], np.float32))
    snapshot = vectors.snapshot()
    vectors.remove([1])
    similarity = Similarity(snapshot, np.array([[1, 0]], np.float32), least=0.0)
    anything = Weights(0.5, 0.5, min_similarity=0.0)
    result = ranked(Evidence(words(p1="a"), similarity), weights=anything)
    assert scores(result) == {2: 0.5, 1: 0.5}
    assert {r.chunk_id: r.matched_by for r in result} == {1: "keyword", 2: "semantic"}


def test_what_is_named_exactly_comes_before_all_else() -> None:
    notes = Evidence(words(p1="abcd", p2="a"), meaning(p1=0.9, p2=0.1, p3=0.9), exact={2})
    first, *others = ranked(notes, Evidence(words(p4="a"), meaning(p4=0.9)))
    assert (first.chunk_id, first.exact) == (2, True)
    assert all(each.score <= 0.5 <= first.score and not each.exact for each in others)
    assert ranked(Evidence(words(p1="a"), None, exact={9}))[0].score == 1.0
