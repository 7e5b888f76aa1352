"""The words by which saves are asked for and claimed, in the languages of the guide.

A stem here costs at most one more call of the model (`second_chance`), so the tables are
wide and cheap. Only `BEGINNINGS` and `POINTING` make the runtime save by itself: they hold
what cannot be mistaken.
"""

from typing import Final

REMEMBER: Final = (
    # English, German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian
    r"rememb\w*|memori\w*|memory|forget\w*|keep(?:ing)? (?:\w+ ){0,3}in mind|bear in mind|by heart"
    r"|(?:for )?(?:future|later) reference",
    r"merk\w*|gemerkt\w*|vermerk\w*|vergiss\w*|gedächtnis|im (?:hinter)?kopf|denk\w* (?:\w+ )?daran"
    r"|hinter die ohren",
    r"souvien\w*|souvenir|reti(?:ens|ennes)|reten(?:ir|ez|u)|oubli\w*|mémoire|mémoris\w*"
    r"|rappelle\w*|à l'esprit|en tête",
    r"recu[eé]rd\w*|recordar\w*|recordad\w*|acuérd\w*|acordar\w*|olvid\w*|memoria|memoriz\w*"
    r"|en (?:cuenta|mente)|presente",
    r"ricord\w*|dimentic\w*|memorizz\w*|a mente|presente",
    r"lembr\w*|relembr\w*|recorda\w*|esque[çc]\w*|memória|memoriz\w*|decor\w*|em mente",
    r"onthoud\w*|onthouden|vergeet\w*|herinner\w*|geheugen|in gedachten|achterhoofd|rekening mee",
    r"zapamięt\w*|pamięta\w*|pamięć|pamięci|zapomn\w*|na uwadze",
    r"запомн\w*|помн\w*|забуд\w*|забыва\w*|памят\w*|в виду|учт\w*|учё?л\w*",
)
"""Stems that speak of memory and of nothing else."""

STORE: Final = (
    r"sav(?:e|es|ed|ing)|stor(?:e|es|ed|ing)|not(?:e|es|ed|ing)|record(?:s|ed|ing)?|jot\w*|log(?:ged)?"
    r"|write (?:\w+ ){0,3}down|written|hold on(?:to| to)|keep (?:this|that|it|hold|track|a)|kept"
    r"|keep(?:ing)? \w+ on file|on (?:file|record)|locked in|added|updated|deleted|erased|removed",
    r"speicher\w*|gespeichert|abgespeichert|notier\w*|notiz\w*|aufschreib\w*|aufgeschrieben"
    r"|schreib\w* (?:\w+ ){0,4}auf|behalt\w*|festgehalten|halt\w* (?:\w+ ){0,3}fest|gelöscht"
    r"|aktualisiert|hinterlegt|eingetragen",
    r"enregistr\w*|sauvegard\w*|not(?:e|es|ez|er|é|ée)|gard(?:e|es|ez|er|é|ée)|stock\w*|conserv\w*"
    r"|consign\w*|ajouté\w*|supprimé\w*|inscri\w*",
    r"gu[aá]rd(?:a|o|é|e|á)\w*|ap[uú]nt\w*|an[oó]t\w*|registr\w*"
    r"|almacen\w*|conserv\w*|toma nota|tomo nota|nota|añadid\w*|borrad\w*|eliminad\w*",
    r"salv(?:a|are|ato|ata|alo|ami|ati|o)\w*|segn\w*|annot\w*|registr\w*|conserv\w*|memorizzat\w*"
    r"|prend\w* nota|nota|appunt\w*|tieni|aggiunt\w*|cancellat\w*",
    r"guard(?:a|ar|e|ei|ado|ada|o)\w*|salv(?:a|ar|e|ei|o|ado|ada)\w*|anot\w*|registr\w*|grav\w*"
    r"|armazen\w*|toma nota|nota|apont\w*|aponto|adicionad\w*|apagad\w*",
    r"sla(?: \w+){0,3} op|opslaan|opgeslagen|bewaar\w*|bewaard|noteer\w*|noteren|genoteerd"
    r"|notitie\w*"
    r"|schrijf(?: \w+){0,3} op|opschrijven|opgeschreven|vastgelegd|leg(?: \w+){0,3} vast|verwijderd"
    r"|sla|bijgewerkt",
    r"zapis\w*|zachow\w*|zanotow\w*|zanotuj\w*|notatk\w*|notuj\w*|odnotow\w*|przechow\w*|dodał\w*"
    r"|usunął\w*|usunęł\w*|usunięt\w*",
    r"сохран\w*|запис\w*|запиш\w*|замет\w*|отмет\w*|отмеч\w*|зафиксир\w*|удалил\w*|удален\w*|добавил\w*",
)
"""Stems that speak of storing, in memory or in a file."""

SPACELESS: Final = (
    "记住|记下|记得|记好|记着|记一下|牢记|忘了|忘记|记忆|保存|存下|存储|存到|存起|存入|记录|收藏|备注|笔记|删除|已更新|已存",
    "覚え|忘れ|記憶|保存|記録|メモ|控え|残して|書き留|書いておい|ノート|登録|削除|更新しまし|念頭",
)
"""The same for Chinese and Japanese, whose words have no spaces between them."""

FIRST_PERSON: Final = (
    r"I|I'\w+|me|my|mine|we|our|ich|mir|mein\w*|wir|unser\w*|je|j'\w+|m'\w+|moi|mon|ma|mes|nous|notre"
    r"|yo|mi|mis|me|nuestr\w+|he|io|mio|mia|mi|ho|eu|meu|minha|nosso|nossa|ik|mij|mijn|wij|onze|ja"
    r"|mój|moja|moje|mam|я|мне|меня|мой|моя|моё|мы|наш\w*",
)
"""Who speaks of themself; Chinese and Japanese leave it out, or write it into a word."""
