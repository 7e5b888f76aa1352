"""Ranks passages by keyword evidence, vector evidence and recency."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory.indexing.vectors import Ids, Nearest, Scores, Snapshot
from guest.memory.models import MatchedBy, now
from guest.memory.search.keyword import MATCHES_MAX, KeywordMatches

HALF_LIFE_DAYS: Final = 90.0
"""The age at which half of the recency bonus is gone."""


class Recency:
    """Lowers the score of old entries by up to the share `weight`.

    Recency therefore never puts an entry before one that scores more than `1 / (1 - weight)` times
    as much; with a weight of 1 it can put any before any. Age counts in whole days, so that results
    are the same all day long. A future date (the clock was set back) counts as today.
    """

    def __init__(self, weight: float, today: datetime) -> None:
        if not 0 <= weight <= 1:
            raise ValueError(f"recency_weight: {weight} is not from 0 to 1")
        self._weight = weight
        self._today = today

    @classmethod
    def of_now(cls, weight: float) -> "Recency":
        return cls(weight, datetime.fromisoformat(now()))

    def adjusted(self, score: float, written_at: str) -> float:
        """`score` for something last written at an RFC 3339 time."""
        if not self._weight:
            return score
        try:
            age = self._today.toordinal() - datetime.fromisoformat(written_at).toordinal()
        except (ValueError, TypeError):  # another program has written it
            return score
        newness = math.exp2(-max(0, age) / HALF_LIFE_DAYS)
        return score * (1 - self._weight * (1 - newness))


NO_IDS: Final = np.zeros(0, np.int64)
NO_RECENCY: Final = Recency(0.0, datetime.max.replace(tzinfo=UTC))

SEMANTIC_MAX: Final = 256
"""The most passages that become candidates by their vectors."""

_SHARPNESS: Final = 1.5
"""The power of either kind of evidence as a share of the highest. Unrelated texts have a third of
the highest cosine, which must not count as a third of the meaning."""

_LENT_WORDS: Final = 0.4
_LENDERS: Final = 2
"""A word counts so much for each neighbour that holds it, up to so many, where a passage's own
counts 1."""

_SATURATION: Final = 1.2
"""How fast more of a word counts less, as in bm25."""

_LENT_MEANING: Final = 0.3
"""How far a cosine rises to the highest of the neighbours'."""

_SPREADING: Final = 64
"""How many of the best passages are looked up with what is beside them."""

_ABOVE_ZERO: Final = 1e-30
"""Where the highest value is 0, so are all shares of it."""

_AT_ONCE: Final = 64
"""How many ranked passages are made of arrays at once: few are asked for."""


@dataclass(frozen=True)
class Similarity:
    """How similar the passages of a namespace are to the query, which has one or more vectors.

    `nearest` are the most similar of those that may be found, one more than `SEMANTIC_MAX` if there
    are so many. `missing` passages have no vector of the query's model.
    """

    vectors: Snapshot
    queries: Vectors
    nearest: Nearest
    missing: int = 0

    @classmethod
    def measured(
        cls,
        vectors: Snapshot,
        queries: Vectors,
        least: float,
        only: Ids | None = None,
        missing: int = 0,
    ) -> "Similarity":
        """The similarity of all passages, or of those in `only`, whose cosine is at least
        `least`."""
        nearest = vectors.nearest(queries, SEMANTIC_MAX + 1, least, only)
        return cls(vectors, queries, nearest, missing)

    def cosines_of(self, chunk_ids: Ids) -> Scores:
        """The cosine of any passages; 0 for those without a vector."""
        return self.vectors.cosines_of(chunk_ids, self.queries)


@dataclass(frozen=True)
class Weights:
    """The weights of both kinds of evidence; their sum need not be 1.

    A passage with a cosine below `min_similarity` needs a matching word.
    """

    semantic: float
    keyword: float
    min_similarity: float

    def __post_init__(self) -> None:
        if min(self.semantic, self.keyword) < 0 or self.semantic + self.keyword <= 0:
            raise ValueError(
                "vector_weight and keyword_weight: neither may be negative, nor both zero"
            )


@dataclass
class Evidence:
    """The evidence for one namespace, limited to the passages in `only` if given.

    `exact` are the passages that alone hold a reference of the query (`keyword.references`).
    `beside` are pairs of neighbours.
    """

    keyword: KeywordMatches
    similarity: Similarity | None
    only: Ids | None = None
    exact: Collection[int] = ()
    beside: tuple[Ids, Ids] = (NO_IDS, NO_IDS)

    @cached_property
    def own(self) -> tuple[Ids, Scores, Scores]:
        """All passages with a matching word, and the most similar of the others, by ascending id;
        the words that each holds, and its cosine."""
        found = self.keyword
        nearest = NO_IDS if self.similarity is None else self.similarity.nearest.ids
        ids = self._allowed(np.union1d(found.ids, nearest[:SEMANTIC_MAX]))
        held = np.zeros((len(found.held), len(ids)), np.float32)
        matching = np.isin(ids, found.ids, assume_unique=True)
        held[:, matching] = found.held[:, np.searchsorted(found.ids, ids[matching])]
        return ids, held, self._cosines_of(ids)

    def with_neighbours(self) -> tuple[Ids, Scores, Scores]:
        """The same, and what is beside the best of them."""
        ids, held, cosine = self.own
        others = self._allowed(np.setdiff1d(np.concatenate(self.beside), ids))
        places = np.searchsorted(ids, others)
        return (
            np.insert(ids, places, others),
            np.insert(held, places, 0, axis=1),
            np.insert(cosine, places, self._cosines_of(others)),
        )

    def _allowed(self, ids: Ids) -> Ids:
        return ids if self.only is None else ids[np.isin(ids, self.only)]

    def _cosines_of(self, ids: Ids) -> Scores:
        if self.similarity is None:
            return np.zeros(len(ids), np.float32)
        return np.maximum(self.similarity.cosines_of(ids), 0)


