"""The table of `intent_words`, continued: Italian, Portuguese, Dutch, Polish, Russian,
Chinese, Japanese."""

from typing import Final

from guest.agent.guard import intent_words
from guest.agent.guard.intent_words import IntentWords

_IT_SAID = r"(?:quello che hai (?:appena )?(?:detto|scritto|spiegato)|la tua (?:ultima )?risposta)"
_IT_THIS = (
    rf"(?:(?:tutto )?(?:questo|ciò|quello)|tutto|{_IT_SAID}|(?:quest[aeio]|le|i|il|la|l'|tutte"
    r" queste)[ ]?(?:informazion[ei]|dat[oi]|fatt[oi]|contenut[oi]|testo|pagina|articolo|risposta"
    r"|riassunto|punti|lista|ricetta|dettagli|soluzione|indirizzo|numero|decisione|idea|regol[ae]))"
)
_IT_TAIL = (
    r"(?: (?:in memoria|nella (?:tua )?memoria|a mente"
    r"|per (?:dopo|il futuro|me|sempre|(?:la )?prossima volta)))*(?:,? (?:per favore|grazie))*"
)
_IT_KEEP = (
    r"(?:ricorda(?:re|ti)?(?: di)?|salva(?:re)?|memorizza(?:re)?|annota(?:re)?|registra(?:re)?"
    r"|segna(?:re|ti)?|appunta(?:re|ti)?|conserva(?:re)?|non dimenticare)"
)

ITALIAN: Final = IntentWords(
    lead=r"(?:per favore|e|ok|va bene|ciao|grazie|anche|poi|sì|allora|adesso|importante)",
    asks=r"(?:(?:puoi|potresti|può|potrebbe) |(?:voglio|vorrei) che (?:tu )?)",
    that=(
        r"(?:ricorda(?:ti|re|rti)?|tieni (?:a mente|presente)|non (?:dimenticare|scordare)"
        r"|annota(?:re|ti)?|memorizza(?:re)?|segna(?:ti)?|prend(?:i|ere) nota)(?:,? per favore,?)?"
        r" (?:che|del fatto che)\b"
    ),
    attached=(
        rf"(?:{_IT_KEEP}|prend(?:i|ere) nota)(?: (?:{_IT_THIS}|quanto segue|il seguente"
        r"|la seguente \w+|in memoria))*(?:,? per favore)?"
    ),
    this=(
        rf"(?:{_IT_KEEP} {_IT_THIS}{_IT_TAIL}|(?:ricorda|salva|memorizza|annota|segna|appunta"
        rf"|ricordar|salvar|memorizzar)(?:te)?l[oaie]{_IT_TAIL}"
        rf"|non (?:dimenticarlo|dimenticarl[ao]|scordarlo){_IT_TAIL}"
        rf"|impara da {_IT_THIS} e (?:salva|memorizza)(?:l[oa]| {_IT_THIS})?{_IT_TAIL})"
    ),
    said=_IT_SAID,
    memory=r"(?:ricord|memori|dimentic|impara|annota|segna|appunta)",
    doubtful=r"\bricord(?:i|are)\b",
    please=r"\bper favore\b",
    refused=r"\b(?:non|mai|senza|se)\b(?! (?:dimentica|scorda))",
    thanks=r"\b(?:grazie|perfetto|ciao|ok|bene|ottimo)\b",
)

_PT_SAID = (
    r"(?:o que (?:você |tu )?(?:acabou de|acabaste de|me)? ?(?:dizer|disse|disseste|escreveu)"
    r"|(?:a )?(?:sua|tua) (?:última )?resposta)"
)
_PT_THIS = (
    rf"(?:(?:tudo )?(?:isto|isso|aquilo)|tudo|{_PT_SAID}|(?:est[ae]s?|ess[ae]s?|[oa]s?|toda a"
    r"|todas essas) (?:informaç(?:ão|ões)|dados?|factos?|fatos?|conteúdos?|texto|página|artigo"
    r"|resposta|resumo|pontos|lista|receita|detalhes|solução|endereço|número|decisão|ideia|regras?))"
)
_PT_TAIL = (
    r"(?: (?:na (?:sua |tua )?memória|(?:para|pra) (?:depois|mais tarde|o futuro|mim|sempre"
    r"|(?:a )?próxima(?: vez)?)))*(?:,? (?:por favor|se faz favor|obrigad[oa]))*"
)
_PT_KEEP = (
    r"(?:lembr[ae](?:-te|-se)?(?: d[eo])?|lembrar(?: de)?|guard[ae]|guardar|salv[ae]|salvar"
    r"|anot[ae]|anotar|grav[ae]|gravar|memoriz[ae]|memorizar|armazen[ae]|regist[r]?[ae]"
    r"|não (?:te |se )?esqueç?[ac]s?(?: de)?)"
)

