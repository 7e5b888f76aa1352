"""Whether two notes on the same subject may contradict each other, by plain rules.

The result is a hint for a person or the model and resolves nothing. The rules compare words, not
meanings: they notice differing numbers, dates, negations and values, in languages that put spaces
between words.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from guest.memory.models import Hit
from guest.memory.search.keyword import STOP_WORDS

_SAME_MATTER: Final = 0.6
"""From this share of common words on, two notes are about the same subject."""

_ONLY_IN_NUMBERS: Final = 0.8
"""From this share of common words on (without numbers and dates), two notes differ in numbers
only."""

_TOKEN: Final = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)*|[=:]")

_NEGATIONS: Final = frozenset(
    """
    no not never none nobody nothing neither nor without cannot
    nicht kein keine keinen keinem keiner keines nie niemals ohne
    pas jamais sans ne aucun aucune
    nunca jamás sin ningún ninguna tampoco
    non mai senza nessuno nessuna não sem nenhum niet geen nooit zonder
    inte aldrig ikke aldri не нет никогда без
    """.casefold().split()
)
_DATES: Final = frozenset(
    """
    monday tuesday wednesday thursday friday saturday sunday
    january february march april may june july august september october november december
    montag dienstag mittwoch donnerstag freitag samstag sonntag
    januar februar märz mai juni juli oktober dezember
    lundi mardi mercredi jeudi vendredi samedi dimanche
    janvier février mars avril juin juillet août septembre octobre novembre décembre
    lunes martes miércoles jueves viernes sábado domingo
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
    """.casefold().split()
)
_BEFORE_A_VALUE: Final = frozenset(
    """
    = : is are was were equals means called named lives works prefers uses runs costs becomes
    ist sind war heißt bedeutet wohnt arbeitet bevorzugt nutzt verwendet kostet läuft
    est sont était habite travaille préfère utilise coûte
    es son era está vive trabaja prefiere usa cuesta
    è sono abita lavora preferisce é são mora trabalha bor heter är er
    """.casefold().split()
)


def may_contradict(first: str, second: str) -> bool:
    """Whether two texts on the same subject seem to contradict each other: they differ only in
    numbers or dates, in a negation, or in the value after the same subject ("X is A", "X is B")."""
    one, other = _read(first), _read(second)
    return (
        _other_numbers(one, other)
        or (one.negated != other.negated and _alike(one.words, other.words) >= _SAME_MATTER)
        or _other_value(one, other)
    )


def contradictions(results: Iterable[Hit], text: str) -> list[str]:
    """One warning for each note similar to `text` that may contradict it."""
    return [
        f"{hit.note_id} may say something else on the same matter; if it is out of date, update it"
        for hit in results
        if hit.note_id and may_contradict(hit.text, text)
    ]


def content_words(text: str) -> frozenset[str]:
    """The words and numbers of a text that carry meaning: casefolded, without stop words."""
    return frozenset(filter(_tells, _tokens(text)))


def likeness(first: frozenset[str], second: frozenset[str]) -> float:
    """The share of common words of two texts, from 0 to 1 (Jaccard)."""
    common = len(first & second)
    together = len(first) + len(second) - common
    return common / together if together else 0.0


@dataclass(frozen=True)
class _Reading:
    """One text, taken apart. `words` excludes numbers, dates and negations."""

    tokens: Sequence[str]
    words: frozenset[str]
    numbers: frozenset[str]
    negated: bool


def _read(text: str) -> _Reading:
    tokens = _tokens(text)
    numbers = frozenset(token for token in tokens if token[0].isdigit() or token in _DATES)
    telling = (token for token in tokens if _tells(token) and token not in numbers)
    return _Reading(
        tokens,
        frozenset(token for token in telling if not _negates(token)),
        numbers,
        any(map(_negates, tokens)),
    )


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())


def _tells(token: str) -> bool:
    return token not in STOP_WORDS and token[0].isalnum()


def _negates(token: str) -> bool:
    return token in _NEGATIONS or token.endswith(("n't", "n’t"))


def _alike(first: frozenset[str], second: frozenset[str]) -> float:
    """`likeness` that treats "eats" and "eat" as the same word."""
    return likeness(frozenset(map(_stem, first)), frozenset(map(_stem, second)))


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def _other_numbers(one: _Reading, other: _Reading) -> bool:
    """Whether each has a number that the other lacks. If only one has, it says more, not
    something else."""
    return (
        not one.numbers <= other.numbers
        and not other.numbers <= one.numbers
        and _alike(one.words, other.words) >= _ONLY_IN_NUMBERS
    )


def _other_value(one: _Reading, other: _Reading) -> bool:
    subject, value = _split(one.tokens)
    same_subject, another_value = _split(other.tokens)
    return (
        bool(subject)
        and subject == same_subject
        and not value <= another_value
        and not another_value <= value
    )


def _split(tokens: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The words that carry meaning before and after the first verb that introduces a value; both
    empty without one."""
    for i, token in enumerate(tokens):
        if token in _BEFORE_A_VALUE:
            before, after = tokens[:i], tokens[i + 1 :]
            return frozenset(filter(_tells, before)), frozenset(filter(_tells, after))
    return frozenset(), frozenset()
