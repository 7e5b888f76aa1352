"""Puts the newest of the notes that answer the same question before the older ones."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory.indexing.vectors import Scores, Snapshot
from guest.memory.search.contradiction import (
    ALIKE,
    NEAR,
    OTHERS,
    WORDS_OF_CHARS,
    Reading,
    differ,
    likeness,
    read,
)

COMPARED: Final = 24
"""How many of the first notes are compared; takes about a millisecond."""

_CONTRADICT: Final = 0.7
"""As `ALIKE`: to say something of a note takes more than to place it."""

_AS_GOOD: Final = 0.5
"""The share of the better one's score that the other of a pair has at least."""


class Dated(NamedTuple):
    """A note, when it was last written, and the vector of its passage that fits best, if any, with
    its cosine to the question and its score. Notes of other `projects` are apart on purpose."""

    note_id: str
    text: str
    updated_at: str
    vector: Vectors | None
    meaning: float = 1.0
    score: float = 1.0
    projects: frozenset[str] = frozenset()


_Pair = tuple[Dated, Dated]


def older_ones(
    notes: Sequence[Dated], vectors: Snapshot | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """The ids of notes that newer ones may contradict, each with that of the newest; and the same
    with notes that the question does not tell from newer ones: they are nearer to one another than
    to it. `vectors` are those of all notes."""
    if len(notes) < 2:
        return {}, {}
    readings = [read(note.text[:WORDS_OF_CHARS]) for note in notes]
    nearness = _nearness(notes, readings)
    crowded = np.sort(nearness)[:, -OTHERS - 1 :][:, 0]
    contradicted: list[_Pair] = []
    alike: list[_Pair] = []
    for i, j in np.argwhere(np.triu(nearness, 1)).tolist():
        older, newer = sorted((notes[i], notes[j]), key=lambda note: note.updated_at)
        near, others = float(nearness[i, j]), max(crowded[i], crowded[j])
        apart = older.projects != newer.projects or older.updated_at == newer.updated_at
        if others >= ALIKE * near or apart:
            continue
        differs = others < _CONTRADICT * near and differ(readings[i], readings[j])
        if differs and not _in_a_series((older, newer), _CONTRADICT * near, vectors):
            contradicted.append((older, newer))
        elif _answer_alike(older, newer, near) and not _in_a_series(
            (older, newer), ALIKE * near, vectors
        ):
            alike.append((older, newer))
    return _newest(contradicted), _newest([*contradicted, *alike])


def _nearness(notes: Sequence[Dated], readings: Sequence[Reading]) -> Scores:
    """The cosines of notes with one another, 0 below `NEAR`; without vectors, their likeness."""
    known = [note.vector for note in notes if note.vector is not None]
    if len(known) == len(notes):
        matrix = np.stack(known)
        nearness = matrix @ matrix.T
        nearness[nearness < NEAR] = 0
    else:
        likenesses = [[likeness(one.words, each.words) for each in readings] for one in readings]
        nearness = np.array(likenesses, np.float32)
    np.fill_diagonal(nearness, 0)
    return nearness


def _answer_alike(one: Dated, other: Dated, cosine: float) -> bool:
    """Whether both answer the question, and it does not tell them apart."""
    if one.vector is None or other.vector is None or cosine < max(one.meaning, other.meaning):
        return False
    return min(one.score, other.score) >= _AS_GOOD * max(one.score, other.score)


def _in_a_series(pair: _Pair, least: float, vectors: Snapshot | None) -> bool:
    """Whether so many notes are as near to one of the two that neither replaces the other."""
    most = OTHERS + 1
    return vectors is not None and any(
        len(vectors.nearest(note.vector[None], most + 1, least).ids) > most
        for note in pair
        if note.vector is not None
    )


def _newest(pairs: Iterable[_Pair]) -> dict[str, str]:
    """Of each older note of these pairs, the newest that stands for it."""
    newest = {
        older.note_id: newer.note_id
        for older, newer in sorted(pairs, key=lambda pair: pair[1].updated_at)
    }
    for older_id, newer_id in newest.items():
        while newer_id in newest:
            newer_id = newest[newer_id]
        newest[older_id] = newer_id
    return newest


def newest_first(
    note_ids: Sequence[str], scores: Sequence[float], newest: Mapping[str, str]
) -> list[tuple[int, float]]:
    """The places of these results in a new order, each with its score: a note has the best score of
    those that it is the `newest` of, and stands before them."""
    best = defaultdict[str, float](float)
    for note_id, score in zip(note_ids, scores, strict=True):
        best[newest.get(note_id, note_id)] = max(best[newest.get(note_id, note_id)], score)
    raised = [
        best[note_id] if note_id and note_id not in newest else score
        for note_id, score in zip(note_ids, scores, strict=True)
    ]
    return sorted(enumerate(raised), key=lambda each: (-each[1], note_ids[each[0]] in newest))
