"""A model without weights: it knows words and pieces of words, not meaning."""

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from guest.embedding.backends import Vectors, unit_rows

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
STOP_WORDS: Final = frozenset(
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
    """A `Backend`. It remembers what frequent words hash to."""

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
                if word in STOP_WORDS:
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
