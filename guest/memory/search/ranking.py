"""From two kinds of evidence, and how recent it is, to one order."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from guest.memory.models import MatchedBy, now
from guest.memory.search.keyword import MATCHES_MAX, KeywordMatches
from guest.memory.search.vectors import Ids, Scores, Snapshot

HALF_LIFE_DAYS: Final = 90.0
"""The age at which half of what newness counts is gone."""


class Recency:
    """Takes up to a share `weight` off the score of what is old, and nothing off what is new.

    So it never puts anything before what scores more than `1 / (1 - weight)` times
    as much. Age counts in whole days, so that a search gives the same all day long. A
    date in the future, after the clock was set back, counts as today.
    """

    def __init__(self, weight: float, today: datetime) -> None:
        if not 0 <= weight < 1:
            raise ValueError(f"recency_weight: {weight} is not from 0 to below 1")
        self._weight = weight
        self._today = today

    @classmethod
    def of_now(cls, weight: float) -> "Recency":
        return cls(weight, datetime.fromisoformat(now()))

    def adjusted(self, score: float, written_at: str) -> float:
        """`score` for something last written at an RFC 3339 moment."""
        if not self._weight:
            return score
        age = self._today.toordinal() - datetime.fromisoformat(written_at).toordinal()
        newness = math.exp2(-max(0, age) / HALF_LIFE_DAYS)
        return score * (1 - self._weight * (1 - newness))


NO_RECENCY: Final = Recency(0.0, datetime.max.replace(tzinfo=UTC))

SEMANTIC_MAX: Final = 256
"""How many passages at most become candidates by their vectors alone."""

_TELLING: Final = 0.6
"""The share of what its words could yield at most from which on the best match by
words counts fully. Of a question in other words than the answer's, only the least
telling words match, and their best match is none."""


@dataclass(frozen=True)
class Similarity:
    """Every vector of a namespace and its cosine with the query.

    `missing` passages have no vector of the query's model.
    """

    vectors: Snapshot
    cosines: Scores
    missing: int = 0

    @property
    def passages(self) -> int:
        return self.vectors.live + self.missing


@dataclass(frozen=True)
class Weights:
    """What the two kinds of evidence count; need not add up to 1.

    A passage whose cosine is below `min_similarity` needs a matching word.
    """

    semantic: float
    keyword: float
    min_similarity: float

    def __post_init__(self) -> None:
        if min(self.semantic, self.keyword) < 0 or self.semantic + self.keyword <= 0:
            raise ValueError(
                "vector_weight and keyword_weight: neither may be negative, nor both zero"
            )


@dataclass(frozen=True)
class Evidence:
    """What is known about one namespace; `only`, if given, limits it to those passages.

    `terms` is how many words were looked for.
    """

    keyword: KeywordMatches
    similarity: Similarity | None
    only: Ids | None = None
    terms: int = 0

    @property
    def full_bm25(self) -> float:
        """From what bm25 on words count fully, beside vectors.

        A word that only one passage holds, once, adds about the logarithm of how
        many passages there are.
        """
        passages = 0 if self.similarity is None else self.similarity.passages
        return _TELLING * self.terms * math.log(max(1.0, (passages - 0.5) / 1.5))


@dataclass(frozen=True)
class Ranked:
    """A passage in its place. `part` is the index of its evidence."""

    part: int
    chunk_id: int
    score: float
    matched_by: MatchedBy


@dataclass(frozen=True)
class _Candidates:
    ids: Ids
    bm25: Scores
    cosine: Scores


def rank(parts: Sequence[Evidence], weights: Weights) -> Iterator[Ranked]:
    """All candidates of all parts, best first; scores lie in [0, 1].

    bm25 and cosine are each divided by their highest value and added by weight,
    with the true value of both for every candidate of either. bm25 is compared
    within a part and divided by at least `full_bm25`; cosines within a part and those
    before it: a question that was asked before is the nearest thing to itself, and must
    not make the notes that answer it look far away. Ties go to the earlier part, then to
    the newer passage.
    """
    candidates = [_candidates(part, weights.min_similarity) for part in parts]
    semantic, keyword = _shares(parts, weights)
    best_cosines = np.maximum.accumulate([float(c.cosine.max(initial=0)) for c in candidates])
    scores = np.concatenate(
        [
            keyword * _share_of(c.bm25, max(part.full_bm25, float(c.bm25.max(initial=0))))
            + semantic * _share_of(c.cosine, best)
            for part, c, best in zip(parts, candidates, best_cosines, strict=True)
        ]
    )
    ids = np.concatenate([c.ids for c in candidates])
    place = np.repeat(np.arange(len(parts)), [len(c.ids) for c in candidates])
    by_keyword = np.concatenate([c.bm25 for c in candidates]) > 0
    cosine = np.concatenate([c.cosine for c in candidates])
    by_meaning = (cosine >= weights.min_similarity) & (cosine > 0)
    for i in np.lexsort((-ids, place, -scores)):
        yield Ranked(
            part=int(place[i]),
            chunk_id=int(ids[i]),
            score=min(1.0, float(scores[i])),
            matched_by=_matched_by(bool(by_keyword[i]), bool(by_meaning[i])),
        )


def crowded(part: Evidence, weights: Weights) -> bool:
    """Whether passages that match may be no candidates, because there are too many."""
    if len(part.keyword.ids) >= MATCHES_MAX:
        return True
    if part.similarity is None:
        return False
    return int(np.count_nonzero(part.similarity.cosines >= weights.min_similarity)) > SEMANTIC_MAX


def _candidates(part: Evidence, min_similarity: float) -> _Candidates:
    """All passages with a matching word, and the nearest of the others."""
    found, bm25 = part.keyword.ids, part.keyword.scores
    if part.only is not None:
        kept = np.isin(found, part.only)
        found, bm25 = found[kept], bm25[kept]
    if part.similarity is None:
        return _Candidates(found, bm25, np.zeros(len(found), np.float32))
    ids, cosines = part.similarity.vectors.ids, part.similarity.cosines
    rows = part.similarity.vectors.rows_of(found)
    known = rows >= 0
    cosine = np.where(known, cosines[rows], 0) if len(cosines) else np.zeros(len(rows))
    others = (cosines >= min_similarity) & (cosines > 0)
    others[rows[known]] = False
    near = np.flatnonzero(others)
    if part.only is not None:
        near = near[np.isin(ids[near], part.only)]
    if len(near) > SEMANTIC_MAX:
        near = near[np.argpartition(-cosines[near], SEMANTIC_MAX)[:SEMANTIC_MAX]]
    return _Candidates(
        ids=np.concatenate((found, ids[near])),
        bm25=np.concatenate((bm25, np.zeros(len(near), np.float32))),
        cosine=np.maximum(np.concatenate((cosine, cosines[near])), 0, dtype=np.float32),
    )


def _shares(parts: Sequence[Evidence], weights: Weights) -> tuple[float, float]:
    """The weights so that they add up to 1; without any vector, words count fully."""
    if not any(p.similarity is not None and len(p.similarity.cosines) for p in parts):
        return 0.0, 1.0
    total = weights.semantic + weights.keyword
    return weights.semantic / total, weights.keyword / total


def _share_of(values: Scores, highest: float) -> npt.NDArray[np.float32]:
    return values / np.float32(highest) if highest > 0 else np.zeros_like(values)


def _matched_by(keyword: bool, meaning: bool) -> MatchedBy:
    if keyword and meaning:
        return "both"
    return "keyword" if keyword else "semantic"
