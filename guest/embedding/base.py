"""Turning text into vectors, as memory sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
"""Shape (texts, dimensions), each row of unit length."""


@dataclass(frozen=True)
class Embedded:
    """`model_id` names the model and its version: vectors of two models never meet."""

    model_id: str
    vectors: Vectors


class Embedder(Protocol):
    """Where vectors come from: a process of its own, or a backend in this one."""

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        """Vectors for `texts` (at most `EMBED_BATCH_MAX_TEXTS`), in order.

        Raises `guest.errors.EmbedderError` within `timeout` seconds when they
        cannot be had: UNAVAILABLE while the model loads or the process is
        away, FAILED_PRECONDITION where it will never come.
        """
        ...

    async def state(self) -> str:
        """ "ready", "loading", or one sentence that says why there is none."""
        ...

    async def close(self) -> None:
        """Release the connection. Idempotent."""
        ...
