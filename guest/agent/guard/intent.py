"""Whether a message asks for something to be kept, and for what.

The request has to be a sentence of its own, or the last clause of one. Wrong guesses would
save what nobody asked for, so that questions, refusals, quotations, files and what is told
about the past are no requests.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from guest.agent.guard.intent_words import IntentWords
from guest.agent.guard.intent_words_more import LANGUAGES
from guest.agent.guard.rest import is_how, is_made, is_material, is_own, is_soft, is_told

_QUOTED: Final = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|「[^」\n]*」|『[^』\n]*』"
    r"|\"[^\"\n]*\"|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)‘[^’\n]*’(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_EMPHASIS: Final = re.compile(r"\*{1,3}(?=\S)|(?<=\S)\*{1,3}")
_START: Final = re.compile(r"(?:[.!?…]+[\"'”’»)\]]*\s+|[。！？；]+\s*|\n[\s>*\-–•\d.)]*)")
_CLAUSE: Final = re.compile(
    r"[,;–—，、]\s*|\s-\s|\s(?=(?:and|then|und|dann|et|puis|y|luego|e|poi|depois|en|dan|i|potem|и|потом)\s)"
)
_SHORT: Final = re.compile(
    r"(?:\b(?:(?-i:[A-ZА-Я])|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|ca|approx|Sr|Sra|Mme|Jr|bzw|usw"
    r"|inkl|tel|max|min|\d{1,2}))\.\Z",
    re.IGNORECASE,
)
_SHORT_MAX: Final = 20
_STOP: Final = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s|$)|[。！？]+|\n")
_SIGNS: Final = re.compile(r"(?:[^\w/\x01]|https?://\S+\s)*")
"""What may stand before the first word: "¿", emoji, an address; no quotation and no path."""
_QUESTION: Final = re.compile(r"[?？][\"'”’»)\]\s]*$")
_TAG: Final = re.compile(
    r",?\s*(?:ok(?:ay)?|please|(?:all )?right|alright|ja|bitte|d'accord|vale|va bene|tá|oké|dobrze"
    r"|ладно|хорошо|好吗|好不好|(?:くれ|もらえ|いただけ)(?:る|ます(?:か)?|ませんか))\s*[?？]$",
    re.IGNORECASE,
)
_FILE: Final = re.compile(
    r"(?<![\w/])/(?:[\w.-]*[\w/])+|https?://\S*[\w/]|\b[\w-]+\.(?:md|txt|py|sh|js|ts|json|csv|ya?ml|toml"
    r"|html?|pdf|docx?|xlsx?)\b",
    re.IGNORECASE,
)
_WRITING: Final = re.compile(
    r"\b(?:files?|scripts?|download|folder|disk|datei\w*|fichiers?|archivos?|ficheros?|arquivos?"
    r"|ficheiros?|bestand\w*|plik\w*|файл\w*)\b|文件|下载|ファイル",
    re.IGNORECASE,
)
_LISTED: Final = re.compile(r"[:：][ \t]*\n|\n[ \t]*[A-ZÀ-ÞА-Я][^\n,.]{1,40},[ \t]*\n")
"""What announces text of somebody else's: a colon, or the opening of a letter."""
_LINE: Final = re.compile(r"^[^\n]*\S", re.MULTILINE)
_LINES_MAX: Final = 5
_EDGE: Final = 2
_WORDS_MIN: Final = 2
_CJK: Final = 0x2E80
_CLAUSE_MAX_CHARS: Final = 200


@dataclass(frozen=True)
class Wish:
    """What a user asked to be kept.

    `words` are the words given, each to be kept by itself. Without any, something is
    pointed at: `said`, the last answer; `result`, what comes of the rest of the message;
    else whatever is nearest. `made`: a result that is no copy of what is read ("explain X and
    save it"). `rest` is what else the message tells; `told` that nothing but this can be
    meant; `attached` that it was put there to be pointed at. `named` are the paths and
    addresses in the message, or given as its words. `in_file`: a file would do as well.
    """

    words: tuple[str, ...] = ()
    said: bool = False
    result: bool = False
    made: bool = False
    rest: str = ""
    told: bool = False
    attached: bool = False
    named: tuple[str, ...] = ()
    in_file: bool = False


