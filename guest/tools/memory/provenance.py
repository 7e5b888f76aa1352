"""Decides the origin of a note: said by the user, decided by the agent, or read.

A model writes "The user prefers tea" after "I prefer tea", so words are compared, not texts; in
scripts without spaces, pairs of characters. The rule prefers "not from the user": an unnecessary
mark does little harm, but a missing one lets a planted sentence pass for the user's own.
"""

import re
import unicodedata
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
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u30ff\u3130-\u318f"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Thai, Lao, Burmese, Khmer, Chinese, Japanese; and Korean, whose words carry particles."""
_USER_UNSPACED: Final = re.compile("用户|用戶|使用者|ユーザー|사용자|ผู้ใช้")


def origin_of(context: ToolContext, content: str) -> Origin:
    """The origin of a note with the text `content`, written in `context`.

    The agent's note counts as the user's if the user said most of it in this turn. Anything else
    that the agent or the runtime writes after reading material is marked as material, with a link
    to it.
    """
    said = context.actor == "agent" and _was_said(
        content, context.asked, beside=bool(context.material)
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


def _words(text: str) -> set[str]:
    """The set of words of a text; pairs of characters in scripts without spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    folded = _USER_UNSPACED.sub(" ", folded)
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    words = {word[:_WORD_MAX_CHARS] for word in _UNSPACED.sub(" ", kept).split()}
    for run in _UNSPACED.findall(kept):
        words.update(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    return words


def _stem(word: str) -> str:
    """The part of `word` that its inflected forms share; short words and numbers have none."""
    if len(word) <= _STEM_MIN_CHARS or any(map(str.isdigit, word)):
        return ""
    return word[: max(_STEM_MIN_CHARS, len(word) - _ENDING_MAX_CHARS)]


def _joined(sources: tuple[str, ...]) -> str:
    link = ", ".join(dict.fromkeys(sources))
    return link if len(link) <= LINK_MAX_CHARS else link[: LINK_MAX_CHARS - 1] + "…"
