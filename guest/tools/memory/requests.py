"""Requests to remember that cannot be mistaken, in the languages of the guide.

"Remember that …" at the beginning gives the words; "save this" and its like, as a whole sentence,
points at what was read or said.
"""

import re
from typing import Final

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
    r"(?:(?:保存|记住|记下)(?:这个|这些|这些信息|一下这个)|把(?:这个|这些|它)(?:保存|记)(?:下来|住)?|学习并保存)",
    r"(?:(?:これ|それ|この情報)を(?:保存して|覚えて(?:おいて)?|記録して)(?:ください)?)",
)
"""The whole sentence that points at what was read or said."""

_COURTESY: Final = (
    r"(?:please|pls|bitte|s'il (?:te|vous) pla[iî]t|por favor|per favore|alsjeblieft|proszę"
    r"|пожалуйста|请|ok(?:ay)?|oh|hey|hi|thanks|danke|merci|gracias|grazie|obrigad[oa]|dank je"
    r"|dzięki|спасибо|谢谢|ありがとう)[,.!:]?\s*"
)
_AND: Final = "(?:and |then |und |et |y |e |en |и )?"
BEGINNING: Final = re.compile(
    rf"\W*{_AND}(?:{_COURTESY})?(?:{'|'.join(_BEGINNINGS)})\s*", re.IGNORECASE
)
POINTS: Final = re.compile(
    rf"(?P<before>(?:.*(?P<mark>[.!?…,;。！？，、\n]))?)\s*{_AND}"
    rf"(?:{_COURTESY})?(?:{'|'.join(_POINTING)})(?:,?\s*{_COURTESY})?[\s.!。！]*",
    re.IGNORECASE | re.DOTALL,
)
