"""The resident matrix against a plain dictionary, and the snapshots it gives."""

import random

import numpy as np
import pytest

from guest.embedding.backends import Vectors
from guest.memory.indexing.vectors import CHOSEN_BY_SIGNS, EXACT_ROWS, ResidentVectors


def unit(*numbers: float) -> Vectors:
    vector = np.array([numbers], np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def by_id(vectors: ResidentVectors, query: Vectors, chunk_ids: range) -> dict[int, float]:
    """The cosine of every passage that has a vector, as a search would see it."""
    cosines = vectors.snapshot().cosines_of(np.array(chunk_ids), query)
    return {i: float(cosine) for i, cosine in zip(chunk_ids, cosines, strict=True) if cosine}


def test_random_changes_leave_what_a_dictionary_would_hold() -> None:
    chance = random.Random(3)
    numbers = np.random.default_rng(3)
    vectors, model = ResidentVectors(8), dict[int, Vectors]()
    query = unit(*numbers.normal(size=8))
    for step in range(4000):
        ids = chance.sample(range(1, 3000), chance.randint(1, 4))
        if chance.random() < 0.55:
            rows = numbers.normal(size=(len(ids), 8)).astype(np.float32)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            vectors.add(ids, rows)
            model.update(zip(ids, rows, strict=True))
        else:
            gone = [*ids, *chance.sample(sorted(model), min(len(model), 6))]
            vectors.remove(gone)
            for chunk_id in gone:
                model.pop(chunk_id, None)
        assert len(vectors) == len(model)
        if step % 400 == 0:
            got = by_id(vectors, query, range(3001))
            assert got.keys() == model.keys()
            for chunk_id, vector in model.items():
                assert abs(got[chunk_id] - float(vector @ query[0])) < 1e-5


def test_a_snapshot_does_not_move_under_its_reader() -> None:
    vectors = ResidentVectors(2)
    vectors.add([1, 2], np.concatenate([unit(1, 0), unit(0, 1)]))
    snapshot = vectors.snapshot()
    vectors.add(list(range(3, 2000)), np.repeat(unit(1, 1), 1997, axis=0))
    vectors.remove([1])
    assert snapshot.ids.tolist() == [1, 2]
    assert snapshot.rows_of(np.array([2, 3, 99, 0])).tolist() == [1, -1, -1, -1]
    assert snapshot.cosines_of(np.array([1, 2, 3]), unit(0, 1)).tolist() == [0, 1, 0]


def test_a_removed_row_is_similar_to_nothing() -> None:
    vectors = ResidentVectors(2)
    vectors.add([1], unit(1, 0))
    snapshot = vectors.snapshot()
    vectors.remove([1, 77])
    assert snapshot.nearest(unit(1, 0), 5, -1.0).ids.tolist() == []


def test_removed_rows_are_given_back() -> None:
    vectors = ResidentVectors(2)
    for start in range(0, 20_000, 100):
        ids = list(range(start, start + 100))
        vectors.add(ids, np.repeat(unit(1, 0), 100, axis=0))
        vectors.remove(ids)
    assert len(vectors.snapshot().ids) < 3000


def test_the_best_of_several_queries_counts() -> None:
    vectors = ResidentVectors(2)
    vectors.add([1], unit(0, 1))
    queries = np.concatenate([unit(1, 0), unit(0, 1)])
    assert vectors.snapshot().cosines_of(np.array([1]), queries).tolist() == [1]
    assert vectors.snapshot().nearest(queries, 1, 0.9).cosines.tolist() == [1]


def test_an_empty_matrix_answers() -> None:
    snapshot = ResidentVectors(2).snapshot()
    assert snapshot.nearest(unit(1, 0), 5, 0.0).ids.tolist() == []
    assert snapshot.cosines_of(np.array([1]), unit(1, 0)).tolist() == [0]


def test_vectors_that_come_out_of_order_are_found() -> None:
    vectors = ResidentVectors(2)
    for chunk_id in (5, 2, 9, 1):
        vectors.add([chunk_id], unit(1, chunk_id))
    snapshot = vectors.snapshot()
    rows = snapshot.rows_of(np.array([1, 2, 5, 9, 3, 10]))
    assert rows.tolist() == [3, 1, 0, 2, -1, -1]
    assert vectors.snapshot().order is snapshot.order
    vectors.add([7], unit(1, 7))
    assert vectors.snapshot().rows_of(np.array([7])).tolist() == [4]


@pytest.mark.parametrize("rows", [EXACT_ROWS, EXACT_ROWS + 500])
@pytest.mark.parametrize("among", [None, 700, 6000])
def test_the_nearest_are_those_of_a_plain_product(rows: int, among: int | None) -> None:
    numbers = np.random.default_rng(rows)
    topics = numbers.normal(size=(rows // 20, 96))
    matrix = topics[numbers.integers(len(topics), size=rows)] + numbers.normal(0, 0.6, (rows, 96))
    matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    vectors = ResidentVectors(96)
    vectors.add(list(range(1, rows + 1)), matrix)
    gone = numbers.choice(rows, 900, replace=False) + 1
    vectors.remove(gone.tolist())
    only = None if among is None else numbers.choice(rows, among, replace=False) + 1
    queries = matrix[gone[:2] - 1]
    snapshot = vectors.snapshot()
    found = snapshot.nearest(queries, 10, 0.3, only)
    cosines = (matrix @ queries.T).max(axis=1)
    cosines[gone - 1] = 0
    if only is not None:
        cosines[np.setdiff1d(np.arange(rows), only - 1)] = 0
    best = [row + 1 for row in np.argsort(-cosines)[:10] if cosines[row] >= 0.3]
    assert found.ids.tolist() == best
    assert np.allclose(found.cosines, cosines[found.ids - 1], atol=1e-5)
    assert len(snapshot.ids) - len(snapshot.dead) == rows - 900


def test_removed_vectors_keep_no_place_among_those_chosen_by_signs() -> None:
    numbers = np.random.default_rng(5)
    rows = EXACT_ROWS + CHOSEN_BY_SIGNS
    matrix = np.abs(numbers.normal(size=(rows, 64))).astype(np.float32)
    matrix[: 2 * CHOSEN_BY_SIGNS] *= -1
    matrix[2 * CHOSEN_BY_SIGNS - 1, :8] *= -1
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    vectors = ResidentVectors(64)
    vectors.add(list(range(1, rows + 1)), matrix)
    vectors.remove(list(range(1, 2 * CHOSEN_BY_SIGNS)))
    found = vectors.snapshot().nearest(matrix[:1], 10, 0.5)
    assert found.ids.tolist() == [2 * CHOSEN_BY_SIGNS]
