"""What computes vectors inside the embedder process, implementable from this page alone."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from wire.errors import Code

from guest.embedding.base import Vectors
from guest.errors import EmbedderError

BACKENDS: Final = ("sentence-transformers", "hashing")


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
        ...


def load(backend: str, model: str) -> Backend:
    """Load `model` with the named backend; seconds of work, so not on an event loop.

    Raises `EmbedderError` (INVALID_ARGUMENT for an unknown backend,
    FAILED_PRECONDITION where the model cannot be had), with the fix.
    """
    match backend:
        case "hashing":
            from guest.embedding.hashing import HashingBackend

            return HashingBackend()
        case "sentence-transformers":
            from guest.embedding.sentence import load_sentence_transformer

            return load_sentence_transformer(model)
    raise EmbedderError(
        Code.INVALID_ARGUMENT,
        f"embedder.backend: unknown backend {backend!r}",
        resolution=f"set embedder.backend to one of {', '.join(BACKENDS)}",
    )


def unit_rows(rows: npt.NDArray[np.floating]) -> Vectors:
    """`rows` scaled to unit length as float32; a row of zeros becomes the first axis.

    Raises `ValueError` where a row is not finite: such a vector would poison
    every comparison it takes part in.
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