PORTUGUESE: Final = IntentWords(
    lead=r"(?:por favor|e|ok|olá|oi|obrigad[oa]|também|então|depois|sim|agora|importante)",
    asks=r"(?:(?:você )?(?:pode|poderia|podes|podias) |(?:quero|gostaria) que (?:você )?)",
    that=(
        r"(?:lembr[ae](?:-te|-se)?|lembrar|tenha em mente|tem em mente|não (?:te |se )?esque[çc]as?"
        r"|anot[ae]|anotar|guard[ae]|memoriz[ae])(?:,? por favor,?)?(?: de)? que\b"
    ),
    attached=(
        rf"(?:{_PT_KEEP}|tom[ae] nota)(?: (?:{_PT_THIS}|aí|o seguinte|a seguinte \w+"
        r"|os seguintes \w+|na (?:sua )?memória))*(?:,? por favor)?"
    ),
    this=(
        rf"(?:{_PT_KEEP} ?(?:d)?{_PT_THIS}{_PT_TAIL}|(?:guarda|salva|anota|grava|guarde|salve|anote"
        rf"|memorize|memoriza)-[oa]s?{_PT_TAIL}"
        rf"|aprend[ae] com {_PT_THIS} e (?:guard[ae]|salv[ae])(?:-[oa]| {_PT_THIS})?{_PT_TAIL})"
    ),
    said=_PT_SAID,
    memory=r"(?:lembr|memor|esque|aprend|anot)",
    doubtful=r"\blembra(?:s|r)?\b",
    please=r"\bpor favor\b",
    refused=r"\b(?:não|nunca|sem|se)\b(?! (?:te |se )?esque)",
    thanks=r"\b(?:obrigad[oa]|perfeito|ótimo|olá|oi|ok|bem)\b",
)

_NL_SAID = (
    r"(?:wat je (?:net |zojuist |me )*(?:zei|hebt gezegd|gezegd hebt|schreef|vertelde)"
    r"|je (?:laatste )?antwoord)"
)
_NL_THIS = (
    rf"(?:dit(?: alles)?|dat|het|alles|{_NL_SAID}|(?:deze|die|de|al deze|het|dit)"
    r" (?:informatie|feiten|gegevens|inhoud|tekst|pagina|artikel|antwoord|samenvatting|punten|lijst"
    r"|recept|details|oplossing|adres|nummer|besluit|idee|regels?|tip|stappen))"
)
_NL_LATER = r"voor (?:later|mij|de toekomst|(?:de )?volgende keer)"
_NL_TAIL = (
    rf"(?: (?:goed|even))*(?: (?:op|in (?:je )?geheugen|{_NL_LATER}|in gedachten))*"
    r"(?:,? (?:alsjeblieft|alstublieft|aub|svp|bedankt))*"
)
_NL_KEEP = r"(?:onthoud(?:en)?|bewaar|bewaren|noteer|noteren|sla|opslaan|schrijf|leg)"

