"""The interfaces of what computes vectors, and of what reranks.

A reranker reads a query and a text together. It costs far more than a comparison of vectors, and is
asked about few texts only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
"""Shape (texts, dimensions), each row of unit length."""


@dataclass(frozen=True)
class Embedded:
    """`model_id` names the model and its version: vectors of two models never meet. `reranker` is
    empty if the embedder has none, "loading", "ready", or one sentence that says why there is
    none."""

    model_id: str
    vectors: Vectors
    reranker: str = ""


class Embedder(Protocol):
    """A source of vectors: a separate process, or a backend in this one."""

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        """Embed `texts` (at most `EMBED_BATCH_MAX_TEXTS`), in order.

        Raises `guest.errors.EmbedderError` within `timeout` seconds: UNAVAILABLE while the model
        loads or the process is away, FAILED_PRECONDITION if there will be no vectors.
        """

    async def state(self) -> str:
        """ "ready", "loading", or one sentence that says why there are no vectors."""

    async def close(self) -> None:
        """Release the connection. Idempotent."""


class Backend(Protocol):
    """A loaded model.

    `model_id` changes whenever the same text would get another vector.
    """

    model_id: str
    dimensions: int

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One unit vector per text, in order; any string has one, the empty one too.

        Blocks; called from one thread at a time.
        """


def unit_rows(rows: npt.NDArray[np.floating]) -> Vectors:
    """`rows` scaled to unit length as float32; a row of zeros becomes the first axis.

    Raises `ValueError` if a row is not finite: such a vector would spoil every comparison.
    """
    exact = rows.astype(np.float64)
    if not np.isfinite(exact).all():
        raise ValueError("the model answered with a vector that is not finite")
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    empty = lengths[:, 0] == 0
    exact[empty, 0] = 1.0
    lengths[empty] = 1.0
    vectors: Vectors = (exact / lengths).astype(np.float32)
    return vectors


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
