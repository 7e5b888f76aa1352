"""Reranking: the first results of a search in the order that a cross-encoder gives them."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from guest.errors import EmbedderError
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.models import Hit
from guest.memory.search.ranking import Recency

READ_AGAIN: Final = 30
"""How many results are read once more. On two cores, a small cross-encoder reads as many short
passages in about half a second."""

READY: Final = "ready"
_LOADING: Final = "loading"


class Reranking:
    """What the embedder says of its reranker, for one search.

    `state` is as in `Embedded.reranker`; `problem` is empty, or says why results that should have
    been reranked were not; `is_loading` where it is a matter of seconds. `until`, by the monotonic
    clock, is when the reranker must have answered.
    """

    def __init__(self, vectorizer: Vectorizer, state: str, until: float) -> None:
        self._vectorizer = vectorizer
        self._ready = state == READY
        self._until = until
        self.problem = "" if state in ("", READY) else _without(state)
        self.is_loading = state == _LOADING

    def needed(self, wanted: int) -> int:
        """How many results to find for `wanted` ones."""
        return max(wanted, READ_AGAIN) if self._ready else wanted

    async def reranked(self, query: str, hits: Sequence[Hit], recency: Recency) -> tuple[Hit, ...]:
        """`hits` in the order of the reranker, with its scores; as they are if it fails."""
        if not self._ready or len(hits) < 2:
            return tuple(hits)
        left = max(0.0, self._until - time.monotonic())
        try:
            scores = await self._vectorizer.rerank(query, [hit.text for hit in hits], left)
        except EmbedderError as error:
            self.problem = _without(error.brief)
            return tuple(hits)
        scored = [
            replace(hit, score=round(recency.adjusted(float(score), hit.updated_at), 4))
            for hit, score in zip(hits, scores, strict=True)
        ]
        return tuple(sorted(scored, key=lambda hit: -hit.score))


def _without(why: str) -> str:
    return f"the reranker is not used ({why}); these results are in the order of the search itself"
