"""Among passages that answer about equally well, the newer one first."""

import math
from datetime import UTC, datetime
from typing import Final

from guest.memory.instant import now

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
