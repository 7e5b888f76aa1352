"""Decides the origin of a note: said by the user, decided by the agent, or read.

A model writes "The user prefers tea" after "I prefer tea", so words are compared, not texts; in
scripts without spaces, pairs of characters. The rule prefers "not from the user": an unnecessary
mark does little harm, but a missing one lets a planted sentence pass for the user's own.

What the user said before this turn, and the user's own notes, count only if a whole sentence of
theirs is repeated: of many words any planted sentence could be made.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from guest.memory.models import Origin
from guest.memory.search.keyword import STOP_WORDS
from guest.tools.base import ToolContext

LINK_MAX_CHARS: Final = 200
SHARE_MIN: Final = 0.6
"""The share of a note that the user must have said for it to be theirs."""
SHARE_BESIDE_MATERIAL_MIN: Final = 0.8
"""The same if material was read, from which the rest may come."""

_WORD_MAX_CHARS: Final = 32
_STEM_MIN_CHARS: Final = 4
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
_NEGATIONS: Final = frozenset(
    """
    no nor not never without nicht nie niemals kein keine keinen ohne ne pas non jamais sans
    nunca sin mai senza não nem sem niet nooit geen zonder не ни нет никогда без nigdy bez
    """.split()  # noqa: SIM905 - readable as prose
)
_SENTENCE: Final = re.compile(r"[^.!?\u2026\u3002\uff01\uff1f\n]+[.!?\u2026\u3002\uff01\uff1f]*")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u30ff\u3130-\u318f"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Thai, Lao, Burmese, Khmer, Chinese, Japanese; and Korean, whose words carry particles."""
_USER_UNSPACED: Final = re.compile("用户|用戶|使用者|ユーザー|사용자|ผู้ใช้")


def origin_of(context: ToolContext, content: str) -> Origin:
    """The origin of a note with the text `content`, written in `context`.

    The agent's note counts as the user's if the user said most of it in this turn, or if it repeats
    what the user vouches for. Anything else that the agent or the runtime writes after reading
    material is marked as material, with a link to it.
    """
    said = context.actor == "agent" and (
        _was_said(content, context.asked, beside=bool(context.material))
        or _repeats(content, context.vouched)
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


def _was_said(content: str, asked: str, *, beside: bool) -> bool:
    """Whether the user said most of `content`, and every number in it."""
    said = _words(asked)
    stems = {word[:size] for word in said for size in range(_STEM_MIN_CHARS, len(word) + 1)}
    wanted = _words(content)
    wanted = (wanted - _FUNCTION_WORDS) or wanted
    missing = {word for word in wanted if word not in said and _stem(word) not in stems}
    if not wanted or any(any(map(str.isdigit, word)) for word in missing):
        return False
    share = 1 - len(missing) / len(wanted)
    return share >= (SHARE_BESIDE_MATERIAL_MIN if beside else SHARE_MIN)


def _repeats(content: str, vouched: Iterable[str]) -> bool:
    """Whether `content` is one of these texts, or a sentence of one that is no question.

    Word for word in the same order; only the ending of a word and words that say nothing may
    differ, and "not" says something.
    """
    wanted = _telling(content)
    sentences = (sentence for text in vouched for sentence in (text, *_SENTENCE.findall(text)))
    return bool(wanted) and any(
        _same(wanted, _telling(sentence))
        for sentence in sentences
        if not any(mark in sentence for mark in "?\uff1f")
    )


def _telling(text: str) -> list[str]:
    return [word for word in _sequence(text) if word in _NEGATIONS or word not in _FUNCTION_WORDS]


def _same(words: Sequence[str], others: Sequence[str]) -> bool:
    return len(words) == len(others) and all(
        word == other or bool((stem := _stem(word)) and other.startswith(stem))
        for word, other in zip(words, others, strict=True)
    )


def _words(text: str) -> set[str]:
    return set(_sequence(text))


def _sequence(text: str) -> list[str]:
    """The words of a text, in order; pairs of characters in scripts without spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    folded = _USER_UNSPACED.sub(" ", folded)
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    words: list[str] = []
    for word in _UNSPACED.sub(r" \g<0> ", kept).split():
        if _UNSPACED.fullmatch(word):
            words += (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            words.append(word[:_WORD_MAX_CHARS])
    return words


def _stem(word: str) -> str:
    """The part of `word` that its inflected forms share; short words and numbers have none."""
    if len(word) <= _STEM_MIN_CHARS or any(map(str.isdigit, word)):
        return ""
    return word[: max(_STEM_MIN_CHARS, len(word) - _ENDING_MAX_CHARS)]


def _joined(sources: tuple[str, ...]) -> str:
    link = ", ".join(dict.fromkeys(sources))
    return link if len(link) <= LINK_MAX_CHARS else link[: LINK_MAX_CHARS - 1] + "…"
