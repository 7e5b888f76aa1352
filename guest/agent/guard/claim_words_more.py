"""The table of `claim_words`, continued: Portuguese, Dutch, Polish, Russian, Chinese, Japanese."""

from typing import Final

from guest.agent.guard import claim_words
from guest.agent.guard.claim_words import ClaimWords

_PT_SAVED = r"(?:guardad|salv|anotad|gravad|registrad|registad|memorizad|armazenad)[oa]s?"

PORTUGUESE: Final = ClaimWords(
    save=(
        r"\b(?:guardei|salvei|anotei|gravei|registrei|registei|memorizei|armazenei|tomei nota)\b"
        rf"|\b(?:foi|foram|está|estão|fica|ficou|ficaram) (?:já |agora )?{_PT_SAVED}\b"
        r"|\bvou (?:me )?(?:lembrar|guardar|salvar|anotar|memorizar|gravar|registrar)\b"
        r"|\b(?:lembrarei|guardarei|anotarei|salvarei|gravarei|memorizarei|lembrar-me-ei)\b"
        r"|\b(?:terei|vou (?:ter|manter)) (?:isso |isto )?em mente\b"
        r"|\b(?:adicionei|acrescentei)\b[^,;:]{0,40}\b(?:suas?|tuas?|minhas?) (?:notas|memória)\b"
        r"|\b(?:está|estão) agora na minha memória\b"
    ),
    delete=(
        r"\b(?:apaguei|excluí|eliminei|removi da memória)\b"
        r"|\b(?:foi|foram) (?:apagad|excluíd|eliminad)[oa]s?\b|\b(?:apagarei|vou apagar)\b"
    ),
    update=(
        r"\b(?:atualizei|actualizei)\b|\b(?:foi|foram) a(?:c)?tualizad[oa]s?\b"
        r"|\b(?:mudei|corrigi|alterei)\b.{0,120}\b(?:nota|memória)\b"
    ),
    opening=r"feito|pronto|ok|certo|perfeito|claro|entendido|muito bem|bem|obrigad[oa]|sim",
    saved=rf"(?:(?:nota|informação|preferência) )?{_PT_SAVED}(?=\W*$|[.!,;:—–-])",
    deleted=r"(?:apagad|excluíd|eliminad)[oa]s?(?=\W*$|[.!,;:—–-])",
    updated=r"a(?:c)?tualizad[oa]s?(?=\W*$|[.!,;:—–-])",
    never=r"\bnão (?:(?:me|vou|vou me|o|a) )*esquecer(?:ei)?\b",
    unless=(
        r"\b(?:não|nunca|nada|nenhum\w*|posso|poderia|pode|se|quer|queres|deveria|quando|antes de"
        r"|até)\b"
    ),
    already=r"\b(?:anteriormente|ontem|antes|passad[oa]|há)\b",
    memory=r"\b(?:notas?|memória)\b",
    files=r"\b(?:arquivos?|ficheiros?|scripts?|documentos?|pastas?|código)\b",
)

_NL_SAVED = r"(?:opgeslagen|onthouden|genoteerd|bewaard|vastgelegd|opgeschreven)"

DUTCH: Final = ClaimWords(
    save=(
        rf"\b(?:ik heb|heb ik|we hebben)\b[^,;:]{{0,80}}?\b{_NL_SAVED}\b"
        r"|\b(?:dat|dit|het|alles|je \w+|uw \w+)\b[^,;:]{0,30}"
        rf"\b(?:is|zijn|werd|werden|wordt)\b[^,;:]{{0,30}}\b{_NL_SAVED}\b"
        r"|\b(?:staat|is|zijn) nu in (?:mijn|je|uw) (?:geheugen|notities)\b"
        r"|\bik heb\b[^,;:]{0,40}\baan (?:je|uw|mijn) (?:geheugen|notities) toegevoegd\b"
        r"|\bik h(?:ou|oud) [^,;:]{1,30}\bin gedachten\b"
        r"|\bik (?:onthoud|noteer|bewaar)\b|\bik sla\b[^,;:]{0,40}\bop\b"
        r"|\b(?:dat|dit|het) (?:onthoud|noteer|bewaar) ik\b"
        r"|\b(?:ik zal|zal ik|ik ga)\b[^,;:]{0,60}"
        r"\b(?:onthouden|noteren|bewaren|opslaan|eraan denken)\b"
    ),
    delete=(
        r"\b(?:ik heb|heb ik|is|zijn)\b[^,;:]{0,80}\b(?:verwijderd|gewist)\b"
        r"|\bik (?:verwijder|wis)\b"
    ),
    update=r"\b(?:ik heb|heb ik|is|zijn)\b[^,;:]{0,80}\bbijgewerkt\b",
    opening=r"ok(?:é|ay|e)?|gedaan|klaar|goed|prima|natuurlijk|zeker|begrepen|bedankt|ja|in orde",
    saved=rf"(?:(?:notitie|informatie|voorkeur) )?{_NL_SAVED}(?=\W*$|[.!,;:—–-])",
    deleted=r"(?:verwijderd|gewist)(?=\W*$|[.!,;:—–-])",
    updated=r"bijgewerkt(?=\W*$|[.!,;:—–-])",
    never=r"\bik (?:zal|vergeet)\b[^,;:]{0,40}\bniet(?: meer)?(?: vergeten)?\b(?=\W*$|[.!])",
    unless=(
        r"\b(?:niet|niets|geen|nooit|kan|kon|kunnen|zou|wil|wilt|als|zodra|indien|of ik|voordat"
        r"|totdat)\b"
    ),
    already=r"\b(?:eerder|gisteren|vorige|geleden)\b",
    memory=r"\b(?:notities?|geheugen)\b",
    files=r"\b(?:bestand\w*|script\w*|document\w*|map|code)\b",
)