DUTCH: Final = IntentWords(
    lead=r"(?:alsjeblieft|alstublieft|en|ok(?:é|ay)?|hallo|hoi|bedankt|ook|dan|ja|nu|belangrijk)",
    asks=(
        r"(?:(?:kun|kan|zou|wil) (?:je|jij|u) (?:alsjeblieft |kunnen |willen )*"
        r"|ik wil(?: graag)? dat je )"
    ),
    that=(
        r"(?:onthoud(?:en)?|vergeet niet|houd (?:er rekening mee|in gedachten|in je achterhoofd)"
        r"|noteer|noteren|denk eraan)(?:,? alsjeblieft,?)?,? dat\b"
    ),
    attached=(
        rf"(?:{_NL_KEEP}|vergeet niet)"
        rf"(?: (?:{_NL_THIS}|het volgende|de volgende \w+|op|even|in (?:je )?geheugen"
        rf"|{_NL_LATER}))*(?:,? alsjeblieft)?"
    ),
    this=(
        rf"(?:{_NL_KEEP} {_NL_THIS}{_NL_TAIL}|vergeet (?:dit|dat|het) niet{_NL_TAIL}"
        rf"|{_NL_THIS} (?:alsjeblieft )?(?:onthouden|opslaan|bewaren|noteren)"
        rf"|leer (?:hiervan|hieruit) en (?:sla {_NL_THIS} op|bewaar {_NL_THIS}|onthoud {_NL_THIS})"
        rf"{_NL_TAIL})"
    ),
    said=_NL_SAID,
    memory=r"(?:onthoud|geheugen|vergeet|leer|gedachten|noteer)",
    doubtful=r"(?!)",
    please=r"als(?:je|tu)blieft",
    refused=r"\b(?:niet|nooit|geen|zonder|als)\b",
    thanks=r"\b(?:bedankt|dank\w*|prima|hallo|hoi|ok(?:é|ay)?|top)\b",
)

_PL_SAID = (
    r"(?:to,? co (?:właśnie )?(?:powiedział[ea]ś|napisał[ea]ś)|swoją (?:ostatnią )?odpowiedź)"
)
_PL_THIS = (
    rf"(?:to(?: wszystko)?|wszystko|{_PL_SAID}|(?:te|tę|ten|tą|wszystkie te) (?:informacj\w+|fakty"
    r"|dane|treść|tekst|stronę|artykuł|odpowiedź|podsumowanie|punkty|listę|przepis|szczegóły|rozwiązanie"
    r"|adres|numer|decyzję|zasad\w+))"
)
_PL_TAIL = (
    r"(?: sobie)?(?: (?:(?:w|do) (?:swojej )?pamięci|na (?:później|przyszłość|następny raz|zawsze)"
    r"|dla mnie))*(?:,? (?:proszę|dzięki))*"
)
_PL_KEEP = (
    r"(?:zapamiętaj|zapamiętać|zapisz|zapisać|zanotuj|zanotować|zachowaj|zachować)(?: sobie)?"
)

POLISH: Final = IntentWords(
    lead=r"(?:proszę|i|ok|okej|cześć|dziękuję|dzięki|też|potem|tak|teraz|ważne|a)",
    asks=(
        r"(?:(?:czy )?(?:możesz|mógłbyś|mogłabyś|może pan|może pani) (?:proszę )?"
        r"|(?:chcę|chciał[ao]?bym),? żebyś )"
    ),
    that=(
        r"(?:zapamiętaj|zapamiętać|pamiętaj|miej na uwadze|nie zapomnij|zanotuj|zapisz"
        r"|zanotować|zapisać)(?: sobie)?(?:,? proszę)?,? że\b"
    ),
    attached=(
        rf"(?:{_PL_KEEP}|pamiętaj|nie zapomnij)"
        rf"(?: (?:{_PL_THIS}|co następuje|następując\w+(?: \w+)?|w pamięci))*(?:,? proszę)?"
    ),
    this=(
        rf"(?:{_PL_KEEP} {_PL_THIS}{_PL_TAIL}|(?:pamiętaj|nie zapomnij) o tym{_PL_TAIL}"
        rf"|nie zapominaj o tym{_PL_TAIL}"
        rf"|(?:na)?ucz się (?:z )?tego i {_PL_KEEP}(?: {_PL_THIS})?{_PL_TAIL})"
    ),
    said=_PL_SAID,
    memory=r"(?:pamię|zapom|ucz|zanotuj)",
    doubtful=r"\bpamiętasz\b",
    please=r"\bproszę\b",
    refused=r"\b(?:nie|nigdy|bez|jeśli)\b(?! zapom)",
    thanks=r"\b(?:dzięk\w+|super|świetnie|cześć|ok|dobrze)\b",
)

