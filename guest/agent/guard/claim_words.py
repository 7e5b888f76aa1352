"""How people say that something was saved, changed or deleted: one table per language.

Patterns see a sentence without quotations, emphasis and double blanks, whatever its case.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ClaimWords:
    """One language. `save`, `update` and `delete` are claims, promises among them.

    `opening` may stand before a claim of one word ("Done, saved."), which `saved`,
    `updated` and `deleted` are. `never` is a promise that has its negation in it ("I won't
    forget"). `unless` makes a clause no claim: negations, conditions, offers. `already`
    speaks of another time. `memory` and `files` are what a claim may be about.
    """

    save: str
    delete: str
    update: str
    opening: str
    saved: str
    deleted: str
    updated: str
    never: str
    unless: str
    already: str
    memory: str
    files: str
    spaced: bool = True


_EN_FILL = r"(?:(?:now|just|also|already|successfully|safely|since|then|have|been) )*"
_EN_SAVED = r"(?:saved|stored|noted|memori[sz]ed|recorded|remembered)"
_EN_THIS = r"(?:it|that|this|these|those|them|everything|all of (?:it|that|this))"
_EN_WILL = (
    r"I(?:'ll| will| shall|'m going to| am going to) "
    r"(?:(?:now|also|always|certainly|definitely|gladly|be sure to|make sure to) )*"
)
_EN_NO_MEMORY = (
    r"(?! (?:you|us|(?:some|a lot of|plenty of|a few) (?:time|hours?|money|memory|space))\b)"
)
_EN_THINGS = (
    r"(?:(?:your |the |this )?(?:new )?(?:notes?|memory|memories|preferences?|info(?:rmation)?"
    r"|facts?|details?|entry|reminder|birthday|name|data))"
)
_EN_YOURS = r"your (?:[\w'-]+ ){1,4}(?:is|are|has been|have been)"
_EN_MEMORY = (
    r"(?:your |my |the |our )?(?:long-term )?(?:notes?|memory|memories|scratchpad)"
    r"(?! (?:files?|documents?|folder|app|section)\b)"
)

ENGLISH: Final = ClaimWords(
    save=(
        rf"\b(?:I've|I have|we've|we have) {_EN_FILL}(?:{_EN_SAVED}|logged|jotted"
        r"|written (?:it|that|this|down)|made a (?:mental )?note|taken (?:a )?note"
        r"|committed (?:it|that|this))\b"
        rf"|(?:\b|')(?:I've|I have|I|have been|has been|s been|and) {_EN_FILL}"
        rf"(?:added|put|written|kept|entered)\b.{{1,80}}\b(?:to|into|in) {_EN_MEMORY}\b"
        r"|\bI (?:(?:now|just|also|already|successfully) )*"
        rf"(?:(?:saved|stored){_EN_NO_MEMORY}|memori[sz]ed|recorded|made a (?:mental )?note"
        r"|took note|noted (?:it|this|down|your)|noted that(?=\W*$|[.!,])"
        r"|wrote (?:it|that|this) down)\b"
        rf"|\bI(?:'ve)? [^,;]{{1,80}} and {_EN_FILL}(?:saved|stored|noted|memori[sz]ed|recorded)\b"
        rf"|\b{_EN_THIS}(?:'s| is| are| was| were| has| have| will be) "
        rf"{_EN_FILL}(?:all )?{_EN_SAVED}\b"
        rf"|\b(?:has|have) (?:now |just |already |also )*been {_EN_FILL}{_EN_SAVED}\b"
        rf"|\b(?:is|are) (?:now|safely|all) {_EN_FILL}{_EN_SAVED}\b"
        rf"|\b{_EN_THINGS} (?:was|were) {_EN_FILL}{_EN_SAVED}\b"
        rf"|\b(?:{_EN_THIS}|{_EN_THINGS})(?:'s| is| are) now (?:safely |also )?in {_EN_MEMORY}\b"
        r"|\b(?:is|are) now on (?:record|file)\b"
        rf"|\b(?:{_EN_THIS}|{_EN_THINGS})(?:'s| is| are) (?:safely |also )?in {_EN_MEMORY} now\b"
        rf"|\bI(?:'ve| have) (?:got )?{_EN_THIS} (?:all |now )?{_EN_SAVED}\b"
        r"|\bI(?:'ve| have)? made sure to (?:save|store|remember)\b"
        rf"|\b{_EN_WILL}(?:remember|memori[sz]e|save|store|record|make a (?:mental )?note"
        r"|take note|note (?:it|that|this|down|your)|(?:keep|bear) .{1,40} in (?:mind|memory)"
        r"|keep .{1,40} on (?:file|record))\b"
        rf"|\b{_EN_YOURS} (?:now |safely |all |already )*{_EN_SAVED}"
        r"(?=\W*$|[.!,;:—–]| (?:in|to) (?:my|your) \w+| for (?:later|next|future))"
        r"|\b(?:I'm|I am) (?:now |just )*(?:saving|storing|noting|memori[sz]ing|recording"
        r"|making a note)\b"
        r"|\blet me (?:just |quickly |also )*(?:save|store|note|memori[sz]e|remember|make a note)\b"
        rf"|\b(?:saving|storing|noting) (?:{_EN_THIS}|your)\b.{{0,120}}\bnow\b"
        r"|\bconsider (?:it|that) (?:done and )?(?:saved|noted|stored|remembered)\b"
    ),
    delete=(
        rf"\b(?:I've|I have|I|we've|we have) {_EN_FILL}(?:deleted|erased)\b"
        rf"|\b(?:I've|I have|I|have been|has been) {_EN_FILL}"
        rf"(?:removed|cleared|wiped|dropped)\b.{{0,120}}\b{_EN_MEMORY}\b"
        rf"|\b(?:I've|I have) {_EN_FILL}forgotten (?:it|that|this|your|about|everything)\b"
        rf"|\b{_EN_THIS}(?:'s| is| are| was| were| has| have) {_EN_FILL}(?:all )?"
        r"(?:deleted|erased|forgotten)\b"
        rf"|\b{_EN_THINGS} (?:was|were) {_EN_FILL}(?:deleted|erased|forgotten)\b"
        rf"|\b(?:has|have) {_EN_FILL}been {_EN_FILL}(?:deleted|erased|forgotten)\b"
        rf"|\b{_EN_WILL}(?:delete|erase|forget)\b"
    ),
    update=(
        rf"\b(?:I've|I have|I|we've|we have) {_EN_FILL}updated (?:it|that|this|your)\b"
        rf"|\b(?:I've|I have|I|we've|has been|have been) {_EN_FILL}"
        rf"(?:updated|changed|corrected|amended|replaced|edited)\b.{{0,120}}\b{_EN_MEMORY}\b"
        rf"|\b{_EN_MEMORY} (?:is|was|has|have|are) {_EN_FILL}"
        r"(?:updated|changed|corrected|amended|replaced)\b"
        rf"|\b{_EN_THIS}(?:'s| is| has| was) {_EN_FILL}updated\b"
        rf"|\b{_EN_WILL}(?:update|correct|amend)\b.{{0,120}}\b(?:{_EN_MEMORY}|it|that|this)\b"
    ),
    opening=(
        r"done|ok(?:ay)?|sure(?: thing)?|great|got it|all ?right|all set|perfect|thanks|thank you"
        r"|of course|absolutely|certainly|yes|yep|nice|understood|good|success|no problem"
    ),
    saved=(
        rf"(?:{_EN_THINGS} )?(?:duly |successfully |all |now )*{_EN_SAVED}"
        r"(?=\W*$|[.!,;:✓✅—–-]| (?:it|that|this|them|your|to|for|under|as|down"
        r"|in (?:your|my|memory)|(?:the|this|that|all) (?:notes?|info(?:rmation)?|facts?|details?"
        r"|data|preferences?)|successfully|safely|and)(?:$|\W))"
    ),
    deleted=(
        rf"(?:{_EN_THINGS} )?(?:successfully )?(?:deleted|erased|forgotten)"
        r"(?=\W*$|[.!,;:—–-]| (?:it|that|this|them|your|the|successfully|from)\b)"
    ),
    updated=(
        rf"(?:{_EN_THINGS} )?(?:successfully )?updated"
        r"(?=\W*$|[.!,;:—–-]| (?:it|that|this|your|successfully)\b)"
    ),
    never=r"\bI(?:'ll never| will never| won't| will not|'ll not) forget\b",
    unless=(
        r"\b(?:not|never|nothing|no(?! problem| worries)|none|cannot|can|could|would|should|might"
        r"|may (?:be|have|not)|must|unless|whether|if|once (?:I|it|you|that|this)"
        r"|when (?:I|it|you|that|this)|before|until|how|had)\b|n't\b"
        r"|\b(?:ask|asked|want|wanted|like) me to\b|\b(?:for|to) you to\b"
    ),
    already=(
        r"\b(?:already|earlier|previously|yesterday|before|back (?:in|on|then)"
        r"|last (?:time|night|week|month|year)|(?:days?|weeks?|months?|years?|hours?|while) ago"
        r"|on \d{4}-\d\d-\d\d)\b"
    ),
    memory=r"\b(?:notes?|scratchpad|hand-?off)\b",
    files=r"\b(?:files?|scripts?|documents?|folders?|director(?:y|ies)|code|spreadsheet)\b",
)

_DE_SAVED = (
    r"(?:ab)?(?:gespeichert|gemerkt|notiert|vermerkt|festgehalten|hinterlegt|eingeprägt"
    r"|aufgeschrieben|abgelegt)"
)

GERMAN: Final = ClaimWords(
    save=(
        rf"\b(?:ich hab'?e?|hab'?e?(?: ich)?|wir haben)(?:'s)?\b[^,;:]{{0,80}}?\b{_DE_SAVED}\b"
        r"|\b(?:das|es|dies|alles|dein\w*|deine \w+|ihre? \w+|die information(?:en)?|der text)\b"
        rf"[^,;:]{{0,40}}\b(?:ist|sind|wurden?)\b[^,;:]{{0,40}}\b{_DE_SAVED}\b"
        r"|\b(?:ich merke|merke ich)\b[^,;:]{0,30}\bmir\b"
        r"|\bich (?:speichere|notiere|vermerke|behalte)\b|\b(?:notiere|speichere|behalte) ich\b"
        r"|\b(?:steht|ist|sind|liegt) (?:jetzt|nun|ab jetzt) in (?:meinem|deinem|ihrem)"
        r" (?:gedächtnis|notizen)\b"
        r"|\b(?:ich hab'?e?|hab'?e? ich)\b[^,;:]{0,60}\b(?:in|zu) (?:meine|deine|ihre)[mn]?"
        r" (?:gedächtnis|notizen)\b[^,;:]{0,20}\b(?:hinzugefügt|aufgenommen|eingetragen)\b"
        r"|\b(?:ich werde|werde ich)\b[^,;:]{0,60}\b(?:merken|speichern|notieren|behalten"
        r"|daran denken)\b"
    ),
    delete=(
        r"\b(?:ich hab'?e?|habe ich|wurden?|ist|sind)\b[^,;:]{0,80}\bgelöscht\b"
        r"|\bich habe\b[^,;:]{0,60}\baus (?:meinem|dem) gedächtnis (?:entfernt|gestrichen)\b"
        r"|\b(?:ich lösche|ich werde\b[^,;:]{0,60}\blöschen)\b"
    ),
    update=(
        r"\b(?:ich hab'?e?|habe ich|wurden?|ist|sind)\b[^,;:]{0,80}\baktualisiert\b"
        r"|\b(?:ich hab'?e?|habe ich)\b[^,;:]{0,60}\b(?:notiz|gedächtnis)\b[^,;:]{0,40}"
        r"\b(?:geändert|korrigiert|angepasst|ersetzt)\b"
    ),
    opening=(
        r"ok(?:ay)?|gut|klar|alles klar|erledigt|gerne?|natürlich|super|prima|danke|fertig"
        r"|verstanden|ja|in ordnung|selbstverständlich"
    ),
    saved=(
        rf"(?:(?:Notiz|Information(?:en)?|Angaben?) )?(?:ist |wird )?{_DE_SAVED}"
        r"(?=\W*$|[.!,;:—–-]| (?:ist|und)\b)"
    ),
    deleted=r"(?:Notiz )?(?:ist )?gelöscht(?=\W*$|[.!,;:—–-])",
    updated=r"(?:ist )?aktualisiert(?=\W*$|[.!,;:—–-])",
    never=(
        r"\bich (?:werde|vergesse)\b[^,;:]{0,40}\bnicht(?: mehr)?(?: vergessen)?\b(?=\W*$|[.!])"
        r"|\bwerde ich\b[^,;:]{0,40}\bnicht vergessen\b"
    ),
    unless=(
        r"\b(?:nicht|nichts|kein\w*|nie|niemals|kann|könnten?|würden?|soll|sollten?|sollen|möchte\w*"
        r"|wenn|falls|ob|sobald|bevor|bis|konnten?|hätten?)\b"
    ),
    already=r"\b(?:bereits|schon|früher|gestern|letzte[nrs]?|damals|zuvor|vor \w+ \w+en)\b",
    memory=r"\b(?:notiz\w*|gedächtnis\w*)\b",
    files=r"\b(?:datei\w*|skript\w*|dokument\w*|ordner\w*|verzeichnis\w*|code)\b",
)

_FR_SAVED = r"(?:enregistr|not|sauvegard|mémoris|stock|consign)ée?s?|reten(?:u|ue|us|ues)"

FRENCH: Final = ClaimWords(
    save=(
        r"\b(?:j'ai|je (?:l'|les |l')ai|je l'ai|nous avons)"
        rf" (?:(?:bien|aussi|déjà|tout) )*(?:{_FR_SAVED}|pris (?:bonne )?note)\b"
        rf"|\b(?:a|ont) (?:bien |déjà )?été (?:bien )?(?:{_FR_SAVED})\b"
        rf"|\b(?:c'est|tout est|est désormais|sont désormais) (?:bien |déjà )?(?:{_FR_SAVED})\b"
        r"|\b(?:j'ai|je (?:l'|les )ai) (?:bien )?ajoutée?s?\b[^,;:]{0,40}"
        r"\b(?:à|dans) (?:vos|tes|mes|ma|la) (?:notes|mémoire)\b"
        r"|\b(?:c'est|est|sont) (?:maintenant|désormais) dans ma mémoire\b"
        r"|\bje (?:(?:m'en|me|le|la|les|vais|vais m'en|vais le|vais me) )*"
        r"(?:souviendrai|rappellerai|retiendrai|noterai|enregistrerai|sauvegarderai|mémoriserai"
        r"|retiens (?:ça|cela|que)|souvenir|retenir|noter|enregistrer|mémoriser|sauvegarder)\b"
        r"|\bje (?:l'enregistre|le note|la note|le retiens|le mémorise|note ça|note cela"
        r"|m'en souviendrai|garde (?:ça|cela) en (?:tête|mémoire))\b"
    ),
    delete=(
        r"\b(?:j'ai|je l'ai|je les ai|a été|ont été|c'est) (?:bien |déjà )?"
        r"(?:supprim|effac|oubli)ée?s?\b|\bje (?:le |la |les |vais )*(?:supprim|effac)er(?:ai)?\b"
    ),
    update=(
        r"\b(?:j'ai|je l'ai|a été|ont été) (?:bien )?mise?s? à jour\b"
        r"|\bj'ai (?:bien )?(?:modifié|corrigé|remplacé)\b.{0,120}\b(?:note|mémoire)\b"
    ),
    opening=(
        r"d'accord|ok|parfait|très bien|bien|voilà|entendu|fait|c'est fait|compris|merci|oui"
        r"|bien sûr|super"
    ),
    saved=rf"(?:(?:note|information|préférence)s? )?(?:bien )?(?:{_FR_SAVED})(?=\W*$| ?[.!,;:—–-])",
    deleted=r"(?:note )?(?:bien )?(?:supprim|effac)ée?s?(?=\W*$| ?[.!,;:—–-])",
    updated=r"(?:bien )?mise?s? à jour(?=\W*$| ?[.!,;:—–-])",
    never=r"\bje (?:ne l'|n'|ne les )oublierai (?:pas|jamais)\b",
    unless=(
        r"\b(?:ne|pas|rien|jamais|aucun\w*|peux|peut|pourrais?|si|voulez|veux|devrais|quand"
        r"|dès que|avant|jusqu'à|faut)\b|\bn'"
    ),
    already=r"\b(?:déjà|auparavant|hier|plus tôt|dernière|dernier|il y a)\b",
    memory=r"\b(?:notes?|mémoire)\b",
    files=r"\b(?:fichiers?|scripts?|documents?|dossiers?|répertoire|code)\b",
)

_ES_SAVED = r"(?:guardad|anotad|almacenad|registrad|memorizad|apuntad)[oa]s?"

SPANISH: Final = ClaimWords(
    save=(
        rf"\b(?:he|hemos|ha sido|han sido) (?:ya )?(?:{_ES_SAVED}|tomado nota)\b"
        rf"|\bse han? {_ES_SAVED}\b(?=\W*$|[.!,;:]| (?:[ts]us?|correctamente|en mi)\b)"
        r"|\b(?:guardé|anoté|apunté|memoricé|registré|almacené|tomé nota)\b"
        rf"|\b(?:queda|quedan|quedó|ha quedado|está|están|tengo) (?:ya )?{_ES_SAVED}\b"
        r"|\b(?:recordaré|guardaré|anotaré|memorizaré|apuntaré|registraré|tendré en cuenta"
        r"|lo tendré presente|me acordaré|tomo nota|ya lo tengo en (?:mi|la) memoria)\b"
        r"|\b(?:he (?:añadido|agregado)|añadí|agregué)\b[^,;:]{0,40}"
        r"\b(?:tus|sus|mis|mi|la) (?:notas|memoria)\b|\b(?:está|están) ahora en mi memoria\b"
        r"|\bvoy a (?:recordar|guardar|anotar|memorizar|apuntar|registrar)(?:l[oa]s?)?\b"
        r"|\b(?:lo|la|me lo) (?:apunto|anoto|guardo|registro)\b"
    ),
    delete=(
        r"\b(?:he|hemos|ha sido|han sido|se ha) (?:ya )?(?:borrad|eliminad|olvidad)[oa]s?\b"
        r"|\b(?:borré|eliminé|borraré|eliminaré)\b"
    ),
    update=(
        r"\b(?:he|hemos|ha sido|se ha) (?:ya )?actualizad[oa]s?\b|\bactualicé\b"
        r"|\bhe (?:cambiado|corregido|modificado)\b.{0,120}\b(?:nota|memoria)\b"
    ),
    opening=(
        r"hecho|listo|vale|ok|de acuerdo|perfecto|claro|entendido|muy bien|bien|gracias|sí"
        r"|por supuesto"
    ),
    saved=rf"(?:(?:nota|información|dato|preferencia)s? )?{_ES_SAVED}(?=\W*$|[.!,;:—–-])",
    deleted=r"(?:nota )?(?:borrad|eliminad)[oa]s?(?=\W*$|[.!,;:—–-])",
    updated=r"actualizad[oa]s?(?=\W*$|[.!,;:—–-])",
    never=r"\bno (?:lo |la |se me )?olvidar[ée]\b|\bno (?:lo|la) voy a olvidar\b",
    unless=(
        r"\b(?:no|nunca|nada|ningun\w*|puedo|podría|puede|si|quieres|quiere|debería|cuando|antes de"
        r"|hasta)\b"
    ),
    already=r"\b(?:anteriormente|ayer|antes|pasad[oa]|hace|ya lo tengo)\b",
    memory=r"\b(?:notas?|memoria)\b",
    files=r"\b(?:archivos?|ficheros?|scripts?|documentos?|carpetas?|código)\b",
)

_IT_SAVED = r"(?:salvat|memorizzat|annotat|registrat|segnat|appuntat|conservat)[oaie]"

ITALIAN: Final = ClaimWords(
    save=(
        rf"(?:\b|')(?:ho|abbiamo) (?:(?:già|appena|ora|anche) )*(?:{_IT_SAVED}|preso nota)\b"
        rf"|\b(?:è|sono) (?:(?:stat[oaie]|ora|già) )*{_IT_SAVED}\b"
        r"|\b(?:ricorderò|salverò|memorizzerò|annoterò|registrerò|terrò a mente|terrò presente)\b"
        r"|\b(?:me lo|lo|me la) (?:segno|salvo|annoto|appunto|memorizzo)\b|\bprendo nota\b"
        r"|\b(?:ho aggiunto|l'ho aggiunt[oa])\b[^,;:]{0,40}\b(?:tu[ae]|mi[ae]|alla) "
        r"(?:note|memoria)\b"
        r"|\b(?:è|sono) (?:ora|adesso) nella mia memoria\b"
    ),
    delete=(
        r"(?:\b|')(?:ho|abbiamo|è stat[oa]|sono stat[ei]) (?:già )?(?:cancellat|eliminat)[oaie]\b"
        r"|\b(?:cancellerò|eliminerò)\b"
    ),
    update=(
        r"(?:\b|')(?:ho|abbiamo|è stat[oa]|sono stat[ei]) (?:già )?aggiornat[oaie]\b"
        r"|\bho (?:modificato|corretto|cambiato)\b.{0,120}\b(?:nota|memoria)\b"
    ),
    opening=r"fatto|ok|va bene|perfetto|certo|capito|bene|grazie|sì|ecco|certamente|d'accordo",
    saved=rf"(?:(?:nota|informazione|preferenza) )?{_IT_SAVED}(?=\W*$|[.!,;:—–-])",
    deleted=r"(?:cancellat|eliminat)[oaie](?=\W*$|[.!,;:—–-])",
    updated=r"aggiornat[oaie](?=\W*$|[.!,;:—–-])",
    never=r"\bnon (?:lo |la |me ne |me lo )?(?:dimenticherò|scorderò)\b",
    unless=(
        r"\b(?:non|mai|niente|nulla|nessun\w*|posso|potrei|può|se|vuoi|vuole|dovrei|quando|prima di"
        r"|finché)\b"
    ),
    already=r"\b(?:già|in precedenza|ieri|prima|scors[oa]|fa)\b",
    memory=r"\b(?:nota|note|memoria|appunti)\b",
    files=r"\b(?:file|script|document[oi]|cartell[ae]|codice)\b",
)
