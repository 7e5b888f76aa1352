"""What a passage counts for where it stands: by its length, its source and its session.

A session that matches in several places is likely to be the one that is meant, and the shortest
turns say least.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from guest.memory.search.ranking import Ranked

_SESSION_SHARE: Final = 0.3
"""How far a passage rises to the best of its session."""

_FULL_BYTES: Final = 120
_BREVITY: Final = 0.3
"""A turn below `_FULL_BYTES` counts by the share of them that it has, to this power."""

_SPOKEN: Final = 0.9
"""What was said in passing counts less than what was saved."""


class Standing(NamedTuple):
    """Where a passage stands. `session` is empty for what is alone; `worth` is at most 1."""

    session: str = ""
    worth: float = 1.0


def worth_of_turn(text: str) -> float:
    """What a turn counts. A note counts fully: it was written to stand for itself."""
    size = len(text.encode(errors="replace"))
    share: float = min(1.0, size / _FULL_BYTES) ** _BREVITY
    return _SPOKEN * share


def weighed(passages: Sequence[Ranked], standings: Sequence[Standing]) -> list[float]:
    """The scores of passages with regard to where each of them stands; in [0, 1].

    What is exact is worth as much wherever it stands.
    """
    worth = [
        passage.score * (1.0 if passage.exact else each.worth)
        for passage, each in zip(passages, standings, strict=True)
    ]
    best: dict[str, float] = defaultdict(float)
    for score, each in zip(worth, standings, strict=True):
        best[each.session] = max(best[each.session], score)
    return [
        score + _SESSION_SHARE * (best[each.session] - score) if each.session else score
        for score, each in zip(worth, standings, strict=True)
    ]
