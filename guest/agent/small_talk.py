"""Messages that ask memory nothing: greetings, thanks, yes and no.

Scores are relative to the best result, so a search for such words always brings something,
and never what the user was after.
"""

import re
from typing import Final

from guest.memory.keyword import STOP_WORDS

_WORDS: Final = re.compile(r"\w+")
_ASKING: Final = frozenset(["how", "what", "when", "where", "which", "who", "whom", "why"])
_SMALL_TALK: Final = frozenset(
    """
    absolutely afternoon ahead alright bad bye cheers continue cool correct day done evening exactly
    fine go good goodbye great hello hey hi hm hmm indeed job later let lot maybe mind morning much
    never next nice night ok okay oh perfect please problem proceed repeat right see sorry sounds
    stop super sure thank thanks there tomorrow try wait welcome well wonderful wow yeah yep yes
    abend alles bis bitte dank danke das doch einfach es gern gerne genau gut guten gute hallo ich
    in ist ja klar mach machen mal morgen nacht nein nicht ordnung prima richtig schade schön sehr
    so später tag toll tschüss tut vielen weiter
    accord allez au beaucoup bien bon bonjour bonne bonsoir ce ça continue d est et il journée
    merci mille non nuit oui parfait plaît revoir salut soir super te tout très va vous
    adiós bien buenas buenos claro de días eso está gracias hasta hola luego muchas muy noches no
    perfecto por favor que sigue sí tardes todo vale
    addio allora arrivederci buona buonasera buongiorno certo ciao così accordo di essere favore
    grazie mille molto notte perfetto per piacere prego sera sì tutto va
    adeus até boa bom certo claro dia está isso logo muito não noite obrigada obrigado olá ótimo
    perfeito sim tarde tchau tudo um
    bedankt dag dank doei ga goed goede goedemorgen graag heel hoi jij ja je maar nee oké prima
    tot u verder wel ziens
    bardzo cześć dalej do dobra dobranoc dobry dobrze dzień dziękuję dzięki jasne nie proszę
    super świetnie tak widzenia wieczór zobaczenia
    да до добрый доброе день вечер нет ладно хорошо отлично пожалуйста пока понятно понял поняла
    привет продолжай свидания спасибо супер утро большое здравствуйте конечно ок
    好 好的 好吧 是 是的 不 不是 不用 谢谢 謝謝 谢谢你 非常感谢 多谢 你好 您好 早上好 晚上好 晚安
    再见 继续 请继续 没问题 可以 对 对的 行 嗯 太好了 很好 明白 明白了 知道了 了解
    はい いいえ うん ええ ありがとう ありがとうございます どうも お願いします こんにちは こんばんは
    おはよう おはようございます おやすみ おやすみなさい さようなら 了解 了解です わかりました 続けて
    続けてください いいね いいですね 大丈夫 大丈夫です すみません
    """.split()  # noqa: SIM905 - readable as prose
)


def is_small_talk(text: str) -> bool:
    """Whether `text` holds nothing but courtesy, assent, refusal and grammar, in any of the
    languages in which saves are understood. A question is none, whatever its words."""
    words = _WORDS.findall(text.casefold())
    if any(mark in text for mark in "?？") or not _ASKING.isdisjoint(words):
        return False
    return all(word in _SMALL_TALK or word in STOP_WORDS for word in words)
