"""Ranks passages by keyword evidence, vector evidence and recency."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from guest.embedding.backends import Vectors
from guest.memory.indexing.vectors import Ids, Scores, Snapshot
from guest.memory.models import MatchedBy, now
from guest.memory.search.keyword import MATCHES_MAX, KeywordMatches

HALF_LIFE_DAYS: Final = 90.0
"""The age at which half of the recency bonus is gone."""


PROJECT_BONUS: Final = 0.3
"""What a note of the project at hand has more of its score."""


class Recency:
    """Lowers the score of old entries by up to the share `weight`, and raises that of notes with
    the tag `preferred`, if there is one, by `PROJECT_BONUS`.

    Recency therefore never puts an entry before one that scores more than `1 / (1 - weight)` times
    as much; with a weight of 1 it can put any before any. Age counts in whole days, so that results
    are the same all day long. A future date (the clock was set back) counts as today.
    """

    def __init__(self, weight: float, today: datetime, preferred: str = "") -> None:
        self._weight = weight
        self._preferred = preferred
        self._today = today

    @classmethod
    def of_now(cls, weight: float, preferred: str = "") -> "Recency":
        return cls(weight, datetime.fromisoformat(now()), preferred)

    def adjusted(self, score: float, written_at: str, tags: Collection[str] = ()) -> float:
        """`score` for something with these `tags`, last written at an RFC 3339 time."""
        if self._preferred and self._preferred in tags:
            score *= 1 + PROJECT_BONUS
        if not self._weight:
            return score
        age = self._today.toordinal() - datetime.fromisoformat(written_at).toordinal()
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
"""What a word counts that a neighbour holds, where a passage's own counts 1."""

_SATURATION: Final = 1.2
"""How fast more of a word counts less, as in bm25."""

_LENT_MEANING: Final = 0.3
"""How far a cosine rises to the highest of the neighbours'."""

LOOKED_AT: Final = 48
"""How many of the best passages are looked up with what is beside them, then with their notes."""

_ABOVE_ZERO: Final = 1e-30
"""Where the highest value is 0, so are all shares of it."""


class Similarity:
    """How similar the passages of a namespace are to the query, which has one or more vectors.

    `nearest` are the most similar of those that may be found, whose cosine is at least `least`: one
    more than `SEMANTIC_MAX` if there are so many. `missing` passages have no vector of the query's
    model.
    """

    def __init__(
        self,
        vectors: Snapshot,
        queries: Vectors,
        least: float,
        only: Ids | None = None,
        missing: int = 0,
    ) -> None:
        self.vectors = vectors
        self.missing = missing
        self.nearest = vectors.nearest(queries, SEMANTIC_MAX + 1, least, only)
        self._queries = queries

    def cosines_of(self, chunk_ids: Ids) -> Scores:
        """The cosine of any passages; 0 for those without a vector."""
        return self.vectors.cosines_of(chunk_ids, self._queries)


@dataclass(frozen=True)
class Weights:
    """The weights of both kinds of evidence; their sum need not be 1.

    A passage with a cosine below `min_similarity` needs a matching word.
    """

    semantic: float
    keyword: float
    min_similarity: float


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
    def own(self) -> "_Candidates":
        """All passages with a matching word, and the most similar of the others, by their own
        evidence alone."""
        nearest = NO_IDS if self.similarity is None else self.similarity.nearest.ids
        ids = self.allowed(np.union1d(self.keyword.ids, nearest[:SEMANTIC_MAX]))
        held, cosine = self.of(ids)
        return _Candidates(ids, self.keyword.rarity @ held, cosine, cosine)

    def of(self, ids: Ids) -> tuple[Scores, Scores]:
        """The words that passages hold, a passage a column, and their cosines."""
        held = self.keyword.held_by(ids)
        if self.similarity is None:
            return held, np.zeros(len(ids), np.float32)
        return held, np.maximum(self.similarity.cosines_of(ids), 0)

    def allowed(self, ids: Ids) -> Ids:
        return ids if self.only is None else ids[np.isin(ids, self.only)]


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


