"""When the model is asked once more, because words and receipts do not agree.

Only a plain request to remember triggers it, at the beginning or the end of a message, or a claim
about memory in the first person: it costs a call of the model, and receipts tell the truth without
it. How much it sees and how often it is wrong is measured (docs/guide/save-promise.md).
"""

import re
import unicodedata
from typing import Final

from guest.agent.receipts.ledger import Ledger
from guest.tools.memory.provenance import TOO

NOTHING_TO_ADD: Final = "OK"
"""What the model answers to a false alarm; it is neither shown nor stored."""

SHORT_CHARS: Final = 24
"""Nor is an answer without a call that is as short, where a tool that saves is on offer, nor one
that says what the first one did: receipts tell what memory did."""

FROM_THE_RUNTIME: Final = "[This is the runtime, not the user.]"
"""How the facts begin that the model is asked once more with."""

STEPS_MAX: Final = 3
"""Model requests: to look for a note, to save, and to say so."""

_GREETING_MAX_CHARS: Final = 20
_CROP_CHARS: Final = 200
"""The part of a sentence that is looked at: the expressions take quadratic time."""
_SIMPLIFIED: Final = str.maketrans("請記幫別備註這將個", "请记帮别备注这将个")
_QUOTED: Final = re.compile(r'"[^"\n]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」')
_SENTENCE: Final = re.compile(r"[^.!?…。！？\n]+[.!?…。！？]*")


