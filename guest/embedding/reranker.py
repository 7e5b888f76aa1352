"""Reranks: a model that reads a query and a text together, and says how well one answers the other.

It is optional, costs far more than a comparison of vectors, and is asked about few texts only.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float32]
"""Shape (texts,), each from 0 to 1; the higher, the better."""


class Reranker(Protocol):
    """A loaded model. `score` blocks; it is called from one thread at a time."""

    def score(self, query: str, texts: Sequence[str]) -> Scores: ...


@runtime_checkable
class RerankingEmbedder(Protocol):
    """A source of vectors that can rerank too, if its answers say that its reranker is ready."""

    async def rerank(self, query: str, texts: Sequence[str], *, timeout: float) -> Scores:
        """How well each of `texts` (at most `EMBED_BATCH_MAX_TEXTS`) answers `query`.

        Raises `guest.errors.EmbedderError` within `timeout` seconds.
        """
        ...
