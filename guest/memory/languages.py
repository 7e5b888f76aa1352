"""Which notes are in no English: the default embedding model knows no other language."""

from collections.abc import Sequence
from typing import Final

from guest.memory.search.keyword import STOP_WORDS

_LATIN_TO: Final = "\u024f"
_AROUND: Final = ".,;:!?¿¡()\"'«»“”„‘’…"
_LEAST_WORDS: Final = 6
_LEAST_PERCENT: Final = 10
_LEAST_SHARE: Final = 0.12
"""Of very common words, in English text: less have 0.6 % of English facts with names."""


def foreign_percent(texts: Sequence[str]) -> int:
    """How many of a hundred texts are in another language than English; 0 for less than a tenth:
    the model that knows them is proposed from there on."""
    percent = 100 * sum(map(is_foreign, texts)) // max(1, len(texts))
    return percent if percent >= _LEAST_PERCENT else 0


def is_foreign(text: str) -> bool:
    """By its script, or because it has hardly any of the words that English text has."""
    letters = [sign for sign in text if sign.isalpha()]
    if sum(sign > _LATIN_TO for sign in letters) * 3 > len(letters):
        return True
    words = [word for word in (each.strip(_AROUND) for each in text.split()) if word.isalpha()]
    common = sum(word.casefold() in STOP_WORDS for word in words)
    return len(words) >= _LEAST_WORDS and common < _LEAST_SHARE * len(words)
