"""Decides the origin of a note: said by the user, decided by the agent, or read.

Beside material, a note is the user's only if it is a sentence that the user said, whole and in
order: a page can choose which of the user's words a model repeats. Nothing else may differ than
who speaks of the user, "I prefer" or "the user prefers". An unnecessary mark does little harm; a
missing one lets a planted sentence pass for the user's own.

Without material there is nobody to plant a sentence, and most of the words are enough; in scripts
without spaces, pairs of characters.

Requests to remember that cannot be mistaken are known in the languages of the guide. "Remember that
…" and "save this: …" at the beginning give the words; "save this" and its like, as a whole
sentence, points at what was read or said. Each may have "too" in it.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache, partial
from itertools import groupby
from typing import Final

from wire.limits import TAGS_MAX
from wire.text import shortened
from wire.tools import PROJECT_TAG
from wire.zones import zone

from guest.memory.models import LOCAL, Origin, stays_here
from guest.memory.search.keyword import STOP_WORDS
from guest.tools.base import ToolContext

_BEGINNINGS: Final = (
    r"(?:don't forget|remember)(?: that(?= (?:i|my|we|our|you|your|he|his|she|her|it|they|their"
    r"|there|the|an?|this|all|\w+ (?:is|are|has|have))\b| (?-i:[A-Z\d]))|\s*[:：])",
    r"merk(?:e)? dir(?:,? dass\b|\s*:)",
    r"(?:souviens-toi|rappelle-toi|retiens)(?: que\b| qu'|\s*:)",
    r"recuerda(?: que\b|\s*:)",
    r"ricorda(?:ti)?(?: che\b|\s*:)",
    r"lembr[ae](?:-te|-se)?(?: (?:de )?que\b|\s*:)",
    r"onthoud(?: dat\b|\s*:)",
    r"zapamiętaj(?:,? że\b|\s*:)",
    r"запомни(?:те)?(?:,? что\b|\s*:)",
    r"记住(?:[,，:：]|(?=我))",
    r"覚えて(?:おいて)?(?:ください)?[:：]",
)
"""How a message begins whose words are to be kept."""

_ALSO: Final = (
    r"too|also|as well|auch|noch|ebenfalls|aussi|également|también|además|anche|pure|também|ook"
    r"|eveneens|też|także|również|тоже|также|ещё|еще|и"
)
TOO: Final = rf"(?:,? (?:{_ALSO})(?!\w))"
"""What may stand before each space and colon of a request, and behind it."""

_THIS: Final = r"(?:this|that|it)(?: information)?"
_POINTING: Final = (
    rf"(?:(?:learn from {_THIS},? and )?(?:save|store|remember) {_THIS}"
    rf"|learn from {_THIS},? and save"
    r"|(?:save|store) (?:the|these) (?:information|details))",
    r"(?:lern(?:e)? daraus und speicher(?:e)?(?: es| das)?"
    r"|speicher(?:e)? (?:das|es|diese information(?:en)?)"
    r"(?: ab)?|merk(?:e)? dir (?:das|dies))",
    r"(?:enregistre(?:-le)?(?: ça| cela| ces informations)?|(?:retiens|mémorise) (?:ça|cela)"
    r"|apprends-en et enregistre(?:-le)?)",
    r"(?:guarda (?:esto|eso|esta información)|guárdalo|recuerda (?:esto|eso)"
    r"|aprende de esto y guárdalo)",
    r"(?:salva (?:questo|queste informazioni)|salvalo|ricordalo|impara da questo e salva(?:lo)?)",
    r"(?:(?:guarda|guarde|salva|salve) (?:isto|isso|esta informação)|aprende com isto e guarda)",
    r"(?:sla (?:dit|dat|deze informatie) op|(?:bewaar|onthoud) (?:dit|dat)"
    r"|leer hiervan en sla het op)",
    r"(?:(?:zapisz|zapamiętaj|zachowaj) (?:to|tę informację|te informacje)"
    r"|ucz się z tego i zapisz)",
    r"(?:(?:сохрани|запомни|запиши)(?:те)? (?:это|эту информацию))",
    r"(?:(?:保存|记住|记下)(?:这个|这些|这些信息|一下这个)|把(?:这个|这些|它)也?(?:保存|记)(?:下来|住)?|学习并保存)",
    r"(?:(?:これ|それ|この情報)[をも](?:保存して|覚えて(?:おいて)?|記録して)(?:ください)?)",
)
"""The whole sentence that points at what was read or said."""

_COURTESY: Final = (
    r"(?:please|pls|bitte|s'il (?:te|vous) pla[iî]t|por favor|per favore|alsjeblieft|proszę"
    r"|пожалуйста|请|ok(?:ay)?|oh|hey|hi|thanks|danke|merci|gracias|grazie|obrigad[oa]|dank je"
    r"|dzięki|спасибо|谢谢|ありがとう)[,.!:]?\s*"
)
_AND: Final = (
    rf"(?:(?:and|then|und|außerdem|et|y|e|en|{_ALSO}),? |(?:也|还|还有|另外|あと|それと)[,，、]?)*"
)


def _any(patterns: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(patterns)})".replace(" ", f"{TOO}*,? ").replace(r"\s*", rf"{TOO}*\s*")


BEGINNING: Final = re.compile(
    rf"\W*{_AND}(?:{_COURTESY})?{_AND}(?:{_any(_BEGINNINGS)}|{_any(_POINTING)}{TOO}*\s*[:：])\s*",
    re.IGNORECASE,
)
POINTS: Final = re.compile(
    rf"(?P<before>(?:.*(?P<mark>[.!?…,;。！？，、\n]))?)\s*{_AND}"
    rf"(?:{_COURTESY})?{_AND}{_any(_POINTING)}{TOO}*(?:,?\s*{_COURTESY})?[\s.!。！]*",
    re.IGNORECASE | re.DOTALL,
)


LINK_MAX_CHARS: Final = 200
SHARE_MIN: Final = 0.6
"""The share of a note that the user must have said for it to be theirs, without material."""

_STEM_MIN_CHARS: Final = 4
_STEM_MAX_CHARS: Final = 32
_ENDING_MAX_CHARS: Final = 2

_FUNCTION_WORDS: Final = STOP_WORDS | frozenset(
    """
    user users benutzer benutzerin nutzer nutzerin utilisateur utilisatrice usuario usuaria
    utente usuário usuária gebruiker пользователь пользователя użytkownik kullanıcı
    der die das den dem des ein eine einen einem einer und oder ist sind war ich du er sie es wir
    ihr mein meine meinen dein sein seine nicht kein mit von zu im am auf für dass als auch hat
    le la les l d j à un une des du de et ou est sont je tu il elle nous vous mon ma mes son sa ses
    ne pas que qui avec pour dans sur au aux
    el los las una unos y o es son yo él ella mi mis su sus no con por para en del al se lo
    il lo gli uno e è sono io lui lei mio mia suo sua non che di da in per
    os as um uma meu minha seu sua não com em na ao
    het een en of zijn ik hij zij mijn niet met van te op dat
    и в на не что я он она мой моя это с по как
    """.split()  # noqa: SIM905 - readable as prose
)
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u30ff\u3130-\u318f"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Thai, Lao, Burmese, Khmer, Chinese, Japanese; and Korean, whose words carry particles."""
_USER_UNSPACED: Final = re.compile("用户|用戶|使用者|ユーザー|사용자|ผู้ใช้")
_USER: Final = "\ue000"
_USERS: Final = "\ue001"
_SELF: Final = re.compile(
    r"\b(?:(?:the )?user|i|me|der (?:be)?nutzer|die (?:be)?nutzerin|ich|l'utilisat(?:eur|rice)|je"
    r"|j'|el usuario|la usuaria|yo|de gebruiker|ik|пользователь|я)\b"
    r"|用户|用戶|使用者|我|ユーザー|私|僕|俺|사용자|ผู้ใช้|ฉัน"
)
_VERBS: Final = frozenset(
    {("am", "is"), ("have", "has"), ("go", "goes"), ("do", "does"), ("bin", "ist")}
    | {("habe", "hat"), ("suis", "est"), ("ai", "a")}
)
_UNLIKE: Final = frozenset({"<super>", "<sub>", "<circle>", "<fraction>"})
_plain: Final = partial(unicodedata.normalize, "NFKC")
_QUESTIONS: Final = frozenset("?？؟՞;‽")
_OPENS: Final = re.compile(
    r"[\"“”„‟«»‹›‘‚《〈「『【〝״＂`|<~–—：]|(?<!\w)['’]|:(?!//|\d)| --? "
    r"|[(\[{（](?![^)\]}）]{0,200}[)\]}）])|^\s*(?:>|[-*•+]\s|\w{1,3}[.)]\s)",
    re.MULTILINE,
)
"""What may open somebody else's words, or be their head: a quotation, a colon, a list, code."""
_END: Final = re.compile(
    r"(?:[!?؟۔।॥։።។‽]|(?<![.…])(?<!\s\d)(?<!\s\d\d)\.)[\"'”’»)\]]{0,3}(?=\s(?!\d)|$)|[。！？｡．]"
)
"""Where a sentence ends. A pause ("…"), an ordinal ("5.") and the end of a line end none."""
_ABBREVIATION_MAX_CHARS: Final = 8
_ABBREVIATION: Final = re.compile(
    r"(?<!\w)(?:\w|\w\.\w|mrs?|ms|dr|prof|st|[js]r|gov|sen|rep|gen|capt|lt|rev|vs|etc|approx|inc|ltd"
    r"|co|corp|dept|no|nr|jan|feb|mar|apr|ju[nl]|aug|sept?|o[ck]t|nov|de[cz]|bzw|ca|usw|evtl|sra|mme"
    r"|mlle|av|núm|тел|ул|им)$",
    re.IGNORECASE,
)


