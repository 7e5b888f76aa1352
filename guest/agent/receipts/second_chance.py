"""When the model is asked once more, because words and receipts do not agree.

Only a plain request to remember triggers it, at the beginning or the end of a message, or a claim
about memory in the first person: it costs a call of the model, and receipts tell the truth without
it. How much it sees and how often it is wrong is measured (docs/guide/save-promise.md).
"""

import re
from collections.abc import Sequence
from typing import Final

from guest.agent.receipts.ledger import Ledger

NOTHING_TO_ADD: Final = "(nothing to add)"
"""What the model answers to a false alarm; it is neither shown nor stored."""

FROM_THE_RUNTIME: Final = "[This is the runtime, not the user.]"
"""How the facts begin that the model is asked once more with."""

STEPS_MAX: Final = 3
"""Model requests: to look for a note, to save, and to say so."""

_GREETING_MAX_CHARS: Final = 20
_CROP_CHARS: Final = 200
"""The part of a sentence that is looked at: the expressions take quadratic time."""
_SENTENCE: Final = re.compile(r"[^.!?…。！？\n]+[.!?…。！？]*")


def _any(alternatives: str) -> str:
    return f"(?:{alternatives.replace(chr(10), '|')})"


_LEAD: Final = r"""please|pls|plz|just|hey|hi|hello|ok(?:ay)?|so|and|also|oh|well|now|um+|uh+|do
always|kindly|help me|try to|thanks|(?:can|could|would|will) you
i(?:'d| would)? (?:want|like|need) you to
(?:you|be|make) (?:should|must|need to|have to|sure (?:to|you))
for (?:the future|later|next time|(?:future|later) reference)|from now on|bitte|hallo|also|und
übrigens|(?:kannst|könntest|würdest|merkst) du|(?:können|könnten) sie|ich (?:möchte|will), dass du
du sollst|s'il (?:te|vous) pla[iî]t|bonjour|salut|alors|et
(?:est-ce que |que )?(?:tu (?:peux|pourrais|pourras)|vous (?:pouvez|pourriez))|(?:peux|pourrais)-tu
(?:pouvez|pourriez)-vous|(?:je veux|j'aimerais|je voudrais|il faut) que tu|merci de|por favor|que
hola|oye|y|(?:puedes|podrías|puede|podría)|(?:quiero|necesito|me gustaría) que"""
_REQUEST: Final = r"""remember\b(?! (?:to|when|how|where|what|who|why|me|those|them|the time)\b)
(?:don'?t|do not|never) (?:ever )?forget\b(?! (?:to|about|the|a|an|me)\b)
(?:keep|bear) (?:\w+ )?in mind|(?:make|take) (?:a )?note(?: that|:)
(?:save|store|note|record) that (?:i|my)\b|memori[sz]e(?: that|:| this)
(?:save|add|store|commit) .{0,20}to (?:your )?memory|store .{0,20}in (?:your )?memory
(?:dir|sich) (?:\w+ ){0,3}merk(?:en|st)\b|(?:\w+,? ){0,4}merke? (?:es )?(?:dir|euch)\b
merken(?::| sie sich\b)|(?:nicht vergessen|präge? dir ein)[:,]
(?:notiere?|speichere?)(?:,| bitte,?| dir\b|:)|vergiss (?:\w+ )?(?:nicht|nie)(?:,? dass|[:.!,]|$)
(?:denke?|erinnere?) (?:dich )?(?:bitte )?(?:daran|dran)(?:,? dass|:)
behalte?,? (?:bitte,? )?(?:dass|.*(?:kopf|gedächtnis))|halte? fest, dass
@F(?: bien| toujours| ceci| cela| ça|,? s'il te plaît)*,?(?: que\b| qu'|\s*:| m(?:on|a|es)\b)
@S(?:,? (?:por favor|siempre|de|esto|eso|lo siguiente|este dato)\b,?)*(?: que\b|\s*:| mis?\b)
@P(?:记(?:住|下|好|着|一下|录一下)|牢记|[把将].+记(?:下|住|好)|(?:存入|保存到|存到)(?:你的)?记忆)
@P(?:记得|别忘[了记]?|不要忘[了记]?|勿忘记?)[我：，:,]
(?:覚えて(?:おいて)?|忘れないで|(?:記憶|メモ|記録)して(?:おいて)?)(?:ください)?[：:、]"""
_FRENCH: Final = r"""souviens[- ]toi|souvenez[- ]vous|rappelle[- ]toi|rappelez[- ]vous|retiens
retenez|retenir|(?:n')?oubli(?:e|ez) (?:\w+ )?(?:pas|jamais)
(?:gard|conserv)(?:e|ez|er) .*(?:mémoire|tête|esprit)|mémorise[rz]?|note[rz]?|prends? (?:\w+ )?note
[àa] (?:retenir|noter)|[mt]e (?:souvenir|rappeler|souviennes|rappelles)|retiennes|enregistre"""
_SPANISH: Final = r"""(?:te )?(?:recuerd[ae]s?|recordar(?:as)?|recordá|ac(?:u[eé]|o)rda(?:te|se))
acord(?:arte|aras)|te acuerdes|memori(?:za|zar|ces)|(?:no|nunca) (?:te |se te )?olvid(?:es|e)
(?:ten|tenga|toma|mant[eé]n) .*(?:cuenta|presente|mente)|ap[uú]nta(?:te|r)?|an[oó]ta(?:te|r)?
toma nota|guardar?(?: en (?:tu )?memoria)?"""
_PLEASE: Final = (
    "(?:请|麻烦|那|好|你|您|帮忙|[帮替给]我|要|可?不?可以|能不?|务必"
    "|一定|千万|以后|我希望|我要你|，|嗯)"
)
_LAST_WORDS: Final = r"""remember(?: that| it| this)?(?: about me| for \w+(?: \w+)?)?
(?:don'?t|never) forget(?: that| it| this)?|(?:keep|bear) (?:that|it|this) in (?:mind|memory)
commit (?:that|it|this) to memory|make a note(?: of (?:that|it|this))?|merke? (?:es )?dir(?: das)?
merk's dir|vergiss (?:das|es) (?:\w+ )?nicht|(?:nicht )?(?:merken|vergessen)|denk (?:daran|dran)
(?:retiens|note|mémorise)-le(?: bien)?|retiens(?: bien)? (?:ça|cela)|souviens-t'en
souviens-toi(?: bien)?(?:-en| de ça)?|(?:ne l'|n'|l')?oublie (?:surtout )?pas(?: ça)?
garde .*(?:tête|mémoire)|recu[eé]rd(?:alo|a esto|a eso)(?: siempre| bien)?|recordarlo
no (?:lo|te|se te) olvid(?:es|e)|(?:tenlo|ten eso) .*|acuérdate(?: de eso)?
(?:ap[uú]nta|an[oó]ta|memoríza)lo|guárdalo en .*memoria
(?:记(?:住|下来?|一下|好|得)|别忘[了记]?|不要忘[了记]?)(?:了|这一点|这个|它|这件事)*"""
_JAPANESE: Final = (
    r"(?:覚えて(?:おいて|いて|て)?|覚えとい?て|覚えておくように|忘れ(?:ないで|ないように|ずに)"
    r"|(?:記憶|メモ)して(?:おいて)?|メモ(?:っ|し)といて|(?:記録し|控え|書き留め)ておいて"
    r"|(?:念頭に置い|頭に入れ|心に留め)て(?:おいて)?)"
    r"(?:ください|くれ|もら|って|いい|いただけ|頂け|ほしい|お願い|します|して|ません|[ますえかねよなる]|です)*"
)
_BEGINS: Final = re.compile(
    rf"\W*(?:{_any(_LEAD)}\b[\s,，]*)*"
    + _any(_REQUEST)
    .replace("@F", _any(_FRENCH))
    .replace("@S", _any(_SPANISH))
    .replace("@P", f"{_PLEASE}*"),
    re.IGNORECASE,
)
_ENDS: Final = re.compile(
    rf"(?:(?:[,;:，、—–-] ?|\A\W*)(?:{_any(_LEAD)}[ ,]*|{_PLEASE})*{_any(_LAST_WORDS)}"
    rf"(?:[ ,，]*(?:please|bitte|por favor|[吧哦啊吗]|好吗|谢谢))*\W*\Z"
    rf"|{_JAPANESE}(?:のですが)?(?:\W*\Z|[、：:]))",
    re.IGNORECASE,
)
_I_HAVE: Final = r"\bi(?:'ve|'ll| have| will) (?:just |now |also |always |(?:be|make) sure to )*"
_CLAIM: Final = r"""@I(?:remember(?:ed)?\b(?! to\b)|memori[sz]ed|committed .*memory|made a note of)
@Ikeep (?:that|this|it) in mind(?! (?:while|when|as))|\bi won't forget (?:that|this|it|you)
\bi(?:'ve| have)? (?:\w+ )?(?:saved|stored|noted|added|deleted) .*\b(?:memory|(?:my|your) notes)\b
\bi(?:'ve| have)? (?:\w+ )?(?:saved|stored|noted) (?:that|this|it)(?: down| for you)?\W*\Z
merke ich mir\b|\bich merke? mir\b|\bich (?:habe?|werde) (?:\w+ )*mir (?:\w+ )*(?:ge)?merk
habe? ich mir (?:\w+ )*gemerkt
\bich (?:habe )?(?:mir )?(?:das|es) (?:mir )?(?:gespeichert|notiert)\W*\Z
\bich behalte .*(?:kopf|gedächtnis)|\bje (?:m'en |me )?(?:souviendrai|retiens que|retiendrai)
\bj'ai (?:bien )?(?:retenu|mémorisé)|\bje garde .*en tête
\bj(?:e l'ai|'ai) (?:noté|enregistré)(?: (?:ça|cela))?\W*\Z|\brecordaré\b|\bno lo olvidaré
\bme acordaré|\bhe memorizado|\blo he (?:guardado|anotado|apuntado)\W*\Z
(?:我|已|会)[^，。]{0,6}(?:记住|牢记)|我会记得|我记下|不会忘记
\A\W*我(?:已经?)?(?:保存|记录)了\W*\Z|覚え(?:ました|ておきます)|記憶し(?:ました|ておきます)
忘れません|\A\W*メモし(?:ました|ておきます)\W*\Z"""
_CLAIMS: Final = re.compile(_any(_CLAIM).replace("@I", _I_HAVE), re.IGNORECASE)
_MODAL: Final = re.compile(
    r"\b(?:can|could|would|will) you\b|kannst|könnte|würde|können|peux|pourr|pouvez|pued|podrí"
    r"|能|可以|くれ|もらえ",
    re.IGNORECASE,
)
_CONDITION: Final = re.compile(r"\b(?:if|wenn|si|als|se)\b|如果|なら", re.IGNORECASE)
_FACTS: Final = (
    f"{FROM_THE_RUNTIME} No memory tool succeeded in this turn: nothing was "
    "saved, changed or deleted. {what}If neither is the case, answer with exactly "
    f"{NOTHING_TO_ADD} and nothing else."
)
_CAN: Final = (
    "If the user asked for something to be kept, changed or forgotten, call the memory tool for "
    "it now, or tell the user plainly that nothing was saved. If your answer said that "
    "something was saved, do the same. "
)
_CANNOT: Final = (
    "No tool that saves is switched on. If the user asked for something to be kept, or your "
    "answer said that something was, tell the user plainly that nothing was saved. "
)