class Ranked(NamedTuple):
    """A ranked passage. `part` is the index of its evidence; `meaning` and `words` are as in
    `Hit`; `exact` as in its evidence."""

    part: int
    chunk_id: int
    score: float
    matched_by: MatchedBy
    meaning: float = 0.0
    words: float = 0.0
    exact: bool = False


@dataclass(frozen=True)
class _Candidates:
    """The passages of a part with evidence. `words` and `nearness` regard what is beside them, too;
    `cosine` is their own."""

    ids: Ids
    words: Scores
    cosine: Scores
    nearness: Scores


def rank(parts: Sequence[Evidence], weights: Weights) -> Iterator[Ranked]:
    """Rank the candidates of all parts, best first; scores lie in [0, 1].

    Words and cosines are each divided by their highest value and added by weight; every candidate
    has its true value of both. Words are compared within a part, cosines within a part and the
    parts before it: a question asked earlier is most similar to itself, and must not make the notes
    that answer it look unrelated. What is `exact` comes before all else. Ties go to the earlier
    part, then to the newer passage.
    """
    candidates = [_candidates(part, weights.min_similarity) for part in parts]
    semantic, keyword = _shares(parts, weights)
    words = np.concatenate([_shares_of_best([c.words]) for c in candidates])
    nearness = _shares_of_best([c.nearness for c in candidates])
    scores = keyword * words**_SHARPNESS + semantic * nearness**_SHARPNESS
    ids = np.concatenate([c.ids for c in candidates])
    place = np.repeat(np.arange(len(parts)), [len(c.ids) for c in candidates])
    cosine = np.concatenate([c.cosine for c in candidates])
    by_keyword = words > 0
    by_meaning = (cosine >= weights.min_similarity) & (cosine > 0)
    exact = np.isin(ids, [chunk_id for part in parts for chunk_id in part.exact])
    if exact.any():
        scores = (scores + exact) / 2
    order = np.lexsort((-ids, place, -scores))
    for start in range(0, len(order), _AT_ONCE):
        best = order[start : start + _AT_ONCE]
        columns = (place, ids, scores, cosine, words, by_keyword, by_meaning, exact)
        for part, chunk_id, score, meaning, share, has_words, is_near, is_exact in zip(
            *(column[best].tolist() for column in columns), strict=True
        ):
            yield Ranked(
                part=part,
                chunk_id=chunk_id,
                score=min(1.0, score),
                matched_by=_matched_by(has_words, is_near),
                meaning=min(1.0, meaning),
                words=share,
                exact=is_exact,
            )


def lenders(part: Evidence, weights: Weights) -> Ids:
    """The passages of a part whose neighbours count: the best by their own evidence."""
    ids, held, cosine = part.own
    semantic, keyword = _shares([part], weights)
    words = part.keyword.rarity @ held
    words, nearness = _shares_of_best([words]), _shares_of_best([cosine])
    scores = keyword * words**_SHARPNESS + semantic * nearness**_SHARPNESS
    return ids[np.argsort(-scores, kind="stable")[:_SPREADING]]


def crowded(part: Evidence) -> bool:
    """Whether there are so many matching passages that some may not be candidates."""
    if len(part.keyword.ids) >= MATCHES_MAX:
        return True
    return part.similarity is not None and len(part.similarity.nearest.ids) > SEMANTIC_MAX


def _candidates(part: Evidence, least: float) -> _Candidates:
    ids, words, cosine = part.with_neighbours()
    beside, nearness = np.zeros_like(words), cosine.copy()
    there = np.isin(part.beside, ids).all(axis=0)
    one, other = np.searchsorted(ids, np.array(part.beside)[:, there])
    for own, lender in ((one, other), (other, one)):
        np.add.at(beside.T, own, words.T[lender])
        np.maximum.at(nearness, own, cosine[lender])
    nearness = cosine + _LENT_MEANING * (nearness - cosine)
    words += _LENT_WORDS * np.minimum(beside, _LENDERS)
    shares = part.keyword.rarity @ (words * (1 + _SATURATION) / (words + _SATURATION))
    kept = (shares > 0) | ((nearness >= least) & (nearness > 0))
    return _Candidates(ids[kept], shares[kept], cosine[kept], nearness[kept])


def _shares(parts: Sequence[Evidence], weights: Weights) -> tuple[float, float]:
    """The weights, scaled to a sum of 1; without vectors, keywords count fully."""
    if not any(p.similarity is not None and len(p.similarity.vectors.ids) for p in parts):
        return 0.0, 1.0
    total = weights.semantic + weights.keyword
    return weights.semantic / total, weights.keyword / total


def _shares_of_best(parts: Sequence[Scores]) -> Scores:
    """Each value as a share of the highest in its part and those before it."""
    best = np.maximum.accumulate([values.max(initial=0) for values in parts])
    shares = [v / max(float(most), _ABOVE_ZERO) for v, most in zip(parts, best, strict=True)]
    return np.concatenate(shares)


def _matched_by(keyword: bool, meaning: bool) -> MatchedBy:
    if keyword and meaning:
        return "both"
    return "keyword" if keyword else "semantic"