_RU_SAID = (
    r"(?:то,? что ты (?:только что )?(?:сказала?|написала?|ответила?)|свой (?:последний )?ответ)"
)
_RU_THIS = (
    rf"(?:(?:всё |все )?это(?: всё| все)?|всё|все|{_RU_SAID}|(?:эту|эти|этот|все эти|весь этот)"
    r" (?:информацию|факты|данные|содержание|текст|страницу|статью|ответ|список|рецепт|пункты"
    r"|сведения|решение|адрес|номер|правил[ао]|идею))"
)
_RU_TAIL = (
    r"(?: себе)?(?: (?:в (?:свою |своей )?памят[иь]|на (?:потом|будущее|следующий раз)|для меня"
    r"|навсегда))*(?:,? (?:пожалуйста|спасибо))*"
)
_RU_KEEP = (
    r"(?:запомни(?:те|ть)?|сохрани(?:те|ть)?|запиши(?:те)?|записать|зафиксируй|отметь)"
    r"(?:,? пожалуйста,?)?(?: себе)?"
)

RUSSIAN: Final = IntentWords(
    lead=r"(?:пожалуйста|и|ок|окей|привет|спасибо|также|потом|да|теперь|важно|а|ещё)",
    asks=(
        r"(?:(?:ты )?(?:можешь|мог бы|могла бы|не мог бы ты) "
        r"|(?:вы )?(?:можете|могли бы|не могли бы)(?: вы)? "
        r"|я (?:хочу|хотела? бы),? чтобы (?:ты|вы) )"
    ),
    that=(
        r"(?:запомни(?:те|ть)?|помни(?:те)?|имей(?:те)? в виду|учти(?:те)?|не забудь(?:те)?"
        r"|не забывай(?:те)?|отметь|запиши(?:те)?|записать|сохранить)(?:,? пожалуйста)?,? что\b"
    ),
    attached=(
        rf"(?:{_RU_KEEP}|помни|не забудь)"
        rf"(?: (?:{_RU_THIS}|следующее|следующ\w+ \w+|в памят[иь]))*(?:,? пожалуйста)?"
    ),
    this=(
        rf"(?:{_RU_KEEP} {_RU_THIS}{_RU_TAIL}|{_RU_THIS} {_RU_KEEP}{_RU_TAIL}"
        rf"|не забудь (?:это|об этом|про это){_RU_TAIL}|не забывай (?:это|об этом){_RU_TAIL}"
        rf"|(?:изучи|выучи) (?:{_RU_THIS}|е[гё]о?|их) и {_RU_KEEP}(?: {_RU_THIS})?{_RU_TAIL}"
        rf"|учись на этом и сохрани(?: {_RU_THIS})?{_RU_TAIL})"
    ),
    said=_RU_SAID,
    memory=r"(?:помн|памят|забуд|забыв|учи)",
    doubtful=r"\bпомнишь\b",
    please=r"\bпожалуйста\b",
    refused=r"\b(?:не|никогда|без|если)\b(?! (?:забуд|забыв|мог))",
    thanks=r"\b(?:спасибо|отлично|супер|привет|ок|хорошо)\b",
)

_ZH_SAID = r"(?:你(?:刚才|刚刚|刚)?(?:说|写|讲|回答)的(?:话|内容|东西)?|你的(?:上一个)?回答)"
_ZH_THIS = (
    rf"(?:这个|这些|这一点|这(?:条|段|页|篇)?|那个|那些|它|所有这些|以上|{_ZH_SAID}"
    r"|(?:这些|这个|这|上面的|以上|这条|这段)?(?:信息|内容|资料|事实|数据|文字|网页|文章|回答|要点|列表|知识))+"
)
_ZH_KEEP = r"(?:记住|记下来?|保存|存储|储存|记录|存|牢记|别忘了|不要忘记|不要忘了)(?:一下|好|下来)?"

