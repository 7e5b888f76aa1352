"""Puts the newest of the notes that may contradict each other before the older ones."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory.search.contradiction import NEAR, WORDS_OF_CHARS, judged

COMPARED: Final = 24
"""How many of the first notes are compared; takes about a millisecond."""
_ALL_DIFFER: Final = 2.0
"""No two notes are so similar that they are wanted for that."""


class Dated(NamedTuple):
    """A note, when it was last written, and the vector of its passage that fits best, if any."""

    note_id: str
    text: str
    updated_at: str
    vector: Vectors | None


def older_ones(notes: Sequence[Dated]) -> dict[str, str]:
    """The ids of notes that newer ones may contradict, each with that of the newest."""
    by_id = {note.note_id: note for note in notes}
    ids = [*by_id]
    vectors = [note.vector for note in by_id.values() if note.vector is not None]
    if len(vectors) == len(ids) > 1:
        matrix = np.stack(vectors)
        cosines = np.triu(matrix @ matrix.T, 1)
        near = [(i, j, float(cosines[i, j])) for i, j in np.argwhere(cosines >= NEAR).tolist()]
    else:
        near = [(i, j, 0.0) for j in range(len(ids)) for i in range(j)]
    pairs = [(ids[i], ids[j], cosine) for i, j, cosine in near]
    texts = {note_id: note.text[:WORDS_OF_CHARS] for note_id, note in by_id.items()}
    newest: dict[str, str] = {}
    for pair, _ in judged(pairs, texts, _ALL_DIFFER)[0]:
        older, newer = sorted((by_id[note_id] for note_id in pair[:2]), key=lambda n: n.updated_at)
        known = newest.get(older.note_id)
        if older.updated_at < newer.updated_at and (
            known is None or by_id[known].updated_at < newer.updated_at
        ):
            newest[older.note_id] = newer.note_id
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
