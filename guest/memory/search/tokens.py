"""Estimates how many tokens a text takes, rather too many than too few.

Each character counts by its kind. The tokenizers tested (named in
docs/design/2026-11-21-prompt-and-summaries.md) need no more for prose in most languages, code,
tables, ids or emoji; random letters such as base64 take up to twice as many.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_UNIT: Final = 100


def _weights() -> npt.NDArray[np.int64]:
    """Hundredths of a token by the first byte of a character; continuation bytes are 0."""
    of = np.zeros(256, np.int64)
    of[:128] = 75  # punctuation, unless overridden below
    of[ord(",")] = 100  # between numbers
    of[ord(" ")] = 10  # mostly part of the next word
    of[ord("0") : ord("9") + 1] = 90
    of[ord("A") : ord("Z") + 1] = 60
    of[ord("a") : ord("z") + 1] = 34
    of[0xC2:0xE0] = 140  # Greek, Hebrew, Arabic
    of[0xC2:0xC6] = 200  # the accents of Latin
    of[0xD0:0xD2] = 60  # Cyrillic
    of[0xE0:0xE3] = 220  # the scripts of India and Southeast Asia, Georgian, symbols
    of[0xE3:0xF0] = 125  # Chinese, Japanese, Korean
    of[0xF0:] = 300  # emoji
    return of


_WEIGHTS: Final = _weights()


def tokens_of(text: str) -> int:
    return -(-int(_weighed(text.encode(errors="replace")).sum()) // _UNIT)


def bytes_within(encoded: bytes, tokens: int) -> int:
    """How many leading bytes of UTF-8 take at most `tokens`."""
    return int(np.searchsorted(np.cumsum(_weighed(encoded)), tokens * _UNIT, side="right"))


def _weighed(encoded: bytes) -> npt.NDArray[np.int64]:
    return _WEIGHTS[np.frombuffer(encoded, np.uint8)]
