"""The surroundings of a passage, which tell more about it than its own few words.

An answer often repeats nothing of the question that stands in the turn before it, a session that
matches in several places is likely to be the one that is meant, and the shortest turns say least.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from guest.memory.search.ranking import Evidence, Ranked

PRECEDING: Final = 2
"""How many turns or notes before a passage are compared with the query."""

_PRECEDING_SHARE: Final = 0.25
_SESSION_SHARE: Final = 0.3
"""How far a passage rises to the best of its session."""

_FULL_BYTES: Final = 120
_BREVITY: Final = 0.2
"""A turn below `_FULL_BYTES` counts by the share of them that it has, to this power."""

_NOTHING: Final = 0.1
"""What has less than this share of the best of its session by itself does not rise with it."""

_NOT_THE_USERS: Final = 0.95
"""What the user did not say counts a little less."""


class NeighbourTerms(NamedTuple):
    """Where a passage stands. `session` is empty for what has no neighbours; `preceding` are the
    passages just before it; `worth` is at most 1."""

    session: str = ""
    preceding: tuple[int, ...] = ()
    worth: float = 1.0


def worth_of_turn(text: str, *, by_user: bool) -> float:
    """What a turn counts: less if it is short, or not what the user said. A note counts fully: it
    was written to stand for itself."""
    size = len(text.encode(errors="replace"))
    share: float = min(1.0, size / _FULL_BYTES) ** _BREVITY
    return share if by_user else _NOT_THE_USERS * share


def weighed(
    passages: Sequence[Ranked], around: Sequence[NeighbourTerms], evidence: Sequence[Evidence]
) -> list[float]:
    """The scores of `passages` with regard to what is around each of them; in [0, 1].

    The highest of each part stays the same, so that notes and conversations still compare.
    """
    preceding = _preceding(passages, around, evidence)
    scores = []
    for passage, place, cosine in zip(passages, around, preceding, strict=True):
        score = passage.score
        if cosine is not None:
            nearness = min(1.0, max(0.0, cosine) / passage.nearest)
            score += _PRECEDING_SHARE * (nearness - score)
        scores.append(score * place.worth)
    scores = _with_sessions(passages, around, scores)
    before, after = _highest(passages, [p.score for p in passages]), _highest(passages, scores)
    return [
        min(1.0, score * before[passage.part] / after[passage.part]) if score else 0.0
        for passage, score in zip(passages, scores, strict=True)
    ]


def _highest(passages: Sequence[Ranked], scores: Sequence[float]) -> dict[int, float]:
    """The highest score of each part."""
    highest: dict[int, float] = defaultdict(float)
    for passage, score in zip(passages, scores, strict=True):
        highest[passage.part] = max(highest[passage.part], score)
    return highest


def _preceding(
    passages: Sequence[Ranked], around: Sequence[NeighbourTerms], evidence: Sequence[Evidence]
) -> list[float | None]:
    """The mean cosine of what precedes each passage; None where there is nothing to compare."""
    means: list[float | None] = [None] * len(passages)
    for part, each in enumerate(evidence):
        places = [
            place
            for place, passage in enumerate(passages)
            if passage.part == part and passage.nearest > 0 and around[place].preceding
        ]
        if not places or each.similarity is None:
            continue
        sizes = [len(around[place].preceding) for place in places]
        ids = np.array([i for place in places for i in around[place].preceding], np.int64)
        sums = np.add.reduceat(each.similarity.cosines_of(ids), np.cumsum([0, *sizes[:-1]]))
        for place, mean in zip(places, sums / sizes, strict=True):
            means[place] = float(mean)
    return means


def _with_sessions(
    passages: Sequence[Ranked], around: Sequence[NeighbourTerms], scores: Sequence[float]
) -> list[float]:
    """Raises what stands in a session that matches better elsewhere."""
    sessions = [
        (passage.part, place.session) for passage, place in zip(passages, around, strict=True)
    ]
    best: dict[tuple[int, str], float] = defaultdict(float)
    for session, score in zip(sessions, scores, strict=True):
        best[session] = max(best[session], score)
    return [
        score + _SESSION_SHARE * (best[session] - score)
        if session[1] and score > _NOTHING * best[session]
        else score
        for session, score in zip(sessions, scores, strict=True)
    ]
