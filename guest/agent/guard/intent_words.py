"""How people ask for something to be kept: one table per language.

Patterns see one sentence from its beginning, whatever its case.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class IntentWords:
    """One language.

    `lead` may stand before a request any number of times ("please", "and"); `asks` makes a
    request of what follows even in a question ("could you"). `that` is followed by the words
    to keep, `attached` by a colon or a new line and then those words. `this` is a whole
    sentence that points at something; `said` finds in it that this is the last answer,
    `memory` that it is no file that is wanted. `doubtful` asks whether one remembers, where
    no `please` is near. `refused` in front of a request takes it back.
    """

    lead: str
    asks: str
    that: str
    attached: str
    this: str
    said: str
    memory: str
    doubtful: str
    please: str
    refused: str
    thanks: str
    spaced: bool = True


_EN_TYPES = (
    r"(?:info(?:rmation)?|facts?|details?|data|contents?|text|page|article|answer|summary|points?"
    r"|lists?|recipe|explanation|conversation|knowledge|message|website|site|post|things?|stuff)"
)
_EN_MORE_TYPES = (
    r"(?:solution|fix|tips?|trick|decisions?|plan|advice|steps?|preferences?|address(?:es)?"
    r"|numbers?|dates?|names?|quote|idea|rules?|lessons?|findings?|command|snippet)"
)
_EN_SAID = (
    r"(?:what (?:you|we)(?:'ve| have)? (?:just )?(?:said|wrote|told me|answered|explained"
    r"|discussed)|your (?:last |previous )?(?:answer|reply|response|explanation|summary))"
)
_EN_THIS = (
    rf"(?:(?:all (?:of )?)?(?:this|that|it|these|those|them)|everything|{_EN_SAID}"
    r"|(?:all )?(?:this|that|these|those|the|all the)(?: (?:key|important|main|whole|entire|new))*"
    rf" {_EN_TYPES}(?: (?:above|below|here))?|(?:this|that|these|those) {_EN_MORE_TYPES}"
    r"|what (?:you|I)(?:'ve| have)? (?:just )?"
    r"(?:read|learn(?:ed|t)?|find|found|said|told you|wrote)"
    r"|what it says|what(?:'s| is) (?:in it|there|on (?:it|the page|this page)))"
)
_EN_MEMORY = r"(?: (?:in|to|into) (?:your |my |the )?(?:long-term )?(?:memory|memories|notes|mind))"
_EN_TAIL = (
    rf"(?: down)?{_EN_MEMORY}?(?: (?:for|until) (?:later|me|us|(?:the )?next (?:time|week)"
    r"|(?:my |your )?future (?:reference|use|sessions?|chats?|conversations?)|the (?:future|record)"
    r"|good|another time|tomorrow))*(?:,? (?:please|pls|now|too|as well|forever|always|thanks?"
    r"|thank you|thx|(?:going|moving) forward|from now on))*"
)
_EN_NOT = r"(?:don'?t (?:ever )?forget|do not forget|never forget)"
_EN_KEEP = (
    r"(?:save|store|remember|memori[sz]e|note(?: down)?|(?:write|jot) down|record|retain"
    rf"|make a note of|take (?:a )?note of|{_EN_NOT})"
)
_EN_MINE = (
    r"(?:my|our) (?!work|time|money|progress|changes|games?|files?|documents?|photos?)"
    r"(?:[\w'-]+ ){0,3}?[\w'-]+"
)
_EN_TOLD = r"(?: \w+){0,2}? (?:said|told|asked|mentioned|talked|showed|gave|had|was|were)"

ENGLISH: Final = IntentWords(
    lead=(
        r"(?:please|pls|ok(?:ay)?|and|also|so|then|now|hey|hi|hello|oh|btw|by the way|just|oxydra"
        r"|for (?:the future|future reference)|note(?=:)|from now on|in future"
        r"|kindly|yes|great|thanks|thank you|always|but"
        r"|important|fyi|good|perfect|nice)"
    ),
    asks=(
        r"(?:(?:can|could|would|will) (?:you|u|ya) (?:please |pls |also |kindly |just |maybe )*"
        r"|(?:I (?:want|need|would like)|I'd (?:like|love)) you to (?:please |also )?"
        r"|make sure (?:you |to |that you )|be sure to "
        r"|(?:please )?try to |you (?:should|must|need to) |let's )"
    ),
    that=(
        rf"(?:remember|keep in mind|bear in mind|{_EN_NOT}|note(?: down)?"
        r"|(?:write|jot) down|make a (?:mental )?note|take (?:a )?note|memori[sz]e)"
        r"(?: for (?:later|me|next time|the future))?(?:,? please)?,?"
        r"(?: that\b(?! (?:for|in|to|please|going|moving|from|next|until)\b)"
        rf"| (?=(?:I|I'm|I've|I'd|we|we're)\b(?!{_EN_TOLD}\b)"
        r"|(?:my|our) .*\b(?:is|are|was|has|have|likes?)\b))"
        rf"|(?:save|store|add|record){_EN_MEMORY}? that (?=(?:I|I'm|I've|I'd|we|we're|my|our)\b)"
        rf"|(?:{_EN_KEEP}|write down) (?=my preference (?:for|to)"
        rf"|{_EN_MINE}(?:: |(?:[,;]| [-–—])? (?:it's|they're)\b))"
        r"|(?:(?:just )?so (?:that )?you (?:remember|don't forget|know for (?:later|next time))"
        r"|for (?:your |my |our )?future reference)[,:]? "
        r"(?!(?:please|pls|remember|note|keep|save|store|don't|can|could)\b)"
    ),
    attached=(
        rf"(?:(?:save|remember|memori[sz]e|{_EN_NOT}|note(?: to self)?|write down|make a note"
        rf"|take (?:a )?note|(?:{_EN_KEEP}|keep|bear)(?= ))(?: (?:{_EN_THIS}"
        r"|(?:the|these|this) following(?: \w+)?|in mind|down"
        r"|something|(?:one|this one|a few|two|three) (?:more )?things?"
        rf"|for (?:later|me|the future|(?:your |future )?reference))|{_EN_MEMORY})*"
        rf"|(?:add|put|commit)(?: (?:{_EN_THIS}|the following(?: \w+)?))?{_EN_MEMORY})"
        r"(?:,? please)?"
    ),
    this=(
        rf"(?:{_EN_KEEP} {_EN_THIS}{_EN_TAIL}"
        rf"|(?:keep|bear) {_EN_THIS} in (?:mind|memory){_EN_TAIL}"
        rf"|keep {_EN_THIS} for (?:later|me|next time|future reference)(?:,? please)?"
        rf"|(?:write|jot) {_EN_THIS} down{_EN_TAIL}|make a note{_EN_TAIL}"
        rf"|(?:add|put|commit|write) {_EN_THIS}{_EN_MEMORY}{_EN_TAIL}"
        rf"|(?:remember|memori[sz]e|don'?t forget) this (?!time|way)\w+{_EN_TAIL}"
        rf"|(?:save|store|remember|memori[sz]e|add) \S*/\S+{_EN_MEMORY}{_EN_TAIL}"
        rf"|learn (?:from )?(?:{_EN_THIS}|\S*/\S+),?(?: and)?(?: then)? {_EN_KEEP}"
        rf"(?: {_EN_THIS})?{_EN_TAIL}|learn {_EN_THIS}(?: by heart)?(?:,? please)?)"
    ),
    said=rf"\b{_EN_SAID}",
    memory=r"\b(?:remember|memor\w+|learn|forget|notes?|mind)\b",
    doubtful=r"\b(?:remember|forget)\b",
    please=r"\bplease\b|\bmake sure\b|\b(?:going forward|next time|from now on|for later)\b",
    refused=r"\b(?:not|never|no need|without|stop|did|does|do you|if)\b|n't\b",
    thanks=(
        r"\b(?:thanks?|thank you|great|perfect|nice|awesome|wonderful|cool|ok(?:ay)?|hello|hi)\b"
    ),
)

_DE_TYPES = (
    r"(?:Informationen?|Fakten|Daten|Inhalte?|Texte?|Seite|Artikel|Antwort|Zusammenfassung"
    r"|Punkte|Liste|Rezept|Erklärung|Details|Wissen|Nachricht|Lösung|Tipps?|Adresse|Nummer|Regeln?"
    r"|Entscheidung|Plan|Idee|Schritte?|Befehl)"
)
_DE_SAID = (
    r"(?:was du (?:gerade |eben |mir |da )*(?:gesagt|geschrieben|erklärt|erzählt) hast"
    r"|deine (?:letzte )?(?:Antwort|Erklärung|Zusammenfassung))"
)
_DE_THIS = (
    rf"(?:das(?: alles)?|dies(?:es)?|es|alles|{_DE_SAID}"
    rf"|(?:diese[ns]?|die|den|das|alle)(?: \w+)? {_DE_TYPES}|was du (?:gelesen|gelernt) hast)"
)
_DE_LATER = r"für (?:später|mich|die Zukunft|(?:das )?nächste[sn]? ?Mal|künftige \w+)"
_DE_TAIL = (
    rf"(?: bitte| gut| mal)*(?: (?:im (?:Gedächtnis|Kopf|Hinterkopf)|in deine[mn]? \w+|{_DE_LATER}"
    r"|ab|auf))*(?:,? (?:bitte|danke))*"
)
_DE_KEEP = (
    r"(?:merke?(?:'?s)?(?: dir| euch)?|merken Sie sich|speicher[en]?(?: Sie)?|notiere?(?: dir)?"
    r"|notieren Sie(?: sich)?|behalte(?: dir)?|vermerke|schreibe?(?: dir)?|lern[e]?)"
)

GERMAN: Final = IntentWords(
    lead=r"(?:bitte|und|also|ok(?:ay)?|gut|danke|hallo|hey|übrigens|ja|super|dann|nun|jetzt|wichtig)",
    asks=(
        r"(?:(?:kannst|könntest|würdest|könnten|können) (?:du|Sie) (?:dir |sich )?(?:bitte )?"
        r"(?:auch )?|ich (?:möchte|will), dass du (?:dir )?)"
    ),
    that=(
        r"(?:(?:merke?(?: dir| euch)?|merken(?: Sie sich)?|(?:ab)?speichern|notieren"
        r"|denke? (?:bitte )?(?:daran|dran)|vergiss (?:bitte )?(?:nicht|nie)|vergessen Sie nicht"
        r"|notiere?(?: dir)?|behalte?(?: dir)?(?: bitte)? im (?:Kopf|Gedächtnis|Hinterkopf)"
        r"|speicher[en]?)"
        r"(?: bitte)?,? dass\b)"
    ),
    attached=(
        rf"(?:{_DE_KEEP}|merken|speichern|vergiss nicht|denke? daran)(?: bitte)?"
        rf"(?: (?:{_DE_THIS}|Folgendes|das Folgende|folgende \w+|auf|im Gedächtnis|mal"
        rf"|{_DE_LATER}))*(?: bitte)?"
    ),
    this=(
        rf"(?:{_DE_KEEP},?(?: bitte)? {_DE_THIS}{_DE_TAIL}|merk'?s dir(?: bitte)?"
        r"|(?:ab)?speichern|merken"
        r"|vergiss (?:das|es|dies)(?: bitte)? (?:nicht|nie)(?: mehr)?"
        r"|denke? (?:bitte )?(?:daran|dran)"
        r"|lerne? (?:daraus|davon),? und (?:speicher[en]?|merke?(?: dir)?)"
        rf"(?: {_DE_THIS})?{_DE_TAIL}"
        rf"|{_DE_THIS}(?: bitte)?(?: im Gedächtnis| {_DE_LATER})?(?: bitte)?"
        r" (?:merken|speichern|notieren|behalten|abspeichern|aufschreiben))"
    ),
    said=_DE_SAID,
    memory=r"\b(?:merk\w*|lern\w*|vergiss|gedächtnis|denke?|behalte\w*|notizen)\b",
    doubtful=r"(?!)",
    please=r"\bbitte\b",
    refused=r"\b(?:nicht|nie|kein\w*|ohne|wenn|falls|hast du|soll\w*)\b",
    thanks=r"\b(?:danke\w*|super|prima|toll|hallo|ok(?:ay)?|gut|perfekt|klasse)\b",
)

_FR_SAID = (
    r"(?:ce que tu (?:viens de|m'as|as) (?:me )?(?:dire|dit|écrit|écrire|expliqué|expliquer)"
    r"|ta (?:dernière )?(?:réponse|explication))"
)
_FR_THIS = (
    rf"(?:(?:tout )?(?:ça|cela|ceci)|tout|{_FR_SAID}"
    r"|(?:cet|cette|ces|le|la|les|l'|toutes ces|tous ces)[ ]?(?:informations?|faits?|données"
    r"|contenu|texte|page|article|réponse|résumé|points|liste|recette|détails|solution|adresse"
    r"|numéro|astuce|décision|idée|règles?|étapes))"
)
_FR_TAIL = (
    r"(?: bien)?(?: (?:en mémoire|en tête|à l'esprit|dans (?:ta|votre) mémoire"
    r"|pour (?:plus tard|moi|la suite|l'avenir|(?:la|une) prochaine fois)))*"
    r"(?:,? (?:s'il te plaît|s'il vous plaît|stp|svp|merci))*"
)
_FR_KEEP = (
    r"(?:souviens-toi|souvenez-vous|rappelle-toi|retiens|retenez|mémorise[zr]?|enregistre[zr]?"
    r"|sauvegarde[zr]?|note[zr]?|garde[zr]?|retenir|n'oublie(?:z)? (?:pas|jamais))"
)

FRENCH: Final = IntentWords(
    lead=(
        r"(?:s'il te plaît|s'il vous plaît|stp|svp|et|alors|ok|merci|bonjour|salut|aussi|donc|puis"
        r"|oui|bien|important|désormais)"
    ),
    asks=(
        r"(?:(?:peux|pourrais)-tu |(?:pouvez|pourriez)-vous |(?:est-ce que )?tu peux "
        r"|(?:je (?:veux|voudrais)|j'aimerais) que (?:tu |vous )|veuillez )"
    ),
    that=(
        r"(?:souviens-toi|souvenez-vous|te souvenir|rappelle-toi|rappelez-vous|retiens|retiennes"
        r"|reteniez|te souviennes|retenez|retenir|mémorise[zr]?|note[zr]?"
        r"|garde(?:z)? (?:à l'esprit|en tête|en mémoire)|n'oublie(?:z)? (?:pas|jamais))"
        r"(?: bien)?(?: s'il te plaît)?,? qu(?:e\b|'(?=\w))"
    ),
    attached=(
        rf"(?:(?:pour info,? )?à (?:retenir|noter)|{_FR_KEEP})(?: (?:{_FR_THIS}|ce qui suit"
        r"|en mémoire|bien|de ceci|les \w+ suivant[es]{1,2}|le \w+ suivant))*(?:,? s'il te plaît)?"
    ),
    this=(
        rf"(?:(?:{_FR_KEEP})(?: de| d')? ?{_FR_THIS}{_FR_TAIL}|(?:retiens|note|enregistre|mémorise"
        rf"|sauvegarde|garde)(?:[zr]?)-(?:le|la|les){_FR_TAIL}|ne l'oublie (?:pas|jamais){_FR_TAIL}"
        rf"|souviens-t'en{_FR_TAIL}"
        rf"|appren(?:ds|ez)(?:-en| de {_FR_THIS}) et {_FR_KEEP}(?:-le| {_FR_THIS})?"
        rf"{_FR_TAIL})"
    ),
    said=_FR_SAID,
    memory=r"(?:souvien|rappelle|retien|retenir|retenez|mémoire|mémoris|oublie|apprends|note)",
    doubtful=r"(?!)",
    please=r"s'il (?:te|vous) plaît|\bst?vp\b",
    refused=r"\b(?:ne|pas|jamais|sans|si|as-tu|est-ce que)\b(?! l'oublie)",
    thanks=r"\b(?:merci|super|parfait|génial|bonjour|salut|ok|bien)\b",
)

_ES_SAID = (
    r"(?:lo que (?:acabas de|me has|has) (?:decir|dicho|escribir|escrito)|tu (?:última )?respuesta)"
)
_ES_THIS = (
    rf"(?:(?:todo )?(?:esto|eso|aquello)|todo|{_ES_SAID}|(?:est[aeo]s?|es[aeo]s?|l[ao]s?|el|toda la"
    r"|toda esta) (?:información|datos?|hechos?|contenidos?|texto|página|artículo|respuesta|resumen"
    r"|puntos|lista|receta|detalles|solución|dirección|número|decisión|idea|reglas?|pasos|truco))"
)
_ES_TAIL = (
    r"(?: (?:en (?:tu |la )?memoria|para (?:más tarde|después|luego|el futuro|mí|siempre"
    r"|la próxima(?: vez)?|otra vez)|bien|siempre))*(?:,? (?:por favor|porfa(?:vor)?|gracias))*"
)
_ES_KEEP = (
    r"(?:recuerd[ae]|recordar|guard[ae]|guardar|anot[ae]|anotar|apunt[ae]|apuntar|memori[zc][ae]r?"
    r"|almacen[ae]|almacenar|registr[ae]|registrar|no (?:te )?olvides)"
)

SPANISH: Final = IntentWords(
    lead=r"(?:por favor|y|ok|vale|bueno|hola|gracias|también|entonces|luego|sí|ahora|importante)",
    asks=r"(?:(?:puedes|podrías|puede|podría) |(?:quiero|necesito|me gustaría) que )",
    that=(
        r"(?:recuerd[ae]s?|recordar|ten(?:ga)? (?:en cuenta|presente|en mente)|no (?:te )?olvides?"
        r"|anot[ae]|anotar|apunt[ae]|memori[zc][ae]r?|guard[ae]|tom[ae] nota(?: de)?)"
        r"(?:,? por favor,?)? que\b"
    ),
    attached=(
        rf"(?:{_ES_KEEP}|tom[ae] nota)(?: (?:{_ES_THIS}|lo siguiente|la siguiente \w+"
        r"|los siguientes \w+|en (?:tu )?memoria))*(?:,? por favor)?"
    ),
    this=(
        rf"(?:{_ES_KEEP} {_ES_THIS}{_ES_TAIL}"
        rf"|(?:recuérda|recordar|guárda|guardar|anóta|anotar|apúnta|apuntar|memoríza|memorizar)"
        rf"(?:te|me)?l[oa]s?{_ES_TAIL}|no (?:lo|la|te) olvides(?: de (?:esto|eso))?{_ES_TAIL}"
        rf"|aprend[ae] de {_ES_THIS} y (?:guárd[ae]l[oa]s?|guard[ae](?: {_ES_THIS})?){_ES_TAIL})"
    ),
    said=_ES_SAID,
    memory=r"(?:recu[eé]rd|recordar|memori|olvides|aprende|anot|apunt)",
    doubtful=r"\brec(?:uerdas|ordar)\b",
    please=r"\bpor favor\b",
    refused=r"\b(?:no|nunca|sin|si)\b(?! (?:te |lo |la )?olvides)",
    thanks=r"\b(?:gracias|genial|perfecto|hola|vale|ok|bien)\b",
)