def facts(message: str, answer: str, ledger: Ledger, *, can_save: bool) -> str:
    """What the model is told when it is asked once more; empty where there is no need.

    Args:
        message: What the user has said in this turn.
        answer: What the model has answered.
        ledger: What memory did in the turn.
        can_save: Whether a tool that saves is on offer.
    """
    asked = not ledger.kept and asks(message)
    claimed = not ledger.changed and not ledger.wrote and claims(answer)
    if not asked and not claimed:
        return ""
    return _FACTS.format(what=_CAN if can_save else _CANNOT)


def asks(message: str) -> bool:
    """Whether `message` begins or ends with a plain request to remember something; a greeting may
    stand before it, and thanks behind it."""
    sentences = _sentences(message)
    return _first_is_request(sentences) or _first_is_request(sentences[::-1])


def _first_is_request(sentences: Sequence[str]) -> bool:
    for sentence in sentences:
        if _is_request(sentence):
            return True
        if len(sentence) > _GREETING_MAX_CHARS:
            break
    return False


def claims(answer: str) -> bool:
    """Whether `answer` claims, or promises, in the first person that something is remembered."""
    return any(
        _CLAIMS.search(sentence) and not _CONDITION.search(sentence) and not _is_question(sentence)
        for sentence in (each[-_CROP_CHARS:] for each in _sentences(answer))
    )


def _sentences(text: str) -> list[str]:
    text = text.replace("’", "'")
    return [found[0].strip() for found in _SENTENCE.finditer(text) if found[0].strip()]


def _is_request(sentence: str) -> bool:
    if _is_question(sentence) and _MODAL.search(sentence) is None:
        return False
    return bool(_BEGINS.match(sentence[:_CROP_CHARS]) or _ENDS.search(sentence[-_CROP_CHARS:]))


def _is_question(sentence: str) -> bool:
    return sentence.rstrip("\"'”’)» ").endswith(("?", "？"))