POLISH: Final = ClaimWords(
    save=(
        r"\b(?:zapisał|zapamiętał|zanotował|zachował)[ea]m\b"
        r"|\b(?:został[aoy]?|zostały|jest|są) (?:(?:już|teraz) )*"
        r"(?:zapisan|zapamiętan|zanotowan|zachowan)\w+"
        r"|\bdodał[ea]m\b[^,;:]{0,40}\b(?:do|w) (?:two|mo|sw)\w+ (?:notat\w+|pamięci)"
        r"|\b(?:jest|są) (?:już|teraz) w (?:mojej )?pamięci\b"
        r"|\b(?:zapamiętam|zapiszę|zanotuję|zachowam|zapisuję|notuję"
        r"|będę (?:o tym |to )?pamięta\w+)\b"
    ),
    delete=(
        r"\b(?:usunął|usunęł|skasował|wymazał)[ea]m\b|\bzostał[aoy]? (?:usunięt|skasowan)\w+"
        r"|\b(?:usunę|skasuję)\b"
    ),
    update=r"\bzaktualizował[ea]m\b|\bzostał[aoy]? zaktualizowan\w+",
    opening=r"gotowe|ok|okej|dobrze|jasne|oczywiście|zrobione|rozumiem|dziękuję|tak|świetnie",
    saved=r"(?:(?:notatka|informacja) )?(?:zapisan|zapamiętan|zanotowan)[eoay](?=\W*$|[.!,;:—–-])",
    deleted=r"(?:usunięt|skasowan)[eoay](?=\W*$|[.!,;:—–-])",
    updated=r"zaktualizowan[eoay](?=\W*$|[.!,;:—–-])",
    never=r"\bnie zapomnę\b",
    unless=(
        r"\b(?:nie|nic|nigdy|żad\w+|mogę|mógłbym|mogłabym|może|jeśli|jeżeli|czy|kiedy|gdy|zanim)\b"
    ),
    already=r"\b(?:wcześniej|wczoraj|poprzedni\w+|temu)\b",
    memory=r"\b(?:notat\w+|pamięci|pamięć)\b",
    files=r"\b(?:plik\w*|skrypt\w*|dokument\w*|folder\w*|kod)\b",
)

