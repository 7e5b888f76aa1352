"""Cuts texts into passages that can be embedded and shown."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Final

PASSAGE_CHARS: Final = 640
PASSAGE_OVERLAP: Final = 96
_SENTENCE_END: Final = re.compile(r"[.!?…][\"'”’»)\]]{0,4}\s+|[。！？｡][」』”’）]{0,4}\s*|\n\s*")
_WORD_END: Final = re.compile(r"\s+")
_ZERO_WIDTH_JOINER: Final = "\u200d"
_REGIONAL: Final = range(0x1F1E6, 0x1F1FF + 1)
_SKIN_TONES: Final = range(0x1F3FB, 0x1F3FF + 1)
_JAMO_AFTER_THE_FIRST: Final = range(0x1160, 0x11FF + 1)
_TAGS: Final = range(0xE0020, 0xE007F + 1)
_LONGEST_FLAG_RUN: Final = 256


def passages_of(text: str) -> list[str]:
    """The passages of `text` that are stored: those that are not blank."""
    pieces = chunk(text, PASSAGE_CHARS, PASSAGE_OVERLAP)
    return [piece for piece in pieces if not piece.isspace()]


def chunk(text: str, size: int, overlap: int) -> list[str]:
    """Cut `text` into pieces of at most `size` characters, in order.

    Every character is in some piece, and a piece repeats up to `overlap` characters of the previous
    one. Cuts fall at sentence ends, else between words, else between visible characters: an
    accented letter, a flag or a joined emoji is cut only if it is longer than a piece. Raises
    `ValueError` unless `overlap` is below half of `size`.
    """
    if size < 1 or not 0 <= overlap * 2 < size:
        raise ValueError(f"chunk overlap must be from 0 to below half of {size}, not {overlap}")
    sentences = _ends(_SENTENCE_END, text, 0, len(text))
    pieces: list[str] = []
    start = 0
    while len(text) - start > size:
        end = _end(text, sentences, start, size)
        pieces.append(text[start:end])
        start = _restart(text, sentences, start, end, overlap)
    pieces.append(text[start:])
    return pieces if text else []


def _end(text: str, sentences: list[int], start: int, size: int) -> int:
    """Where the piece from `start` ends: as late as possible, in its second half."""
    low, high = start + size // 2 + 1, start + size
    borders = (
        sentences[bisect_left(sentences, low) : bisect_right(sentences, high)],
        _ends(_WORD_END, text, low, high),
        _between_characters(text, range(high, low - 1, -1)),
    )
    return _choose(borders, max, high)


def _restart(text: str, sentences: list[int], start: int, end: int, overlap: int) -> int:
    """Where the next piece starts: up to `overlap` before the end of this one."""
    low = max(end - overlap, start + 1)
    borders = (
        sentences[bisect_left(sentences, low) : bisect_left(sentences, end)],
        _ends(_WORD_END, text, low, end - 1),
        _between_characters(text, range(low, end)),
    )
    return _choose(borders, min, end)


def _ends(pattern: re.Pattern[str], text: str, low: int, high: int) -> list[int]:
    """Ends of matches between `low` and `high` at which a cut is allowed."""
    ends = (match.end() for match in pattern.finditer(text, low, high))
    return [end for end in ends if end < len(text) and not _joined(text, end)]


def _choose(borders: Iterable[list[int]], best: Callable[[list[int]], int], otherwise: int) -> int:
    return next((best(found) for found in borders if found), otherwise)


def _between_characters(text: str, positions: range) -> list[int]:
    """The first of `positions` that lies between two visible characters; a list of at most one."""
    return next(([position] for position in positions if not _joined(text, position)), [])


def _joined(text: str, position: int) -> bool:
    """Whether the characters before and after `position` form one visible character."""
    before, after = text[position - 1], text[position]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    if _ZERO_WIDTH_JOINER in (before, after) or unicodedata.category(after).startswith("M"):
        return True
    code = ord(after)
    if code in _REGIONAL and ord(before) in _REGIONAL:
        return _regionals_before(text, position) % 2 == 1
    return code in _SKIN_TONES or code in _TAGS or code in _JAMO_AFTER_THE_FIRST


def _regionals_before(text: str, position: int) -> int:
    """The number of consecutive flag letters before `position`, counted only as far as it
    matters."""
    start, limit = position, max(0, position - _LONGEST_FLAG_RUN)
    while start > limit and ord(text[start - 1]) in _REGIONAL:
        start -= 1
    return position - start