def origin_of(context: ToolContext, content: str) -> Origin:
    """The origin of a note with the text `content`, written in `context`.

    The agent's note counts as the user's if it repeats what the user said in this turn or vouches
    for, or, where nothing was read, if the user said most of it; the date behind a word such as
    "tomorrow" is the user's too. Anything else that the agent or
    the runtime writes after reading material is marked as material, with a link to it.
    """
    today = datetime.now(zone(context.time_zone)).date()
    asked = context.asked, dated(context.asked, today)
    said = context.actor == "agent" and (
        _repeats(content, (*asked, *context.vouched))
        or (not context.material and _was_said(content, "\n".join(asked)))
    )
    material = bool(context.material) and not said
    return Origin(
        actor="user" if said else context.actor,
        channel=context.channel,
        session_id=context.session_id,
        turn_id=context.turn_id,
        link=_joined(context.material) if material else "" if said else context.link,
        material=material,
    )


def tags_in(
    context: ToolContext,
    content: str,
    tags: Sequence[str] = (),
    before: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """These `tags` for the text `content`, of a note that had those `before`, if it was there: with
    `local`, if it may have come of what stays on this machine, and is no sentence that the user has
    just said. A model does not take that tag off. `project` becomes the tag of the session's
    project, which a new note has anyway where all are kept for it."""
    tags = in_project(context, tags)
    keeps = context.keeps_notes and (before is None or context.project_tag in before)
    if keeps and context.project_tag not in tags:
        tags = (context.project_tag, *tags)
    came = context.local and not _repeats(content, (context.asked,))
    stays = came or (context.reply is not None and stays_here(before or ()))
    return (LOCAL, *tags)[:TAGS_MAX] if stays and not stays_here(tags) else tuple(tags)[:TAGS_MAX]


def in_project(context: ToolContext, tags: Sequence[str]) -> Sequence[str]:
    """The tags, with that of the session's project, if it has one, for `project`."""
    if not context.project_tag:
        return tags
    return [context.project_tag if tag.strip().lower() == PROJECT_TAG else tag for tag in tags]


def _was_said(content: str, asked: str) -> bool:
    """Whether the user said most of `content`, and every number in it."""
    said = _words(asked)
    stems = {
        word[:size]
        for word in said
        for size in range(_STEM_MIN_CHARS, min(len(word), _STEM_MAX_CHARS) + 1)
    }
    wanted = _words(content)
    wanted = (wanted - _FUNCTION_WORDS) or wanted
    missing = {word for word in wanted if word not in said and _stem(word) not in stems}
    if not wanted or any(any(map(str.isdigit, word)) for word in missing):
        return False
    return 1 - len(missing) / len(wanted) >= SHARE_MIN


def _repeats(content: str, texts: Iterable[str]) -> bool:
    """Whether `content` is one of these texts, or a sentence of one that is no question."""
    wanted = _tokens(content)
    return any(map(str.isalnum, wanted)) and any(
        _same(_tokens(said), wanted) for text in texts for said in _statements(text)
    )


def _statements(text: str) -> Iterator[str]:
    """The text and its sentences, without questions, what it quotes, and a request to remember."""
    for sentence in (text, *_sentences(text)):
        if _QUESTIONS.isdisjoint(sentence):
            yield sentence
            if begins := BEGINNING.match(sentence):
                yield sentence[begins.end() :]
            if points := POINTS.fullmatch(sentence.strip()):
                yield points["before"].rstrip(" ,;，、")


def _sentences(text: str) -> Iterator[str]:
    """The sentences of `text`, until one has somebody else's words in it, or the head of some."""
    start = 0
    for end in _END.finditer(text):
        at = end.start()
        if text[at] == "." and _ABBREVIATION.search(text, max(0, at - _ABBREVIATION_MAX_CHARS), at):
            continue
        sentence = text[start : end.end()]
        begins = BEGINNING.match(sentence)
        opens = _OPENS.search(sentence, begins.end() if begins else 0)
        if opens is None or sentence[: opens.start()].strip():
            yield sentence
        if opens is not None:
            return
        start = end.end()
    yield text[start:]


def _same(said: list[str], wanted: list[str]) -> bool:
    """Whether both are the same words in the same order. The verb after "I" may be the one after
    "the user"."""
    return len(said) == len(wanted) and all(
        one == other or (before == _USER and _is_third_person(one, other))
        for before, one, other in zip(["", *said], said, wanted, strict=False)
    )


def _is_third_person(verb: str, other: str) -> bool:
    """Whether `other` is the form of `verb` for somebody else: "prefers", "goes", "wohnt"."""
    german = f"{verb[:-1]}t" if verb.endswith("e") and verb[-2] not in "ei" else ""
    regular = len(verb) > 2 and verb.isalpha() and other in (f"{verb}s", f"{verb}es", german)
    return regular or (verb, other) in _VERBS


def _tokens(text: str) -> list[str]:
    """Everything that stands in a text, in order, but its quotation marks and its end."""
    runs = (("".join(run), alone) for alone, run in groupby(text, _stands_alone))
    text = "".join(f" {run} " if alone else _plain(_plain(run).lower()) for run, alone in runs)
    folded = text.replace("’", "'").replace("n't", " not")
    folded = re.sub(r"\b(?:(?:the )?user's|my)\b", f" {_USERS} ", folded.rstrip(" \n.!。।"))
    folded = _SELF.sub(f" {_USER} ", folded.replace("i'm ", "i am "))
    return re.findall(r"\w+|[^\w\s]", folded.strip(' \n"“”„«»'))


@lru_cache(1024)
def _stands_alone(character: str) -> bool:
    """Whether a character means another thing than the plain ones that compatibility has for it:
    10² is not 102, and ①② is not 12."""
    kind = unicodedata.decomposition(character).partition(" ")[0]
    numeral = not character.isdecimal() and any(map(str.isnumeric, _plain(character)))
    return kind in _UNLIKE or (kind.startswith("<") and numeral)


def _words(text: str) -> set[str]:
    """The words of a text; pairs of characters in scripts without spaces."""
    folded = _plain(_plain(text).casefold())
    folded = _USER_UNSPACED.sub(" ", folded)
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    words: set[str] = set()
    for word in _UNSPACED.sub(r" \g<0> ", kept).split():
        if _UNSPACED.fullmatch(word):
            words.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            words.add(word)
    return words


def _stem(word: str) -> str:
    """The part of `word` that its inflected forms share; short words and numbers have none."""
    if not _STEM_MIN_CHARS < len(word) <= _STEM_MAX_CHARS or any(map(str.isdigit, word)):
        return ""
    return word[: max(_STEM_MIN_CHARS, len(word) - _ENDING_MAX_CHARS)]


def _joined(sources: tuple[str, ...]) -> str:
    return shortened(", ".join(dict.fromkeys(sources)), LINK_MAX_CHARS - 1)


_WORDS: Final = {
    2: "day after tomorrow|übermorgen|après-demain|pasado mañana|后天|後天|明後日|あさって",
    -2: "day before yesterday|vorgestern|avant-hier|anteayer|前天|一昨日|おととい",
    1: "tomorrow|morgen|demain|mañana|明天|明日|あした",
    -1: "yesterday|gestern|hier (?:soir|matin)|ayer|昨天|昨日|きのう",
    0: "today|tonight|heute|aujourd['’]hui|hoy|今天|今晚|今日|今夜|きょう",
}
_DAY: Final = re.compile(
    r"(?<![a-zà-ÿß@/.#`_=&\\-])(?:"
    + "|".join(f"(?P<_{index}>{words})" for index, words in enumerate(_WORDS.values()))
    + r")(?:['’]s)?(?![a-zà-ÿß@/`_=&(])(?![.-][a-z\d])(?!(?<=[a-zñ])\d)(?!\s*\(\d{4}-)",
    re.IGNORECASE,
)
"""Not within a name, such as an address, a path or code."""
_MORNING: Final = re.compile(
    r"\b(?:guten|jeden|de[rnms]|am|diese[nrs]|heute|gestern|la|esta|cada|una)\s+$", re.IGNORECASE
)
"""What makes "morgen" and "mañana" a morning."""


def dated(text: str, today: date | None) -> str:
    """`text` with its date behind each word for a day that is said `today`; unchanged where that is
    not known."""
    if today is None:
        return text

    def with_date(match: re.Match[str]) -> str:
        offset = list(_WORDS)[int(str(match.lastgroup)[1:])]
        if offset == 1 and _MORNING.search(text[: match.start()]):
            return match[0]
        return f"{match[0]} ({today + timedelta(days=offset)})"

    return _DAY.sub(with_date, text)