class _Language:
    def __init__(self, words: IntentWords) -> None:
        after = r"[,!:.]?(?:\s+|$)" if words.spaced else "[,，、]?"
        end = r"[^\w?？\x01]*"
        self._lead = _pattern(rf"(?:{words.lead}{after})*")
        self._asks = _pattern(words.asks)
        self._that = _pattern(words.that)
        self._attached = _pattern(rf"(?:{words.attached})\s*(?:[:：]|\.?\n)\s*(?=\S)")
        self._this = _pattern(rf"(?:{words.this}){end}")
        self._said = _pattern(words.said)
        self._memory = _pattern(words.memory)
        self._doubtful = _pattern(words.doubtful)
        self._please = _pattern(words.please)
        self._refused = _pattern(words.refused)
        self.thanks = _pattern(words.thanks)

    def request(self, text: str, begin: int, end: int, *, clause: bool) -> "_Request | None":
        """The request that the sentence from `begin` to `end` makes; `clause`: one that
        stands within another."""
        sentence = _TAG.sub("", text[begin:end].rstrip())
        asking = _QUESTION.search(sentence) is not None
        first = _SIGNS.match(sentence)
        start = first.end() if first else 0
        lead = self._lead.match(sentence, start)
        at = lead.end() if lead else start
        if asks := self._asks.match(sentence, at):
            at = asks.end()
        if asking and not asks:
            return None
        body = re.sub(r"[?？]\s*$", "", sentence[at:])
        if self._this.fullmatch(body):
            if asking and self._doubtful.search(body) and not self._please.search(sentence):
                return None
            memory = self._memory.search(body) is not None
            return _Request(begin, end, said=self._said.search(body) is not None, memory=memory)
        if clause:
            return None
        attached = self._attached.match(text, begin + at)
        if attached and not _FILE.search(attached[0]):
            return _Request(begin, len(text), begin=attached.end(), until=len(text))
        that = self._that.match(sentence, at) or self._that.match(sentence, start)
        if not that:
            return None
        if "words" in self._that.groupindex:
            here, until = (begin + place for place in that.span("words"))
            return _Request(begin, end, begin=here, until=until)
        here = begin + that.end()
        here += len(text[here:]) - len(text[here:].lstrip())
        until = _extent(text, here)
        until -= asking and text[here:until].rstrip().endswith(("?", "？"))
        return _Request(begin, end, begin=here, until=until)

    def refuses(self, before: str) -> bool:
        return self._refused.search(before) is not None

    def orders(self, sentence: str) -> bool:
        """Whether `sentence` begins as "could you" does."""
        lead = self._lead.match(sentence)
        return self._asks.match(sentence, lead.end() if lead else 0) is not None

    def begs(self, clause: str) -> bool:
        return self._please.search(clause) is not None


@dataclass(frozen=True)
class _Request:
    """A request from `first` to `last`; its words from `begin`, which is -1 without any."""

    first: int
    last: int
    begin: int = -1
    until: int = -1
    said: bool = False
    memory: bool = False
    result: bool = False


def wish_of(message: str) -> Wish | None:
    """What `message` asks to be kept; None where it asks for nothing of that kind."""
    text = _masked(message)
    listed = _LISTED.search(text)
    found: list[_Request] = []
    past = 0
    for begin, end in _sentences(text):
        if begin < past:
            continue
        given = listed is not None and begin >= listed.end()
        last = not text[end:].strip()
        request = _request(text, begin, end, pointing=given)
        if request and not (given and not last) and not _is_advice(text, request):
            found.append(request)
            past = request.last if request.begin < 0 else request.until
    return _wish(message, text, _own(text, found), attached=listed is not None)


def _own(text: str, found: list[_Request]) -> list[_Request]:
    """Those of `found` that are the user's: in the middle of a long message stands text from
    elsewhere, unless they follow each other from its beginning or to its end, or what
    follows is announced in a line of its own."""
    lines = [match.start() for match in _LINE.finditer(text)]
    if len(lines) <= _LINES_MAX:
        return found
    at = {each: bisect_right(lines, each.first) - 1 for each in found}
    own = {
        each
        for each in found
        if not _EDGE <= at[each] < len(lines) - _EDGE or "\n" in text[each.first : each.begin]
    }
    for each, following in (*pairwise(found), *pairwise(reversed(found))):
        if each in own and abs(at[following] - at[each]) == 1:
            own.add(following)
    return [each for each in found if each in own]


