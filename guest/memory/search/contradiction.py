"""Whether two notes on the same subject may contradict each other, by plain rules.

The result is a hint for a person or the model and resolves nothing. The rules compare words, not
meanings: they notice a negation, and another value for the same subject.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from guest.memory.models import Hit
from guest.memory.search.keyword import STOP_WORDS

_SAME_MATTER: Final = 0.5
"""Two notes are about the same from this share of common words on."""

NEAR: Final = 0.4
"""The cosine from which on two notes are compared."""

WORDS_OF_CHARS: Final = 2_000
"""How much of a text is compared by its words."""

_UNSPACED: Final = r"\u3040-\u30ff\u3400-\u9fff"
_WORD: Final = rf"(?:[^\W\d_{_UNSPACED}]|[\u0900-\u0963])+"
_TOKEN: Final = re.compile(
    rf"\d+(?:[ .,:/-]\d+)*|{_WORD}(?:['’]{_WORD})*|[=:]|ない|なく|ません|です|[{_UNSPACED}]"
)

_SHARED_MIN: Final = 3
_SHARED_OF: Final = 3
"""Two clauses differ in one value if they share so many words before and behind it, and one in so
many of the longer clause's."""

_CLAUSES: Final = re.compile(r"[;!?。；]|[.](?=\s|$)")

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
_NOT: Final = ("n't", "n’t")
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


def differ(one: "Reading", other: "Reading") -> bool:
    """Whether two texts seem to contradict each other: by a negation, or by one value in place of
    another. What begins with a day is an entry, such as of a diary."""
    if one.dated or other.dated:
        return False
    if one.negated != other.negated and likeness(one.words, other.words) >= _SAME_MATTER:
        return True
    return any(
        each[:1] == another[:1] and _other_value(each, another)
        for each in one.clauses
        for another in other.clauses
    )


def contradictions(similar: Iterable[Hit]) -> list[str]:
    """One warning for each note similar to a new text that this may contradict."""
    return [
        f"{hit.note_id} may say something else on the same matter; if it is out of date, update it"
        for hit in similar
        if hit.older_than
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
    """One text, taken apart. `words` are stems, without numbers, dates and negations. `dated` if it
    begins with a day."""

    words: frozenset[str]
    numbers: frozenset[str]
    negated: bool
    dated: bool
    clauses: Sequence[Sequence[str]]

    def adds_to(self, other: "Reading") -> bool:
        """Whether this says something that `other` does not: a word, or a number."""
        return not (self.words <= other.words and self.numbers <= other.numbers)

    def counts_apart(self, other: "Reading") -> bool:
        """Whether each has a number or date of its own."""
        return bool(self.numbers - other.numbers and other.numbers - self.numbers)


def read(text: str) -> Reading:
    clauses = [_tokens(clause) for clause in _CLAUSES.split(text)]
    tokens = [token for clause in clauses for token in clause]
    words = set(tokens)
    numbers = frozenset(filter(_counts, words))
    negations = {word for word in words if word.endswith(_NOT)} | (words & _NEGATIONS)
    telling = words - STOP_WORDS - numbers - negations
    return Reading(
        frozenset([_stem(word) for word in telling if word[0].isalnum()]),
        numbers,
        bool(negations),
        not numbers.isdisjoint(tokens[:1]),
        clauses,
    )


def _other_value(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two clauses begin and end alike, with a value between that only one of them has.
    What counts something else in other words is another event: "[Rome leaves at] 6:50"."""
    start = _alike(one, other)
    shared = start + _alike(one[start:][::-1], other[start:][::-1])
    longer = max(len(one), len(other))
    if shared < max(_SHARED_MIN, longer / _SHARED_OF) or not any(map(_tells, one[:start])):
        return False
    values = [frozenset(each[start : len(each) - shared + start]) for each in (one, other)]
    telling = [frozenset(filter(_tells, value)) for value in values]
    if not all(telling):
        return False
    own = [telling[0] - telling[1], telling[1] - telling[0]]
    events = all(any(map(_counts, each)) and not all(map(_counts, each)) for each in own)
    return not (events and values[0] & values[1])


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words two clauses have in common from their beginning on."""
    together = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in together if a != b), min(len(one), len(other)))


def _tokens(text: str) -> list[str]:
    found = _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())
    return [word.removesuffix("'s").removesuffix("’s") for word in found]


def _counts(token: str) -> bool:
    return token[0].isdigit() or token in _DATES


def _tells(token: str) -> bool:
    return token not in STOP_WORDS and token[0].isalnum()


def _stem(word: str) -> str:
    """`word` without the ending that tells "eats" from "eat"."""
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


Alike = tuple[str, str, float]
"""The ids of two notes, and their similarity."""

OTHERS: Final = 2
ALIKE: Final = 0.8
"""A note is an entry of a series where more notes than these, the other one of a pair included,
are so similar to it, as a share of the pair's similarity."""


def judged(
    pairs: Sequence[Alike], texts: Mapping[str, str], least: float
) -> tuple[list[tuple[Alike, bool]], int]:
    """The pairs that a person may want to see, in order, each with whether its notes may contradict
    each other, else their similarity is at least `least`; and how many notes are left out as
    entries of a series."""
    similar = defaultdict[str, list[float]](list)
    for one_id, other_id, similarity in pairs:
        similar[one_id].append(similarity)
        similar[other_id].append(similarity)
    readings = {note_id: read(texts[note_id]) for note_id in similar}
    shown: list[tuple[Alike, bool]] = []
    entries: set[str] = set()
    for pair in pairs:
        one, other = readings[pair[0]], readings[pair[1]]
        contradict = differ(one, other)
        if not contradict and pair[2] < least:
            continue
        as_near = [sum(s >= ALIKE * pair[2] for s in similar[note_id]) for note_id in pair[:2]]
        if min(as_near) > OTHERS and one.adds_to(other) and other.adds_to(one):
            entries.update(pair[:2])
        elif contradict or not one.counts_apart(other):
            shown.append((pair, contradict))
    return sorted(shown, key=lambda each: (not each[1], -each[0][2])), len(entries)
