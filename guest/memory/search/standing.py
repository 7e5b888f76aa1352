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

_ASKING: Final = 0.8
_QUESTION_MARKS: Final = ("?", "？", "؟")
"""What asks counts less than what answers, but raises its session as much."""


class Standing(NamedTuple):
    """Where a passage stands. `session` is empty for what is alone; `worth` is at most 1; `asks`
    where it ends with a question."""

    session: str = ""
    worth: float = 1.0
    asks: bool = False


def of_note(text: str, session: str) -> Standing:
    """Notes count fully: they were written to stand for themselves."""
    return Standing(session, 1.0, _asks(text))


def of_turn(text: str, session: str) -> Standing:
    size = len(text.encode(errors="replace"))
    share: float = min(1.0, size / _FULL_BYTES) ** _BREVITY
    return Standing(session, _SPOKEN * share, _asks(text))


def _asks(text: str) -> bool:
    return text.rstrip().endswith(_QUESTION_MARKS)


def weighed(passages: Sequence[Ranked], standings: Sequence[Standing]) -> list[float]:
    """The scores of passages with regard to where each of them stands; in [0, 1].

    What is exact is worth as much wherever it stands.
    """
    best: dict[str, float] = defaultdict(float)
    own = []
    for passage, each in zip(passages, standings, strict=True):
        score = passage.score * (1.0 if passage.exact else each.worth)
        best[each.session] = max(best[each.session], score)
        own.append(score * _ASKING if each.asks and not passage.exact else score)
    return [
        score + _SESSION_SHARE * (best[each.session] - score) if each.session else score
        for score, each in zip(own, standings, strict=True)
    ]
