"""Any model of sentence-transformers, also for reranking, by that library and PyTorch."""

import contextlib
import importlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from wire.installation import adding, adding_model

from guest.embedding.backends import Scores, Vectors, unit_rows
from guest.embedding.weights import (
    DEFAULT_MODEL,
    EMBEDDING,
    RERANKING,
    ModelPurpose,
    Source,
    unusable,
)
from guest.errors import EmbedderError

_Loaded = TypeVar("_Loaded")

MAX_THREADS: Final = 4
"""Small models gain nothing from more, and the guests want cores too."""
_SCORING: Final = "ForSequenceClassification"
"""How the names of models with a score end."""
_BATCH_TEXTS: Final = 8
"""The library sorts texts by length first; larger batches only cost memory."""


class SentenceBackend:
    """A loaded sentence-transformers model."""

    def __init__(self, model_id: str, model: Any) -> None:
        self.model_id = model_id
        self._model = model
        self.dimensions = int(self._rows(["warm up"]).shape[1])

    def encode(self, texts: Sequence[str]) -> Vectors:
        return unit_rows(self._rows(texts))

    def _rows(self, texts: Sequence[str]) -> Any:
        return self._model.encode(
            list(texts), batch_size=_BATCH_TEXTS, show_progress_bar=False, convert_to_numpy=True
        )


class CrossEncoder:
    """A loaded cross-encoder, a `Reranker`. Raises `ValueError` if it has not a single score, or
    was saved without what gives it one: the library would make that up at random."""

    def __init__(self, model: Any) -> None:
        loaded = type(model.model).__name__
        saved = model.config.architectures or [loaded]
        if loaded.endswith(_SCORING) and not any(each.endswith(_SCORING) for each in saved):
            raise ValueError(
                f"it is a {saved[0]}, which gives no score; rerankers are cross-encoders"
            )
        if model.num_labels != 1:
            raise ValueError(f"it has {model.num_labels} labels; a reranker has a single score")
        self._model = model
        self.score("warm up", ["warm up"])

    def score(self, query: str, texts: Sequence[str]) -> Scores:
        scores = self._model.predict(
            [(query, text) for text in texts],
            batch_size=_BATCH_TEXTS,
            show_progress_bar=False,
            convert_to_numpy=True,
            activation_fn=self._sigmoid,
        )
        if not np.isfinite(scores).all():
            raise ValueError("the model answered with a score that is not finite")
        return np.asarray(scores, np.float32)

    @staticmethod
    def _sigmoid(scores: Any) -> Any:
        return scores.sigmoid()


def load(source: Source) -> SentenceBackend:
    """Load the model at `source`: a directory, or an id from cache or hub.

    Runs in the thread that will compute, because thread counts are per thread.
    Raises `EmbedderError` (FAILED_PRECONDITION) with the fix.
    """

    def opened(library: Any) -> SentenceBackend:
        return SentenceBackend(source.model_id, _open(library.SentenceTransformer, source))

    return _loaded(source, EMBEDDING, opened)


def load_cross_encoder(source: Source) -> CrossEncoder:
    return _loaded(
        source, RERANKING, lambda library: CrossEncoder(_open(library.CrossEncoder, source))
    )


def _loaded(source: Source, use: ModelPurpose, opened: Callable[[Any], _Loaded]) -> _Loaded:
    _prepare_environment(source.local)
    try:
        torch: Any = importlib.import_module("torch")
        library: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        brief = f"the library of the {use.name} is not installed"
        raise unusable(brief, str(error), f"{_fix(source)}, {use.otherwise}") from None
    for name in ("sentence_transformers", "transformers", "huggingface_hub"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.ERROR)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(MAX_THREADS, os.cpu_count() or 1))
    try:
        return opened(library)
    except Exception as error:
        raise _cannot_load(source, use, error) from None


def _fix(source: Source) -> str:
    if source.model_id == DEFAULT_MODEL:
        return adding_model()
    image = "runner images build --with-sentence-transformers"
    return f"{adding('sentence-transformers')} (an image: {image})"


def _open(transformer: Any, source: Source) -> Any:
    """Load the model from disk if it is there, so that only the first use needs the hub."""
    if not source.local:
        with contextlib.suppress(Exception):
            return transformer(source.location, local_files_only=True)
    return transformer(source.location, local_files_only=source.local)


def _prepare_environment(local: bool) -> None:
    defaults = {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Spinning while they wait, two threads on two busy cores take several times longer.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    if local:
        os.environ["HF_HUB_OFFLINE"] = "1"


def _cannot_load(source: Source, use: ModelPurpose, error: Exception) -> EmbedderError:
    if source.local:
        fix = f"check that {source.location} holds a complete sentence-transformers model"
    elif source.model_id == DEFAULT_MODEL:
        fix = f"{adding_model()}, give a local path in {use.setting}"
    else:
        fix = f"check the id and the network, give a local path in {use.setting}"
    brief = f"{use.name} cannot be loaded: {source.location}"
    return unusable(brief, error, f"{fix}, {use.otherwise}")