RUSSIAN: Final = ClaimWords(
    save=(
        r"(?:^|[,;:—–] ?|\b[ия] (?:\w+ ){0,2})(?:(?:это|уже|всё|все) )*"
        r"(?:сохранил|запомнил|записал|зафиксировал)а?\b"
        r"|\bдобавила?\b[^,;:]{0,40}\b(?:заметк|памят)\w+|\b(?:теперь|уже) (?:это )?в моей памяти\b"
        r"|\b(?:сохранен|сохранён|записан|зафиксирован|внесен|внесён)[оаы]?\b"
        r"|\b(?:запомню|сохраню|запишу|зафиксирую|буду (?:это )?помнить|буду иметь в виду|учту)\b"
    ),
    delete=(
        r"(?:^|[,;:—–] ?|\b[ия] (?:\w+ ){0,2})(?:удалил|стер|стёр)а?\b"
        r"|\b(?:удален|удалён|стерт|стёрт)[оаы]?\b|\b(?:удалю|сотру)\b"
    ),
    update=r"(?:^|[,;:—–] ?|\b[ия] (?:\w+ ){0,2})обновила?\b|\bобновлен[оаы]?\b|\bобновлён\b",
    opening=r"готово|хорошо|ок|окей|да|конечно|понял|поняла|сделано|отлично|ладно|спасибо",
    saved=r"(?:сохранено|записано|запомнено|зафиксировано)(?=\W*$|[.!,;:—–-])",
    deleted=r"удалено(?=\W*$|[.!,;:—–-])",
    updated=r"обновлено(?=\W*$|[.!,;:—–-])",
    never=r"\bне забуду\b",
    unless=(
        r"\b(?:не|нет|ничего|никогда|могу|мог|могла|может|если|когда|хотите|хочешь|ли|прежде"
        r"|ты|вы|вами|тобой)\b"
    ),
    already=r"\b(?:ранее|раньше|вчера|прошл\w+|назад)\b",
    memory=r"\b(?:замет\w+|памят\w+)\b",
    files=r"\b(?:файл\w*|скрипт\w*|документ\w*|папк\w+|код)\b",
)

CHINESE: Final = ClaimWords(
    save=(
        r"(?:已|刚刚|成功)[^,,。；;]{0,12}?(?:保存|记住|记录|存储|储存|记下|存入|写入记忆)"
        r"|(?:(?:^|[,，。；;、！!:：])(?:已经?|都|也|刚刚?|全部?|[您你])*"
        r"|(?:我|[帮为给替][你您]|[你您]的)[^,，。；;]{0,10}?)"
        r"(?:保存|记住|记下|记录|存储|存)(?:好|下来)?了"
        r"|(?:已|我)[^,，。；;]{0,10}?(?:添加|加入|加|写入?)[到进]?[^,，。；;]{0,8}?(?:笔记|记忆|备忘)"
        r"|(?:我会|我将|我来|让我)[^,,。；;]{0,12}(?:记住|记得|保存|记下|记录|牢记)"
    ),
    delete=r"已[^,,。；;]{0,8}?(?:删除|忘记|清除)|(?:删除|清除)了|我会[^,,。；;]{0,6}(?:删除|忘记)",
    update=r"已[^,,。；;]{0,8}?(?:更新|修改)|更新了[^,,。；;]{0,10}(?:笔记|记忆)",
    opening=r"好的?|明白|没问题|完成|当然|收到|是的|谢谢",
    saved=r"(?:已保存|记住了|记下了|已记录|(?:保存|记录)成功)",
    deleted=r"(?:已删除|删除成功)",
    updated=r"(?:已更新|更新成功)",
    never=r"不会忘记?",
    unless=r"没有?(?!问题)|未|不|无法|可以|能否|如果|要是|是否|需要我|希望|想要|之后再",
    already=r"之前|以前|昨天|早就|上次",
    memory=r"记忆|笔记|备忘",
    files=r"文件|脚本|文档|目录|代码",
    spaced=False,
)

JAPANESE: Final = ClaimWords(
    save=(
        r"(?:保存|記憶|記録|登録|メモ)(?:し(?:ました|ておきました|ています|てあります|ておきます|ます)"
        r"|されました|済み|完了)|覚え(?:ました|ておきました|ておきます|ます)"
        r"|(?:ノート|メモ|記憶)に(?:追加|記入|書き込み)(?:し|され)(?:ました|ておきました|ています)"
    ),
    delete=r"(?:削除|消去)(?:しました|されました|します|済み)|忘れました",
    update=r"(?:更新|修正)(?:しました|されました)",
    opening=r"はい|わかりました|了解(?:です|しました)?|承知しました|完了|もちろん",
    saved=r"(?:保存済み|保存完了|記録済み)",
    deleted=r"削除済み",
    updated=r"更新済み",
    never=r"忘れません",
    unless=r"ません|ない|なかった|れば|たら|ましょうか|でしょうか|ですか|もし|できます|なら",
    already=r"すでに|既に|以前|前に|昨日|先日",
    memory=r"メモ|記憶|ノート",
    files=r"ファイル|スクリプト|文書|フォルダ|コード",
    spaced=False,
)

LANGUAGES: Final = (
    claim_words.ENGLISH,
    claim_words.GERMAN,
    claim_words.FRENCH,
    claim_words.SPANISH,
    claim_words.ITALIAN,
    PORTUGUESE,
    DUTCH,
    POLISH,
    RUSSIAN,
    CHINESE,
    JAPANESE,
)
