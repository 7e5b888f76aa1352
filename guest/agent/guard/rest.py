"""What a message says beside a request to keep something: an order, a statement, a question,
or that something is to be read."""

import re
from typing import Final

_MAKES: Final = re.compile(
    r"(?:^|[.!?,;\n]\s*|\b(?:and|then|und|dann|et|puis|y|luego|e|poi|depois|en|dan|i|potem|и|потом"
    r"|please|bitte|you|du|tu|je|ty|ты)\s)\s*(?:"
    r"explain|describe|summari[sz]e|sum up|translate|write|draft|extract|calculate|compute|compare"
    r"|find(?! (?:below|attached|enclosed))|look up|figure out|work out|analy[sz]e|suggest"
    r"|recommend|convert|install|define|(?:tell|give) (?:me|us)"
    r"|(?:list|outline|make|create|plan|research|check|show|run|fix)"
    r" (?:me|us|the|this|that|it|all|an?|my|our|what|how|why|who|when|where|which|if|for)"
    r"|erkläre?|beschreibe?|fasse?|übersetze?|vergleiche?|(?:nenne?|sag|gib|zeige?) (?:mir|uns)"
    r"|schreibe?|berechne|finde|analysiere|prüfe?|erstelle"
    r"|explique[zr]?|décri\w+|résume[zr]?|tradui\w+|dis-\w+|donne-\w+|écri\w+|calcule[zr]?|trouve"
    r"|explica|traduce|enumera|escribe|calcula|busca|encuentra|analiza|comprueba"
    r"|spiega|descrivi|riassumi|traduci|elenca|confronta|dimmi|dammi|scrivi|calcola|analizza"
    r"|descreva|resuma|traduza|escreva|procure|encontre|analise|sugira|verifique"
    r"|beschrijf|vertaal|vergelijk|vertel|geef|schrijf|bereken|analyseer|controleer"
    r"|wyjaśnij|opisz|streść|podsumuj|przetłumacz|wymień|porównaj|powiedz|napisz|oblicz|znajdź"
    r"|przeanalizuj|pokaż|sprawdź"
    r"|(?:объясни|опиши|подытожь|переведи|перечисли|сравни|расскажи|напиши|вычисли|посчитай|найди"
    r"|проанализируй|покажи|проверь)(?:те)?"
    r")\b|解释|说明一下|总结|概括|翻译|列出|告诉我|计算|分析|推荐|介绍"
    r"|(?:説明|要約|翻訳|比較|計算|分析)して|教えて|調べて|まとめて|書いて",
    re.IGNORECASE,
)
_LINES_MAX: Final = 2
_MATERIAL: Final = re.compile(
    r"\b(?:read|fetch|open|browse|visit|look(?: at| into)?|learn|study|pages?|articles?|web\w*"
    r"|sites?|links?|urls?|docs?|documentation|manual|pdf|report|wiki"
    r"|lies|lese[nr]?|öffne|seite\w*|artikel\w*|lern\w*|lis|lisez|lire|ouvre|apprend\w*|leer?|lee"
    r"|abre|aprend\w*|página\w*|artículo\w*|leggi|apri|impara|pagina\w*|articolo|leia|artigo|lees"
    r"|leer|przeczytaj|otwórz|ucz|stron\w+|artykuł\w*|прочита\w*|открой|изучи\w*|страниц\w*|стать\w*)\b"
    r"|读|看|打开|学习|网页|页面|文章|読|開|学|ページ|記事",
    re.IGNORECASE,
)
_OWN: Final = re.compile(
    r"(?-i:\bI\b)|\b(?:i'?m|i'?ve|my|mine|we|our|ich|mein\w*|wir|unser\w*|je|j'\w+|mon|ma|mes|nous"
    r"|notre|yo|mi|mis|soy|nuestr\w+|io|mio|mia|sono|nostr\w+|eu|meu|minha|sou|nosso|ik|mijn|wij"
    r"|onze|ja|mój|moj\w+|jestem|я|мой|моя|моё|моего|мы|наш\w*)\b|我|私|僕",
    re.IGNORECASE,
)
_TELLS: Final = re.compile(
    r"\W*(?:I|we|you|they|he|she|it|ich|wir|er|sie|je|nous|il|elle|on|ik|wij|hij|я|мы|он|она|они"
    r"|when(?:ever)?|if|after|once|wenn|nachdem|quand|si|cuando|quando|als|wanneer|gdy|когда|если"
    r"|in this|j')\b",
    re.IGNORECASE,
)
_HOW: Final = re.compile(
    r"\b(?:how|why|whether|what|which|who|where|when|if|way|wie|warum|ob|comment|pourquoi|cómo|come"
    r"|perché|como|hoe|waarom|jak|dlaczego|как|почему)\b|怎|如何|どう",
    re.IGNORECASE,
)
_SOFT: Final = re.compile(
    r"\b(?:(?:keep|bear) in mind|note|denke? (?:bitte )?dar?an|im (?:hinter)?kopf|notez?|à l'esprit"
    r"|en tête|en cuenta|en mente|presente|a mente|em mente|rekening|gedachten|achterhoofd"
    r"|na uwadze|в виду|учти(?:те)?)\b",
    re.IGNORECASE,
)


def is_made(rest: str) -> bool:
    """Whether `rest` orders what only an answer can be, as "explain X" does; of a longer
    text its first line does."""
    lines = rest.splitlines()
    return _MAKES.search(rest if len(lines) <= _LINES_MAX else lines[0]) is not None


def is_material(text: str) -> bool:
    """Whether `text` speaks of reading, or of what can be read."""
    return _MATERIAL.search(text) is not None


def is_own(rest: str) -> bool:
    """Whether `rest` speaks of the user."""
    return _OWN.search(rest) is not None


def is_told(before: str) -> bool:
    """Whether a sentence that begins with `before` tells what somebody does or did."""
    return _TELLS.match(before) is not None


def is_how(before: str) -> bool:
    """Whether `before` asks how, not for the thing itself."""
    return _HOW.search(before) is not None


def is_soft(words: str) -> bool:
    """Whether `words` may as well tell what to heed in a task ("keep in mind that …")."""
    return _SOFT.search(words) is not None