CHINESE: Final = IntentWords(
    lead=r"(?:请|请你|麻烦你?|帮我|并且?|然后|好的?|谢谢|你好|另外|也|对了)",
    asks=r"(?:你?(?:可以|能|能不能|可不可以)(?:请)?(?:帮我)?|我(?:想|要|希望)你)",
    that=r"(?:请)?(?:记住|记得|牢记|别忘了|不要忘记|不要忘了|记一下|记下)(?!了)[,，]?(?=[^::吗？\s]{3,})",
    attached=rf"{_ZH_KEEP}(?:(?:{_ZH_THIS}|以下|下面|下列|如下)(?:的|信息|内容|文字|资料)*)?",
    this=(
        rf"(?:{_ZH_KEEP}{_ZH_THIS}|记住|记下来|保存一下|(?:把|将){_ZH_THIS}(?:都)?{_ZH_KEEP}(?:到记忆(?:里|中)?)?"
        rf"|从(?:中|这里|{_ZH_THIS})学习并(?:且)?{_ZH_KEEP}(?:{_ZH_THIS})?"
        rf"|学习(?:{_ZH_THIS})?并(?:且)?{_ZH_KEEP}(?:{_ZH_THIS})?)(?:[,，]?(?:下次|以后|将来|留着)(?:再|会|要|还)?用)?(?:吧|哦|啊)?"
    ),
    said=_ZH_SAID,
    memory=r"记|忘|学习",
    doubtful=r"记得",
    please=r"请|麻烦|帮我",
    refused=r"(?:不要|别|没有|不用|无需|如果)(?!忘)",
    thanks=r"谢谢|很好|太好了|你好|好的",
    spaced=False,
)

_JA_SAID = (
    r"(?:(?:今|さっき)?(?:あなたが)?(?:言った|書いた|答えた)こと"
    r"|(?:今の|あなたの|さっきの)?(?:回答|答え|説明))"
)
_JA_THIS = (
    rf"(?:これ(?:ら)?|それ|あれ|全部|すべて|このこと|そのこと|{_JA_SAID}"
    r"|(?:この|その|これらの|上記の)(?:情報|内容|事実|データ|文章|ページ|記事|要点|リスト|こと))"
)
_JA_DO = (
    r"(?:覚え(?:て(?:おい)?て?(?:ください|くれ|ね|下さい|ほしい)?)"
    r"|(?:保存|記憶|記録|メモ)(?:して(?:おい)?て?(?:ください|くれ|ね|下さい|ほしい)?|しておいて(?:ください)?|を?お願いします)"
    r"|忘れないで(?:ください|ね|下さい)?)"
)

JAPANESE: Final = IntentWords(
    lead=r"(?:どうか|そして|では|じゃあ|ありがとう(?:ございます)?|こんにちは|はい|あと|ぜひ)",
    asks=r"(?!)",
    that=rf"(?P<words>[^「」?？]{{3,}}?)(?:と(?:いうことを)?|(?:こと|の)を?)、?{_JA_DO}[。！.!\s]*$",
    attached=rf"(?:{_JA_THIS}|以下(?:の\w+)?|次の(?:こと|内容|情報))?[をは]?{_JA_DO}",
    this=(
        rf"(?:{_JA_THIS}[をは]?(?:、)?)?(?:次回|今後|将来|後|あと)?(?:の)?(?:ため(?:に)?|で)?"
        rf"(?:しっかり|必ず|ちゃんと)?{_JA_DO}(?:[かね])?"
        rf"|(?:{_JA_THIS}から)?学(?:んで|び|習して)、?{_JA_DO}"
    ),
    said=_JA_SAID,
    memory=r"覚え|記憶|忘れ|学ん|メモ",
    doubtful=r"(?!)",
    please=r"ください|お願い",
    refused=r"(?!)",
    thanks=r"ありがとう|すごい|こんにちは",
    spaced=False,
)

LANGUAGES: Final = (
    intent_words.ENGLISH,
    intent_words.GERMAN,
    intent_words.FRENCH,
    intent_words.SPANISH,
    ITALIAN,
    PORTUGUESE,
    DUTCH,
    POLISH,
    RUSSIAN,
    CHINESE,
    JAPANESE,
)