def _request(text: str, begin: int, end: int, *, pointing: bool) -> _Request | None:
    for language in _ALL:
        if request := language.request(text, begin, end, clause=pointing):
            return request
    ordered = any(language.orders(text[begin:end]) for language in _ALL)
    question = _QUESTION.search(text, begin, end)
    if question and not ordered:
        return None
    until = question.start() if question else end
    for clause in _CLAUSE.finditer(text, max(begin, until - _CLAUSE_MAX_CHARS), until):
        joined = clause[0].isspace()
        before = text[begin : clause.start()]
        if question and is_how(before):
            return None
        for language in _ALL:
            request = language.request(text, clause.end(), until, clause=True)
            if not request or language.refuses(before):
                continue
            told = joined and not ordered and is_told(before)
            if not told or language.begs(text[clause.end() : until]):
                return replace(request, last=end, result=joined)
    return None


def _is_advice(text: str, request: _Request) -> bool:
    """Whether `request` may only tell what to heed in a task that the message gives."""
    other = text[: request.first] + text[_extent(text, request.begin) :]
    return (
        request.begin >= 0
        and is_soft(text[request.first : request.begin])
        and not is_own(text[request.begin : request.until])
        and re.search(r"\w", other) is not None
    )


def _wish(message: str, text: str, found: list[_Request], *, attached: bool) -> Wish | None:
    words = tuple(
        kept
        for each in found
        if each.begin >= 0 and (kept := message[each.begin : each.until].strip())
    )
    if words:
        return Wish(words=words, named=words if all(map(_FILE.fullmatch, words)) else ())
    pointed = [each for each in found if each.begin < 0]
    if not pointed:
        return None
    memory = any(each.memory for each in pointed)
    if _WRITING.search(text) and not memory:
        return None
    rest = message
    for each in reversed(pointed):
        rest = f"{rest[: each.first]} {rest[each.last :]}"
    asked = any(_QUESTION.search(rest[begin:end]) for begin, end in _sentences(rest))
    rest, named = _statement(rest), tuple(dict.fromkeys(_FILE.findall(text)))
    made = is_made(rest)
    ordered = any(each.result for each in pointed) and not is_own(rest)
    return Wish(
        said=any(each.said for each in pointed),
        result=made or ordered or (asked and not rest),
        made=made,
        rest=rest,
        told=bool(rest) and not (made or ordered or named or is_material(text)),
        attached=attached,
        named=named,
        in_file=not memory,
    )


def _statement(rest: str) -> str:
    """`rest`, if it says anything that could be kept: no mere thanks, question or order."""
    rest = rest.strip(" \t,;")
    said = [rest[begin:end] for begin, end in _sentences(rest)]
    told = [each for each in said if each.strip() and not _QUESTION.search(each)]
    told = [each for each in told if not any(lang.thanks.search(each) for lang in _ALL)]
    return rest.strip() if _enough(" ".join(told)) else ""


def _enough(words: str) -> bool:
    """Whether `words` can be a statement: two of them, or of a script without blanks."""
    return len(words.split()) >= _WORDS_MIN or any(ord(letter) >= _CJK for letter in words)


def _sentences(text: str) -> list[tuple[int, int]]:
    """Where the sentences of `text` begin and end."""
    starts = [0, *(match.end() for match in _START.finditer(text))]
    return [
        (begin, end)
        for begin, end in zip(starts, [*starts[1:], len(text)], strict=True)
        if begin < end
    ]


def _extent(text: str, begin: int) -> int:
    """Where the words end that begin at `begin`: with their sentence, or with the message
    where they announce what follows."""
    for stop in _STOP.finditer(text, begin):
        ending = text[max(begin, stop.end() - _SHORT_MAX) : stop.end()]
        if ending.rstrip().endswith((":", "：")):
            return len(text)
        if not _SHORT.search(ending) or stop.end() == len(text):
            return stop.end()
    return len(text)


def _masked(message: str) -> str:
    """`message` with blanks for letters that are quoted; every place stays where it is."""
    plain = message.replace("’", "'")
    plain = _QUOTED.sub(lambda quoted: re.sub(r"\S", "\x01", quoted[0]), plain)
    return _EMPHASIS.sub(lambda signs: " " * len(signs[0]), plain)


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)


_ALL: Final = tuple(map(_Language, LANGUAGES))