def _plain(text: str) -> str:
    """`text` as people type it in a hurry: without accents on Latin letters, and in simplified
    characters."""
    text = re.sub("(?<=[a-zA-Z])[\u0300-\u036f]+", "", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", text).translate(_SIMPLIFIED)


_TOO: Final = re.compile(rf"{_plain(TOO)}|(?<!\w)(?:also|aussi|ook),? |也", re.IGNORECASE)


def _any(alternatives: str) -> str:
    return f"(?:{_plain(alternatives).replace(chr(10), '|')})"


_LEAD: Final = r"""pl[easz]{1,5}|btw|just|hey|hi|hello|ok(?:ay)?|so|and|also|oh|well|now|um+|uh+|do
always|kindly|help me|try to|thanks|(?:can|could|would|will) y?o?u|from now on|bitte|hallo|und|danke
i(?:'d| would)? (?:want|like|need) you to|(?:you|be|make) (?:should|must|need to|have to|sure (?:to
you))|for (?:the future|later|next time|(?:future|later) reference)|merci(?: de)?|du soll(?:te)?st
(?:kannst|könntest|würdest|merkst) du|(?:können|könnten|würden) sie|s'il (?:te|vous) plaît|stp|svp
ich (?:möchte|will|hätte gern),? dass? (?:du|sie)|veuillez|salut|alors|et|pense[sz]? à|por favor
(?:est-ce que |que )?(?:tu (?:peux|pourrais|devrais)|vous (?:pouvez|pourriez))|que|oye|y|deja
(?:peu[xt]|pourrais|pouvez|pourriez)[- ](?:tu|vous)|(?:puedes?|podrías?|deberías?)(?: usted)?
(?:je ve?ux|j'aimerais|je voudrais|il faut) que (?:tu|vous)|il faut|hay que
(?:quiero|necesito|me gustaría) que|porfa|hola
gracias|[^.,]{3,30} (?:if|wenn|si|que) (?:you|du|sie|tu|vous)(?: could)?"""
_REQUEST: Final = r"""rem+e?m?b?e?m?e?r(?:ing)?\b(?! (?:to|when|how|where|what|who|why|me|those|them
the time)\b)|(?:don'?t|do not|never) (?:ever |you )*forget\b(?! (?:to|about|the|a|an|me)\b)
(?:keep|bear) (?:\w+ )?in mind|(?:make|take) (?:a (?:mental )?)?note(?: of this)?(?: that|:)
(?:note|write|jot|put|take)(?: this| it)? down(?: please)?(?: that|:)
note (?:please|(?:for|to) \w+):|(?:save|store|note|record)(?: please)? that (?:i|my)\b
(?:save|note|store|record|keep) this(?: for \w+)?:|memori[sz]e(?: that|:| this)
(?:save|add|store|commit|put|keep) .{0,20}(?:to|in) (?:your )?memory
@G(?:,? (?:dass\b|(?:das )?(?:ich|mein\w*|wir|unser\w*)\b)|:)|(?:\w+,? ){0,4}merke? (?:dir|euch)\b
(?:nimm|nehmen sie|speicher|behalt)\w* .{0,30}(?:gedächtnis|kopf)\b
@F(?: que\b| qu'|\s*:| m(?:on|a|es)\b)|@S(?: (?:que|[qk])\b|\s*:| mis?\b)
(?:ajoute|mets|garde|note|enregistre|añad|agreg|pon|guard)\w* .{0,20}mémoi?r\w+
@P(?:记(?:住|下|好|着|一下|录一下|录我)|牢记|[把将].+记(?:下|住|好)|备注一下|[做写]个?(?:笔记|备注))
@P.{0,8}[存放加记写保][存入到进在].{0,3}记忆|@P(?:记得|(?:别|不要|勿)忘[了记]?)[哈哦啊]?[我：，:,]|@P(?:别|不要|勿)忘[了记]?[^，。？?]{1,12}是|@P保存一?下?[：:]"""
_GERMAN: Final = r"""merk(?:en?|st)?|notier(?:en?)?|speicher[en]?n?|(?:be)?halte?n?|präge?n?
denke?n?|(?:schreib|halt)e?n?(?: \w+){0,3} (?:auf|fest)|(?:auf|fest|ab)(?:schreib|halt|speicher)e?n
(?:mach|leg|erstell)\w*(?: \w+){0,3} (?:notiz|vermerk)
(?:nicht )?vergessen|erinnere? dich|verg(?:iss|essen sie)(?: \w+){0,2} (?:nicht|nie|niemals)"""
_BETWEEN: Final = r"""dir|sie|sich|bitte|mal|doch|das|es|dies|diese info(?:rmation)?|ab|auf|an|ein
fest|gut|kurz|immer|dran|daran|für (?:später|mich|die zukunft)"""
_FRENCH: Final = r"""souvien[st][- ](?:toi|t'en)|souvenez[- ]vous|rappel(?:le|ez)[- ](?:toi|vous)
retiens|retenez|retenir|(?:ne |n'|l')*oubli(?:e|ez) (?:\w+ )?(?:pas|jamais)|mémorise[rz]?|note[rz]?
(?:gard|conserv)(?:e|ez|er) .*(?:mémoire|tête|esprit)|prend(?:s|ez|re)? (?:\w+ )?note|retiennes
[àa] (?:retenir|noter)(?: pour \w+ \w+)?|[mt]e (?:souvenir|rappeler|souviennes|rappelles)
enregistre[rz]?|écris"""
_SPANISH: Final = r"""(?:te )?(?:recu[eé]rd[ae]s?|recordar(?:as)?|recordá|ac(?:u[eé]|o)rda(?:te|se))
(?:te )?acord(?:arte|aras)|te acuerdes|memori(?:zar?|ces?)|(?:no|nunca) (?:te |lo |se )*olvides?
(?:ten|tenga|toma|tome|mant[eé]n)(?:lo)? .*(?:cuenta|presente|mente)|ap[uú]nt[ae](?:te|r|s)?
an[oó]t[ae](?:te|r|s)?|anotado|tom[ae] nota|gu[aá]rd[ae](?:te|r|s)?|registr[ae]r?"""
_MORE: Final = r"""bien|nunca|toujours|surtout|ceci|cela|ça|siempre|a?de|es[ot]o|lo siguiente
este dato|stp|svp|porfa|por favor|s'il (?:te|vous) plaît"""
_PLEASE: Final = (
    "(?:请|麻烦|那|好|你|您|帮忙|[帮替给]我|要|可?不?可以|能不?|务必"
    "|一定|千万|以后|我?希望|我想|我要你|牢牢|应该|让|，|嗯)"
)
_LAST_WORDS: Final = r"""remember(?: that| it| this)?(?: about me| for \w+(?: \w+)?)?
(?:don'?t|never) forget(?: that| it| this)?|(?:keep|bear) (?:that|it|this) in (?:mind|memory)
commit (?:that|it|this) to memory|make a note(?: of (?:that|it|this))?|@G|@F|@S
(?:write|jot|note) (?:that|it|this) down|merk's dir
(?:记(?:住|下来?|一下|好|得)|别忘[了记]?|不要忘[了记]?)(?:了|这一点|这个|它|这件事)*"""
_JAPANESE: Final = (
    r"(?:(?:(?:覚|憶|おぼ)え|(?:記憶|メモ)し|念頭に置い|頭に入れ|心に留め)て|(?:記憶|メモ)を?お願い"
    r"|(?<![うくすつぬむるぐぶ]のを)忘れ(?:ないで|ないように|ずに)|(?:覚え|おぼえ|入れ|メモ[っし])とい?て"
    r"|(?:覚えておく(?:ように|といい)|お忘れなく|(?:記録し|控え|書き留め)ておいて)|(?:(?<=と)|(?<=って)|\A\W*)(?:記録|保存)して)"
    r"(?:おいて|いて|て)?(?:ください|下さい|くれ|もら|って|いい|いただけ|頂け|[ほ欲]しい|お願い|します"
    r"|して|ません|[ますえかねよなるとり]|助か|嬉し|うれし|幸い|です)*"
)


def _with_verbs(pattern: str) -> str:
    for mark, verbs, more in (("@F", _FRENCH, _MORE), ("@S", _SPANISH, _MORE)):
        pattern = pattern.replace(mark, rf"{_any(verbs)}(?:-l[ea]|lo)?(?:,? {_any(more)}\b,?)*")
    between = _any(_BETWEEN)
    german = rf"(?:{between} )*{_any(_GERMAN)}(?:,? {between}\b)*"
    return pattern.replace("@G", german).replace("@P", f"{_PLEASE}*")


_LEADS: Final = rf"(?:{_any(_LEAD)}\b[\s,，]*)*"
_BEGINS: Final = re.compile(
    rf"\W*(?:[^.,:，：]{{1,24}}(?:[,，:] ?| [-–—] )){{0,2}}{_LEADS}{_with_verbs(_any(_REQUEST))}",
    re.IGNORECASE,
)
_ENDS: Final = re.compile(
    rf"(?:(?:[,;:，、—–-] ?|\A\W*)(?:{_LEADS}|{_PLEASE}*){_with_verbs(_any(_LAST_WORDS))}"
    rf"(?:[ ,，]*(?:{_any(_LEAD)}|[吧哦啊吗呢哈]|好吗|谢谢))*\W*\Z"
    rf"|{_plain(_JAPANESE)}(?:のですが|んだけど)?(?:\W*\Z|[、：:,]))",
    re.IGNORECASE,
)
_I_HAVE: Final = r"\bi(?:'ve|'ll| have| will) (?:just |now |also |always |(?:be|make) sure to )*"
_CLAIM: Final = r"""@I(?:remember(?:ed)?\b(?! to\b)|memori[sz]ed|committed .*memory|made a note of)
@Ikeep (?:that|this|it) in mind(?! (?:while|when|as))|\bi won't forget (?:that|this|it|you)
\bi(?:'ve| have)? (?:\w+ )?(?:saved|stored|noted|added|deleted) .*\b(?:memory|(?:my|your) notes)\b
\bi(?:'ve| have)? (?:\w+ )?(?:saved|stored|noted) (?:that|this|it)(?: down| for you)?\W*\Z
merke ich mir\b|\bich merke? mir\b|\b(?:ich (?:habe?|werde) .*mir|habe? ich mir) .*(?:ge)?merk
\bich (?:habe )?(?:mir )?(?:das|es) (?:mir )?(?:gespeichert|notiert)\W*\Z
\bich behalte .*(?:kopf|gedächtnis)|\bje (?:m'en |me )?(?:souviendrai|retiens que|retiendrai)
\bj'ai (?:bien )?(?:retenu|mémorisé)|\bje garde .*en tête
\bj(?:e l'ai|'ai) (?:noté|enregistré)(?: (?:ça|cela))?\W*\Z|\brecordaré\b|\bno lo olvidaré
\bme acordaré|\bhe memorizado|\blo he (?:guardado|anotado|apuntado)\W*\Z
(?:我|已|会)[^，。]{0,6}(?:记住|牢记)|我会记得|我记下|不会忘记|(?:覚え|記憶し)(?:ました|ておきます)
忘れません|\A\W*(?:我(?:已经?)?(?:保存|记录)了|メモし(?:ました|ておきます))\W*\Z"""
_CLAIMS: Final = re.compile(_any(_CLAIM).replace("@I", _I_HAVE), re.IGNORECASE)
_MODAL: Final = re.compile(
    r"\b(?:can|could|would) you\b|\bk[ao]nn(?:st|te|en)|wurde|\bpeu[xt]|pourr|pouvez|\bpued|podria"
    r"|能|可以|くれ|もらえ|いただけ|頂け",
    re.IGNORECASE,
)
_CONDITION: Final = re.compile(r"\b(?:if|wenn|si|als|se)\b|如果|なら", re.IGNORECASE)
_CAN: Final = (
    f"{FROM_THE_RUNTIME} Did the user ask you to keep, change or forget something? If so, call the "
    f"memory tool for it now. If not, answer {NOTHING_TO_ADD}."
)
_CANNOT: Final = (
    f"{FROM_THE_RUNTIME} No tool that saves is switched on. Did the user ask you to keep "
    "something, or did your answer say that something is saved? If so, tell the user that nothing "
    f"was saved. If not, answer {NOTHING_TO_ADD}."
)


def facts(message: str, answer: str, ledger: Ledger, *, can_save: bool) -> str:
    """What the model is told when it is asked once more; empty where there is no need.

    Args:
        can_save: Whether a tool that saves is on offer.
    """
    asked = not ledger.kept and asks(message)
    claimed = not ledger.changed and not ledger.wrote and claims(answer)
    if not asked and not claimed:
        return ""
    return _CAN if can_save else _CANNOT


def asks(message: str) -> bool:
    """Whether `message` begins or ends with a plain request to remember something; a greeting may
    stand before it, and thanks behind it."""
    sentences = _sentences(message)
    for ordered in (sentences, sentences[::-1]):
        for sentence in ordered:
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
    text = _QUOTED.sub("x", _plain(text.replace("’", "'")))
    return [found[0].strip() for found in _SENTENCE.finditer(text) if found[0].strip()]


def _is_request(sentence: str) -> bool:
    if _is_question(sentence) and _MODAL.search(sentence) is None:
        return False
    sentence = _TOO.sub("", sentence)
    return bool(_BEGINS.match(sentence[:_CROP_CHARS]) or _ENDS.search(sentence[-_CROP_CHARS:]))


def _is_question(sentence: str) -> bool:
    return sentence.rstrip("\"'”’)» ").endswith(("?", "？"))