class _Candidates(NamedTuple):
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
    scores, words = _scores(parts, candidates, weights)
    ids = np.concatenate([c.ids for c in candidates])
    place = np.repeat(np.arange(len(parts)), [len(c.ids) for c in candidates])
    cosine = np.concatenate([c.cosine for c in candidates])
    by_meaning = (cosine >= weights.min_similarity) & (cosine > 0)
    exact = np.isin(ids, [chunk_id for part in parts for chunk_id in part.exact])
    if exact.any():
        scores = np.asarray((scores + exact) / 2, np.float32)
    for i in np.lexsort((-ids, place, -scores)).tolist():
        yield Ranked(
            part=int(place[i]),
            chunk_id=int(ids[i]),
            score=min(1.0, float(scores[i])),
            matched_by=_matched_by(words[i] > 0, by_meaning[i]),
            meaning=min(1.0, float(cosine[i])),
            words=float(words[i]),
            exact=bool(exact[i]),
        )


def lenders(part: Evidence, weights: Weights) -> Ids:
    """The passages of a part whose neighbours count: the best by their own evidence."""
    scores, _ = _scores([part], [part.own], weights)
    return part.own.ids[np.argsort(-scores, kind="stable")[:LOOKED_AT]]


def crowded(part: Evidence) -> bool:
    """Whether there are so many matching passages that some may not be candidates."""
    if len(part.keyword.ids) >= MATCHES_MAX:
        return True
    return part.similarity is not None and len(part.similarity.nearest.ids) > SEMANTIC_MAX


def _candidates(part: Evidence, least: float) -> _Candidates:
    """The candidates of a part; what is beside them regards only those with neighbours."""
    own = part.own
    near = part.allowed(np.unique(np.concatenate(part.beside)))
    held, cosine = part.of(near)
    lent, nearness = np.zeros_like(held), cosine.copy()
    there = np.isin(part.beside, near).all(axis=0)
    one, other = np.searchsorted(near, np.array(part.beside)[:, there])
    for borrower, lender in ((one, other), (other, one)):
        word, which = np.nonzero(held[:, lender])
        lent[word, borrower[which]] = _LENT_WORDS
        np.maximum.at(nearness, borrower, cosine[lender])
    nearness = cosine + _LENT_MEANING * (nearness - cosine)
    held += lent
    words = part.keyword.rarity @ (held * (1 + _SATURATION) / (held + _SATURATION))
    alone = ~np.isin(own.ids, near, assume_unique=True)
    ids = np.concatenate((near, own.ids[alone]))
    words = np.concatenate((words, own.words[alone]))
    cosine = np.concatenate((cosine, own.cosine[alone]))
    nearness = np.concatenate((nearness, own.nearness[alone]))
    kept = (words > 0) | ((nearness >= least) & (nearness > 0))
    return _Candidates(ids[kept], words[kept], cosine[kept], nearness[kept])


def _scores(
    parts: Sequence[Evidence], candidates: Sequence[_Candidates], weights: Weights
) -> tuple[Scores, Scores]:
    """The scores of all candidates, and the shares of words in them; without vectors, words count
    fully."""
    words = np.concatenate([_shares_of_best([c.words]) for c in candidates])
    if not any(p.similarity is not None and len(p.similarity.vectors.ids) for p in parts):
        return np.asarray(words**_SHARPNESS, np.float32), words
    nearness = _shares_of_best([c.nearness for c in candidates])
    keyword, meaning = weights.keyword, weights.semantic
    sums = keyword * words**_SHARPNESS + meaning * nearness**_SHARPNESS
    return np.asarray(sums / (keyword + meaning), np.float32), words


def _shares_of_best(parts: Sequence[Scores]) -> Scores:
    """Each value as a share of the highest in its part and those before it."""
    best = np.maximum.accumulate([values.max(initial=0) for values in parts])
    shares = [v / max(float(most), _ABOVE_ZERO) for v, most in zip(parts, best, strict=True)]
    return np.concatenate(shares)


def _matched_by(keyword: bool, meaning: bool) -> MatchedBy:
    if keyword and meaning:
        return "both"
    return "keyword" if keyword else "semantic"
