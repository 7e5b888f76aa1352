"""The embedder as memory uses it: optional, and not trusted to answer correctly or in time."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from opentelemetry import metrics
from wire.errors import Code

from guest.embedding.backends import Embedded, Embedder
from guest.errors import EmbedderError

log = logging.getLogger(__name__)

_GRACE_S: Final = 0.2
"""How long after its timeout an embedder is still waited for."""


class Vectorizer:
    """Turns texts into vectors, or raises `EmbedderError` in time, whatever happens.

    `model_id` is the model that answered last; empty before the first answer. `on_answer` is called
    after every answer, so that waiting work learns that the embedder is back, or that its model has
    changed. The metric `oxydra.embedding.failures` counts every failure by its code.
    """

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self.model_id = ""
        self.on_answer: Callable[[], None] = lambda: None
        meter = metrics.get_meter("oxydra.memory")
        self._failures = meter.create_counter("oxydra.embedding.failures")

    async def embed(self, texts: Sequence[str], timeout: float) -> Embedded:
        if self._embedder is None:
            raise EmbedderError(Code.FAILED_PRECONDITION, "no embedder is configured")
        try:
            answer = await self._ask(self._embedder, texts, timeout)
        except EmbedderError as error:
            self._failures.add(1, {"code": error.code.value})
            raise
        self.model_id = answer.model_id
        self.on_answer()
        return answer

    async def _ask(self, embedder: Embedder, texts: Sequence[str], timeout: float) -> Embedded:
        try:
            async with asyncio.timeout(timeout + _GRACE_S):
                answer = await embedder.embed(texts, timeout=timeout)
        except EmbedderError:
            raise
        except TimeoutError:
            raise EmbedderError(Code.TIMEOUT, "the embedder did not answer in time") from None
        except Exception as error:
            log.exception("the embedder failed")
            raise EmbedderError(Code.INTERNAL, "the embedder failed", details=str(error)) from error
        _check(answer, len(texts))
        return answer

    async def state(self) -> str:
        """ "ready", "loading", or one sentence that says why there are no vectors."""
        return await self._embedder.state() if self._embedder else "no embedder is configured"


def _check(answer: Embedded, texts: int) -> None:
    vectors = answer.vectors
    if vectors.ndim != 2 or len(vectors) != texts or not np.isfinite(vectors).all():
        raise EmbedderError(
            Code.INTERNAL,
            "the embedder gave a malformed answer",
            details=f"an array of shape {vectors.shape} for {texts} texts, "
            f"{np.isfinite(vectors).mean():.0%} of it finite",
        )
