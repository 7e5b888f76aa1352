"""Whether two notes on the same subject may contradict each other, by plain rules.

The result is a hint for a person or the model and resolves nothing. The rules compare words, not
meanings: they notice a negation, and another value for the same subject.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from guest.memory.models import Hit
from guest.memory.search.keyword import STOP_WORDS

SAME_MATTER: Final = 0.6
_SOME_IN_COMMON: Final = 0.4
"""Two notes are about the same from this share of common words on, or this cosine and some."""

NEAR: Final = 0.4
"""The cosine from which on two notes are compared."""

WORDS_OF_CHARS: Final = 2_000
"""How much of a text is compared by its words."""

_UNSPACED: Final = r"\u3040-\u30ff\u3400-\u9fff"
_WORD: Final = rf"(?:[^\W\d_{_UNSPACED}]|[\u0900-\u0963])+"
_TOKEN: Final = re.compile(
    rf"\d+(?:[ .,:/-]\d+)*|{_WORD}(?:['’]{_WORD})*|[=:]|ない|なく|ません|です|[{_UNSPACED}]"
)

_VALUE_MAX: Final = 9
_DESCRIPTION_MAX: Final = 5
"""How many words of a value may tell something."""

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
_IS: Final = frozenset(
    """
    is are am ist sind bin est sont suis es son soy è sono é são är er 是 在 は
    """.casefold().split()
)
_EQUALS: Final = _IS.union(("=", ":", "equals", "means", "becomes", "called", "named", "heisst"))
_BEFORE_A_VALUE: Final = _EQUALS | frozenset(
    """
    lives live works work prefers prefer uses runs run costs cost leaves starts begins ends opens
    closes lasts weighs pays earns attends studies drives wohnt wohne arbeitet arbeite bevorzugt
    nutzt verwendet kostet läuft habite travaille préfère utilise coûte está vive vivo trabaja
    prefiere usa cuesta abita lavora preferisce mora trabalha bor heter 叫 住 नाम
    """.casefold().split()
)
"""Verbs in the present: what somebody did one day contradicts nothing."""

_WHOSE: Final = frozenset(
    """
    my our your his her their the mein meine unser unsere der die das mon ma mes notre le la les
    mi mis nuestro nuestra el los il mio mia
    """.casefold().split()
)
_PRONOUNS: Final = frozenset(
    """
    it this that these those there he she they es das dies er sie il elle on 这 那 他 她
    """.casefold().split()
)
_NOW: Final = frozenset(
    """
    now instead anymore nowadays jetzt inzwischen maintenant désormais ahora 现 今 अब
    """.casefold().split()
)
_NEW: Final = _NOW.union(("new", "neu", "neue", "nouveau", "nouvelle", "nuevo", "nueva", "新"))
"""What says that something was different before."""


def differ(one: "Reading", other: "Reading", cosine: float = 0.0) -> bool:
    """Whether two texts seem to contradict each other: by a negation, or by another value for the
    same subject ("X is A", "X is B"). `cosine` is that of their vectors, where there are any. What
    has several numbers of its own or begins with a day is an entry, such as of a diary."""
    if one.dated or other.dated:
        return False
    if one.numbers and other.numbers:
        own = [sum(each[0].isdigit() for each in numbers) for numbers in _own_numbers(one, other)]
        if all(own) and sum(own) > 2:
            return False
    if one.negated != other.negated and _same_matter(one, other, cosine):
        return True
    return _other_value(one, other)


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


class Statement(NamedTuple):
    """A clause: its `subject` is before the first verb that introduces a value, the `value` behind
    it. `describes` if there may be other such values, of this `kind`; `changes` if it says so."""

    subject: frozenset[str]
    verb: str
    value: frozenset[str]
    describes: bool
    kind: str
    changes: bool

    def differs(self, other: "Statement") -> bool:
        """Whether each has a value of its own. If only one has, it says more, not something else.
        Of two descriptions both may be true, and of two stories."""
        longest = max(len(self.value), len(other.value))
        if self.value <= other.value or other.value <= self.value or longest > _VALUE_MAX:
            return False
        are_numbers = all(word[0].isdigit() for word in self.value | other.value)
        alike = are_numbers or self.kind == other.kind or self.changes != other.changes
        return not self.describes or (alike and longest <= _DESCRIPTION_MAX)


@dataclass(frozen=True)
class Reading:
    """One text, taken apart. `words` are stems, without numbers, dates and negations. `dated` if it
    begins with a day."""

    words: frozenset[str]
    numbers: frozenset[str]
    negated: bool
    dated: bool
    statements: Sequence[Statement]

    def adds_to(self, other: "Reading") -> bool:
        """Whether this says something that `other` does not: a word, or a number."""
        return not (self.words <= other.words and self.numbers <= other.numbers)

    def counts_apart(self, other: "Reading") -> bool:
        """Whether each has a number or date of its own."""
        return all(_own_numbers(self, other))


def read(text: str) -> Reading:
    """Take a text apart."""
    clauses = [_tokens(clause) for clause in _CLAUSES.split(text)]
    tokens = [token for clause in clauses for token in clause]
    words = set(tokens)
    numbers = frozenset([word for word in words if word[0].isdigit()]) | (words & _DATES)
    negations = {word for word in words if word.endswith(_NOT)} | (words & _NEGATIONS)
    telling = words - STOP_WORDS - numbers - negations
    return Reading(
        frozenset([_stem(word) for word in telling if word[0].isalnum()]),
        numbers,
        bool(negations),
        not numbers.isdisjoint(tokens[:1]),
        [each for clause in clauses if (each := _statement(clause, numbers))],
    )


def _statement(tokens: Sequence[str], numbers: frozenset[str]) -> Statement | None:
    """What a clause says of something; None if it says nothing of the kind, or only of one day."""
    if _BEFORE_A_VALUE.isdisjoint(tokens):
        return None
    at = next(i for i, token in enumerate(tokens) if token in _BEFORE_A_VALUE)
    before, telling = tokens[:at], [*filter(_tells, tokens[at + 1 :])]
    value = frozenset(telling)
    subject = frozenset(filter(_tells, before)) or frozenset(before) - _PRONOUNS
    if not subject or not value or not numbers.isdisjoint(subject):
        return None
    if tokens[at] == "は" and value.isdisjoint(("です", "住")):
        return None
    return Statement(
        frozenset(map(_owner, subject - _NEW)),
        "=" if tokens[at] in _EQUALS else _stem(tokens[at]),
        value=value,
        describes=len(subject) == 1
        and _WHOSE.isdisjoint(before)
        and tokens[at] in _IS
        and value.isdisjoint(("called", "named", "住")),
        kind=telling[0],
        changes=not _NOW.isdisjoint(tokens),
    )


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())


def _tells(token: str) -> bool:
    return token not in STOP_WORDS and token[0].isalnum()


def _same_matter(one: Reading, other: Reading, cosine: float) -> bool:
    """Whether two texts are about the same. A single letter in common is no evidence."""
    if likeness(one.words, other.words) >= SAME_MATTER:
        return True
    if cosine < SAME_MATTER or likeness(one.words, other.words) < _SOME_IN_COMMON:
        return False
    return any(len(word) > 1 for word in one.words & other.words)


def _stem(word: str) -> str:
    """`word` without the ending that tells "eats" from "eat"."""
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def _owner(word: str) -> str:
    """ "anna" of "anna's"."""
    return word.removesuffix("'s").removesuffix("’s")


def _own_numbers(one: Reading, other: Reading) -> tuple[frozenset[str], frozenset[str]]:
    """The numbers and dates that only one of the two has."""
    return one.numbers - other.numbers, other.numbers - one.numbers


def _other_value(one: Reading, other: Reading) -> bool:
    """Whether both say something of the same subject, and nothing that agrees."""
    same = [
        each.differs(another)
        for each in one.statements
        for another in other.statements
        if each[:2] == another[:2]
    ]
    return bool(same) and all(same)


Alike = tuple[str, str, float]
"""The ids of two notes, and their similarity."""

_SERIES: Final = 2
"""A note that is alike with more others than these, and not the same, is an entry of a series."""

_IN_A_SERIES: Final = 0.75
"""The cosine from which on notes may be entries of one series."""


def judged(
    pairs: Sequence[Alike], texts: Mapping[str, str], least: float
) -> tuple[list[tuple[Alike, bool]], int]:
    """The pairs that a person may want to see, in order, each with whether its notes may contradict
    each other, else their similarity is at least `least`; and how many notes are entries of a
    series."""
    known = dict.fromkeys(note_id for pair in pairs for note_id in pair[:2])
    readings = {note_id: read(texts[note_id]) for note_id in known}
    found: list[tuple[Alike, bool, bool]] = []
    others = Counter[str]()
    for pair in pairs:
        one, other = readings[pair[0]], readings[pair[1]]
        contradict = differ(one, other, pair[2])
        if not contradict and pair[2] < min(least, _IN_A_SERIES):
            continue
        distinct = one.adds_to(other) and other.adds_to(one)
        if distinct and (contradict or pair[2] >= _IN_A_SERIES):
            others.update(pair[:2])
        if contradict or (pair[2] >= least and not one.counts_apart(other)):
            found.append((pair, contradict, distinct))
    entries = {note_id for note_id, count in others.items() if count > _SERIES}
    shown = [
        (pair, contradict)
        for pair, contradict, distinct in found
        if not (distinct and entries.issuperset(pair[:2]))
    ]
    return sorted(shown, key=lambda each: (not each[1], -each[0][2])), len(entries)
