"""The embedder as memory uses it: optional, and not trusted to answer correctly or in time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import numpy as np
from wire.errors import Code

from guest import watch
from guest.embedding.backends import Embedded, Embedder, RerankingEmbedder, Scores
from guest.errors import EmbedderError

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_GRACE_S: Final = 0.2
"""How long after its timeout an embedder is still waited for."""

_POLL_S: Final = 0.05
_WAITS: Final = (
    "the embedding model is still loading: the first search waits up to {seconds:g} s for it, and "
    "goes by words until it is there"
)

Tell = Callable[[str], Awaitable[None]] | None
"""Tells a person a sentence."""


class Vectorizer:
    """Turns texts into vectors, or raises `EmbedderError` in time, whatever happens.

    `model_id` is the model that answered last; empty before the first answer. `on_answer` is called
    after every answer, so that waiting work learns that the embedder is back, or that its model has
    changed. An embedder that has not answered yet and cannot be reached counts as loading for
    `starting_s` seconds.
    """

    def __init__(self, embedder: Embedder | None, starting_s: float = 0.0) -> None:
        self._embedder = embedder
        self._starting_until = time.monotonic() + starting_s
        self._waiting = asyncio.Lock()
        self._may_wait = embedder is not None
        self.wanted: Final = embedder is not None
        self.out_of_order = False
        self.model_id = ""
        self.on_answer: Callable[[], None] = lambda: None

    async def embed(self, texts: Sequence[str], timeout: float) -> Embedded:
        if self._embedder is None:
            raise EmbedderError(Code.FAILED_PRECONDITION, "no embedder is configured")
        with watch.step("memory", operation="embed") as step:
            try:
                answer = await self._ask(self._embedder, texts, timeout)
            except EmbedderError as error:
                step.words["outcome"] = error.code.value
                self.out_of_order = not error.is_loading
                raise
        self.out_of_order = False
        self.model_id = answer.model_id
        self.on_answer()
        return answer

    async def wait_while_loading(self, seconds: float, tell: Tell) -> None:
        """Wait for an embedder that is still loading: at most `seconds`, and once only.

        Returns at once if the embedder has ever answered, or if this was called before.

        Args:
            tell: Is called before the wait, with a sentence for the person who waits.
        """
        async with self._waiting:
            if self.model_id or not self._may_wait:
                return
            self._may_wait = False
            deadline = time.monotonic() + seconds
            while not self.model_id and await self.state() == "loading":
                if (left := deadline - time.monotonic()) <= 0:
                    break
                if tell is not None:
                    await tell(_WAITS.format(seconds=seconds))
                    tell = None
                await asyncio.sleep(min(_POLL_S, left))

    async def rerank(self, query: str, texts: Sequence[str], timeout: float) -> Scores:
        """How well each text answers `query`, from 0 to 1. Only for an embedder whose last answer
        said that its reranker is ready. Raises `EmbedderError` in time, whatever happens."""
        assert isinstance(self._embedder, RerankingEmbedder)
        with watch.step("memory", operation="rerank"):
            scores = await _in_time(self._embedder.rerank(query, texts, timeout=timeout), timeout)
        if scores.shape != (len(texts),) or not ((scores >= 0) & (scores <= 1)).all():
            raise EmbedderError(
                Code.INTERNAL,
                "the reranker gave a malformed answer",
                details=f"an array of shape {scores.shape} for {len(texts)} texts",
            )
        return scores

    async def _ask(self, embedder: Embedder, texts: Sequence[str], timeout: float) -> Embedded:
        try:
            answer = await _in_time(embedder.embed(texts, timeout=timeout), timeout)
        except EmbedderError as error:
            if self._is_starting and error.brief == EmbedderError.UNREACHABLE:
                raise EmbedderError(error.code, EmbedderError.LOADING) from None
            raise
        _check(answer, len(texts))
        return answer

    async def state(self) -> str:
        """ "ready", "loading", "disabled", or one sentence that says why there are no vectors."""
        if self._embedder is None:
            return "disabled"
        state = await self._embedder.state()
        return "loading" if self._is_starting and state == EmbedderError.UNREACHABLE else state

    @property
    def _is_starting(self) -> bool:
        return not self.model_id and time.monotonic() < self._starting_until


async def _in_time(answer: Awaitable[_Answer], timeout: float) -> _Answer:
    try:
        async with asyncio.timeout(timeout + _GRACE_S):
            return await answer
    except EmbedderError:
        raise
    except TimeoutError:
        raise EmbedderError(Code.TIMEOUT, "the embedder did not answer in time") from None
    except Exception as error:
        log.exception("the embedder failed")
        raise EmbedderError(Code.INTERNAL, "the embedder failed", details=str(error)) from error


def _check(answer: Embedded, texts: int) -> None:
    vectors = answer.vectors
    if vectors.ndim != 2 or len(vectors) != texts or not np.isfinite(vectors).all():
        raise EmbedderError(
            Code.INTERNAL,
            "the embedder gave a malformed answer",
            details=f"an array of shape {vectors.shape} for {texts} texts, "
            f"{np.isfinite(vectors).mean():.0%} of it finite",
        )
