"""Whether two notes on the same subject may contradict each other, by plain rules.

The result is a hint for a person or the model and resolves nothing. The rules compare words, not
meanings: they notice differing numbers, dates, negations and values.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from guest.memory.models import Hit
from guest.memory.search.keyword import STOP_WORDS

SAME_MATTER: Final = 0.6
"""From this share of common words on, or this cosine and a common word, two notes are about the
same subject."""

_ONLY_IN_NUMBERS: Final = 0.8
"""From this share of common words on (without numbers and dates), two notes differ in numbers
only."""

_UNSPACED: Final = r"\u3040-\u30ff\u3400-\u9fff"
_WORD: Final = rf"(?:[^\W\d_{_UNSPACED}]|[\u0900-\u0963])+"
_TOKEN: Final = re.compile(
    rf"\d+(?:[.,:/-]\d+)*|{_WORD}(?:['’]{_WORD})*|[=:]|ない|なく|ません|[{_UNSPACED}]"
)

_NEGATIONS: Final = frozenset(
    """
    no not never none nobody nothing neither nor without cannot
    nicht kein keine keinen keinem keiner keines nie niemals ohne
    pas jamais sans ne aucun aucune
    nunca jamás sin ningún ninguna tampoco
    non mai senza nessuno nessuna não sem nenhum niet geen nooit zonder
    inte aldrig ikke aldri не нет никогда без नहीं कभी 不 没 沒 無 无 ない なく ません
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


def may_contradict(first: str, second: str, cosine: float = 0.0) -> bool:
    """Whether two texts on the same subject seem to contradict each other: they differ only in
    numbers or dates, in a negation, or in the value after the same subject ("X is A", "X is B").
    `cosine` is that of their vectors, where there are any."""
    return differ(read(first), read(second), cosine)


def differ(one: "Reading", other: "Reading", cosine: float = 0.0) -> bool:
    """The same as `may_contradict`. Texts with several numbers of their own are entries, such as
    of a diary, and not about the same."""
    own = [sum(each[0].isdigit() for each in numbers) for numbers in _own_numbers(one, other)]
    if all(own) and sum(own) > 2:
        return False
    return (
        _other_numbers(one, other)
        or (one.negated != other.negated and _same_matter(one, other, cosine))
        or _other_value(one, other)
    )


def contradictions(results: Iterable[Hit], text: str) -> list[str]:
    """One warning for each note similar to `text` that may contradict it."""
    return [
        f"{hit.note_id} may say something else on the same matter; if it is out of date, update it"
        for hit in results
        if hit.note_id and may_contradict(hit.text, text, hit.score)
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
class Reading:
    """One text, taken apart. `words` are stems, without numbers, dates and negations."""

    tokens: Sequence[str]
    words: frozenset[str]
    numbers: frozenset[str]
    negated: bool

    def adds_to(self, other: "Reading") -> bool:
        """Whether this says something that `other` does not: a word, or a number."""
        return not (self.words <= other.words and self.numbers <= other.numbers)

    def counts_apart(self, other: "Reading") -> bool:
        """Whether each has a number or date of its own."""
        return all(_own_numbers(self, other))


def read(text: str) -> Reading:
    """Take a text apart."""
    tokens = _tokens(text)
    numbers = frozenset(token for token in tokens if token[0].isdigit() or token in _DATES)
    telling = (token for token in tokens if _tells(token) and token not in numbers)
    return Reading(
        tokens,
        frozenset(_stem(token) for token in telling if not _negates(token)),
        numbers,
        any(map(_negates, tokens)),
    )


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())


def _tells(token: str) -> bool:
    return token not in STOP_WORDS and token[0].isalnum()


def _negates(token: str) -> bool:
    return token in _NEGATIONS or token.endswith(("n't", "n’t"))


def _same_matter(one: Reading, other: Reading, cosine: float) -> bool:
    """Whether two texts are about the same. A single letter in common is no evidence."""
    if likeness(one.words, other.words) >= SAME_MATTER:
        return True
    return cosine >= SAME_MATTER and any(len(word) > 1 for word in one.words & other.words)


def _stem(word: str) -> str:
    """`word` without the ending that tells "eats" from "eat"."""
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def _own_numbers(one: Reading, other: Reading) -> tuple[frozenset[str], frozenset[str]]:
    """The numbers and dates that only one of the two has."""
    return one.numbers - other.numbers, other.numbers - one.numbers


def _other_numbers(one: Reading, other: Reading) -> bool:
    """Whether each has a number that the other lacks. If only one has, it says more, not
    something else."""
    return one.counts_apart(other) and likeness(one.words, other.words) >= _ONLY_IN_NUMBERS


def _other_value(one: Reading, other: Reading) -> bool:
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
