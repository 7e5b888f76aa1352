"""What a sentence of an answer claims to have been done to memory or to files."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from guest.agent.guard.claim_words import ClaimWords
from guest.agent.guard.claim_words_more import LANGUAGES
from guest.agent.guard.sentences import unquoted

Kind = Literal["save", "update", "delete"]
About = Literal["memory", "files", "any"]

_PATH: Final = re.compile(
    r"(?<!\w)/(?:shared|tmp|vault)\b[^\s,;]*"
    r"|\b[\w-]+\.(?:md|txt|py|sh|js|ts|json|csv|ya?ml|toml|html?|pdf|docx?|xlsx?)\b",
    re.IGNORECASE,
)
_LONG_TERM: Final = re.compile(
    r"\b(?:memory|memories|gedächtnis|mémoire|memoria|memória|geheugen|pamięc?i?)\b|памят|记忆|記憶",
    re.IGNORECASE,
)
_BREAK: Final = re.compile(
    r"[,;:()—–，、；：]|\b(?:but|aber|mais|pero|ma|mas|maar|ale|но)\b", re.IGNORECASE
)
_TAG: Final = re.compile(
    r",\s*(?:ok(?:ay)?|(?:all )?right|alright|ja|gut|d'accord|vale|va bene|tá|oké|dobrze|ладно)"
    r"\s*\?$",
    re.IGNORECASE,
)
_NOTHING: Final = re.compile(
    r"\s(?:nothing|none|no|nichts|kein\w*|rien|nada|niente|nulla|niets|geen|nic|ничего)\b",
    re.IGNORECASE,
)
_CONDITION: Final = re.compile(
    r"[^,;:()—–]{0,60},?\s(?:(?:if|once|when|as soon as|unless) (?:you|it)"
    r"|(?:wenn|falls|sobald) (?:du|sie)|si (?:tu|vous|quieres|quiere)"
    r"|se (?:vuoi|vuole|quiser|quiseres)|als (?:je|u)|jeśli|если)\b",
    re.IGNORECASE,
)
"""What follows a claim directly and takes it back."""
_NEAR: Final = 200
_LEAD: Final = r"^\W*(?:(?:{opening})\W+){{0,3}}(?:{short})"


@dataclass(frozen=True)
class Claim:
    """One thing that is said to be done, or promised. `standing`: at an earlier time."""

    kind: Kind
    about: About
    standing: bool = False


class _Language:
    def __init__(self, words: ClaimWords) -> None:
        self._claims: tuple[tuple[Kind, re.Pattern[str]], ...] = (
            ("save", _compiled(words, words.save, words.saved)),
            ("delete", _compiled(words, words.delete, words.deleted)),
            ("update", _compiled(words, words.update, words.updated)),
        )
        self._never = _pattern(words.never)
        self._unless = _pattern(words.unless)
        self._already = _pattern(words.already)
        self._memory = _pattern(words.memory)
        self._files = _pattern(words.files)

    def claims(self, sentence: str) -> set[Claim]:
        found: set[Claim] = set()
        about = self._about(sentence)
        if self._never.search(sentence):
            found.add(Claim("save", "memory"))
            sentence = self._never.sub("…", sentence)
        standing = self._already.search(sentence) is not None
        for kind, pattern in self._claims:
            for match in pattern.finditer(sentence):
                if not (
                    self._unless.search(_clause(sentence, match)) or _taken_back(sentence, match)
                ):
                    found.add(Claim(kind, about, standing))
        return found

    def _about(self, sentence: str) -> About:
        if _LONG_TERM.search(sentence):
            return "memory"
        if _PATH.search(sentence):
            return "files"
        if self._memory.search(sentence):
            return "memory"
        return "files" if self._files.search(sentence) else "any"


@lru_cache(maxsize=64)  # what is held back is judged anew with every piece that comes
def claims_of(sentence: str) -> frozenset[Claim]:
    """What `sentence` claims. Questions, conditions, negations and quotations claim nothing."""
    if sentence.lstrip().startswith(">"):
        return frozenset()
    plain = _TAG.sub(".", unquoted(sentence))
    if plain.rstrip(" )").endswith(("?", "？")):
        return frozenset()
    return frozenset().union(*(language.claims(plain) for language in _ALL))


def _compiled(words: ClaimWords, long: str, short: str) -> re.Pattern[str]:
    return _pattern(f"{long}|{_LEAD.format(opening=words.opening, short=short)}")


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)


def _clause(sentence: str, match: re.Match[str]) -> str:
    """The claim with what stands before it in its own clause, as far as it is near."""
    begin = max(0, match.start() - _NEAR)
    for found in _BREAK.finditer(sentence, begin, match.start()):
        begin = found.end()
    return sentence[begin : match.end()]


def _taken_back(sentence: str, match: re.Match[str]) -> bool:
    following = sentence[match.end() : match.end() + _NEAR]
    return bool(_NOTHING.match(following) or _CONDITION.match(following))


_ALL: Final = tuple(map(_Language, LANGUAGES))
