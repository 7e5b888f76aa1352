"""Which of many notes say nearly the same: by their vectors, or else by their words.

Plain computation without a database; run in a thread, it leaves the others their turn
every few milliseconds.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from guest.embedding.base import Vectors
from guest.memory.contradiction import content_words, likeness
from guest.memory.vectors import Ids, Scores

NEAR_COSINE: Final = 0.85
NEAR_WORDS: Final = 0.8
COMPARISONS_MAX: Final = 1_000_000
"""How many notes are compared by words with another one; a few seconds."""

_ROUNDING: Final = 1e-9
_BLOCK: Final = 128
"""Passages compared at once with all others: a product takes a few milliseconds."""


@dataclass(frozen=True)
class Pair:
    """Two notes, each by its number, the lower one first. `similarity` is their cosine,
    or the share of words they have in common."""

    first: int
    second: int
    similarity: float


def by_vectors(matrix: Vectors, notes: Ids, scopes: Ids, limit: int) -> list[Pair]:
    """The `limit` nearest pairs of notes; two notes are as near as their nearest passages.

    Each row of `matrix` is a passage of the note with the number in `notes`. Only notes
    of the same scope are compared.
    """
    count = int(notes.max(initial=-1)) + 1
    pairs, nearest = np.zeros(0, np.int64), np.zeros(0, np.float32)
    enough = np.nextafter(np.float32(NEAR_COSINE), np.float32(0))
    for start in range(0, len(matrix), _BLOCK):
        block, rest = slice(start, start + _BLOCK), slice(start, None)
        cosines = matrix[block] @ matrix[rest].T
        rows, columns = np.nonzero(cosines > enough)
        one, other = notes[block][rows], notes[rest][columns]
        kept = (one != other) & (scopes[block][rows] == scopes[rest][columns])
        found = np.minimum(one, other)[kept] * count + np.maximum(one, other)[kept]
        pairs, nearest = _best(
            np.concatenate((pairs, found)),
            np.concatenate((nearest, cosines[rows, columns][kept])),
            limit,
        )
        if len(pairs) == limit:
            enough = nearest[-1]
    return [
        Pair(int(pair) // count, int(pair) % count, min(1.0, float(cosine)))
        for pair, cosine in zip(pairs, nearest, strict=True)
    ]


def by_words(texts: Sequence[str], scopes: Sequence[int], limit: int) -> tuple[list[Pair], bool]:
    """The `limit` pairs of texts with most words in common, and whether all were compared."""
    words = [content_words(text) for text in texts]
    candidates = _sharing(words, scopes)
    pairs: list[Pair] = []
    for comparisons, (first, second) in enumerate(candidates):
        if comparisons == COMPARISONS_MAX:
            return _most_alike(pairs, limit), False
        share = likeness(words[first], words[second])
        if share >= NEAR_WORDS:
            pairs.append(Pair(first, second, share))
    return _most_alike(pairs, limit), True


def _best(pairs: Ids, cosines: Scores, limit: int) -> tuple[Ids, Scores]:
    """The nearest, each pair once; of pairs as near as each other the newest notes'."""
    order = np.lexsort((-pairs, -cosines))
    _, first = np.unique(pairs[order], return_index=True)
    best = order[np.sort(first)][:limit]
    return pairs[best], cosines[best]


def _sharing(words: Sequence[frozenset[str]], scopes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of one scope that may be alike enough, each once.

    Of two sets that have so many words in common, some of the rarest words of the one
    are among the rarest of the other; only those are looked up.
    """
    common = Counter(word for some in words for word in some)
    having: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i, own in enumerate(words):
        rarest = sorted(own, key=lambda word: (common[word], word))
        shared = math.ceil(NEAR_WORDS * len(own) - _ROUNDING)
        telling = rarest[: len(own) - shared + 1]
        places = [having[scopes[i], word] for word in telling]
        for earlier in sorted({j for place in places for j in place}):
            yield earlier, i
        for place in places:
            place.append(i)


def _most_alike(pairs: Sequence[Pair], limit: int) -> list[Pair]:
    return heapq.nlargest(limit, pairs, key=lambda pair: (pair.similarity, pair.second))
