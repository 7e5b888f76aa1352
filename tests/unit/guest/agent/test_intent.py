"""What is a request to keep something, and what only sounds like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agent.guard.intent import Wish, wish_of

GIVEN = [
    ("I'd like you to remember that I'm allergic to nuts.", ("I'm allergic to nuts.",)),
    ("FYI, remember that I moved to Berlin.", ("I moved to Berlin.",)),
    ("Remember: my PIN is 1234.", ("my PIN is 1234.",)),
    ("remember I'm vegan", ("I'm vegan",)),
    (
        "Please note that my address changed to Main Street 5.",
        ("my address changed to Main Street 5.",),
    ),
    ("please save: the wifi password is abc", ("the wifi password is abc",)),
    ("Note: remember that I like tea.", ("I like tea.",)),
    ("Save this: the wifi password is abc", ("the wifi password is abc",)),
    ("Save this information: tea is hot", ("tea is hot",)),
    ("Note down that I owe Bob 5 euros", ("I owe Bob 5 euros",)),
    ("Write down that my locker is 12.", ("my locker is 12.",)),
    ("Save to memory: tea is hot", ("tea is hot",)),
    ("Add to memory: tea is hot", ("tea is hot",)),
    ("Add to your memory that I like tea", ("I like tea",)),
    ("Store in memory that I like tea.", ("I like tea.",)),
    ("Save that I like tea.", ("I like tea.",)),
    ("Make sure you remember that I like tea.", ("I like tea.",)),
    ("For future reference, remember that I like tea.", ("I like tea.",)),
    ("Merk dir bitte, dass ich Tee mag.", ("ich Tee mag.",)),
    ("Bitte merken: Ich mag Tee.", ("Ich mag Tee.",)),
    ("Bitte speichere, dass ich Tee mag.", ("ich Tee mag.",)),
    ("Merke dir bitte folgendes: ich mag Tee", ("ich mag Tee",)),
    ("Kannst du dir merken, dass ich Tee mag?", ("ich Tee mag",)),
    ("Mémorise que j'aime le thé.", ("j'aime le thé.",)),
    ("Note que j'aime le thé.", ("j'aime le thé.",)),
    ("Peux-tu te souvenir que j'aime le thé ?", ("j'aime le thé",)),
    ("Anota que me gusta el té.", ("me gusta el té.",)),
    ("Por favor, recuerda que me gusta el té.", ("me gusta el té.",)),
    ("Ricordati che mi piace il tè.", ("mi piace il tè.",)),
    ("Lembre que eu gosto de chá.", ("eu gosto de chá.",)),
    ("Lembra-te que gosto de chá.", ("gosto de chá.",)),
    ("Onthoud alsjeblieft dat ik van thee hou.", ("ik van thee hou.",)),
    ("Pamiętaj, że lubię herbatę.", ("lubię herbatę.",)),
    ("Запомни: я люблю чай.", ("я люблю чай.",)),
    ("记住：我喜欢喝茶。", ("我喜欢喝茶。",)),
    ("请记得我喜欢喝茶。", ("我喜欢喝茶。",)),
    ("覚えておいて：私はお茶が好きです。", ("私はお茶が好きです。",)),
    ("Remember that I like tea", ("I like tea",)),
    ("remember: x y", ("x y",)),
    ("Please remember that my name is Ana.", ("my name is Ana.",)),
    ("Keep in mind that I am vegan", ("I am vegan",)),
    ("Don't forget that I am vegan.", ("I am vegan.",)),
    ("Don’t forget I’m vegan.", ("I’m vegan.",)),
    ("Note that the meeting is on Monday.", ("the meeting is on Monday.",)),
    ("Save the following: milk, eggs", ("milk, eggs",)),
    ("Save the following:\n- milk\n- eggs\n", ("- milk\n- eggs",)),
    ("Remember this: the code is 1234", ("the code is 1234",)),
    ("Please remember the following facts:\nA is b.\nC is d.", ("A is b.\nC is d.",)),
    ("Could you please remember that I like tea?", ("I like tea",)),
    ("Remember that Dr. Smith is my dentist. What is the weather?", ("Dr. Smith is my dentist.",)),
    ("Hi! Remember that A is b. Remember that C is d.", ("A is b.", "C is d.")),
    ("I want you to remember that I like tea", ("I like tea",)),
    ("Remember my birthday is in May.", ("my birthday is in May.",)),
    ('Remember that my cat is called "Mia"', ('my cat is called "Mia"',)),
    ("Merk dir, dass ich Tee mag.", ("ich Tee mag.",)),
    ("Merke dir: der Code ist 12", ("der Code ist 12",)),
    ("Vergiss nicht, dass ich Veganer bin", ("ich Veganer bin",)),
    ("Speichere Folgendes:\nMilch, Eier", ("Milch, Eier",)),
    ("Souviens-toi que j'aime le thé.", ("j'aime le thé.",)),
    ("N'oublie pas que je suis végétarien", ("je suis végétarien",)),
    ("Note : le code est 12", ("le code est 12",)),
    ("Retiens ceci : le code est 12", ("le code est 12",)),
    ("Recuerda que me gusta el té.", ("me gusta el té.",)),
    ("No olvides que soy vegano", ("soy vegano",)),
    ("Guarda lo siguiente: leche y huevos", ("leche y huevos",)),
    ("Ricorda che mi piace il tè.", ("mi piace il tè.",)),
    ("Salva quanto segue: latte e uova", ("latte e uova",)),
    ("Lembre-se de que eu gosto de chá.", ("eu gosto de chá.",)),
    ("Não esqueça que sou vegano", ("sou vegano",)),
    ("Guarda o seguinte: leite e ovos", ("leite e ovos",)),
    ("Onthoud dat ik van thee hou.", ("ik van thee hou.",)),
    ("Onthoud het volgende: melk en eieren", ("melk en eieren",)),
    ("Zapamiętaj, że lubię herbatę.", ("lubię herbatę.",)),
    ("Zapisz: mleko i jajka", ("mleko i jajka",)),
    ("Запомни, что я люблю чай.", ("я люблю чай.",)),
    ("Сохрани следующее: молоко и яйца", ("молоко и яйца",)),
    ("请记住我喜欢喝茶。", ("我喜欢喝茶。",)),
    ("保存以下内容：牛奶和鸡蛋", ("牛奶和鸡蛋",)),
    ("私はお茶が好きだと覚えておいてください。", ("私はお茶が好きだ",)),
    ("以下を覚えておいて：牛乳と卵", ("牛乳と卵",)),
]

POINTED = [
    "Save this for me.",
    "Please save that to your memory.",
    "Can you please remember this for next time?",
    "Make a note of that.",
    "Make a note of this please",
    "Take note of this.",
    "Store this.",
    "Store that information please.",
    "Remember all of this.",
    "Please memorize this.",
    "Learn this.",
    "Please learn from this and remember it.",
    "Learn from this page and save what you learned.",
    "Read https://example.org and save the key points.",
    "Summarize this article and save the summary.",
    "Keep this in memory.",
    "Remember it for later.",
    "Save it to memory please",
    "Commit this to memory.",
    "OK save this",
    "save this please",
    "Save your answer.",
    "Save that answer to memory.",
    "Remember your last answer.",
    "Please don't forget that.",
    "Save this conversation.",
    "Save all this.",
    "Bitte speichern!",
    "Speicher das ab.",
    "Bitte merken!",
    "Bitte merke dir das.",
    "Merken Sie sich das bitte.",
    "Speichere deine letzte Antwort.",
    "Lies /shared/page.md, lerne daraus und speichere das.",
    "S'il te plaît, retiens ça.",
    "Mémorise ceci.",
    "Guárdalo.",
    "Por favor guarda esta información.",
    "Aprende de esto y guárdalo.",
    "Memorizza questo.",
    "Impara da questo e salva.",
    "Memorize isso.",
    "Aprenda com isso e salve.",
    "Bewaar dit.",
    "Onthoud dat.",
    "Zachowaj te informacje.",
    "Naucz się tego i zapisz.",
    "Сохрани эту информацию, пожалуйста.",
    "请保存这些信息。",
    "记住这一点。",
    "请记住。",
    "覚えておいて。",
    "保存しておいて。",
    "これを覚えて。",
    "save this",
    "Save this.",
    "learn from this and save",
    "Learn from this and save it",
    "store this information",
    "remember what you just said",
    "merk dir das",
    "My wife is Ana. Please remember that.",
    "Read /shared/page.md, learn from this and save",
    "Read /shared/page.md and remember it.",
    "Please save this information to memory.",
    "Save that for later, please.",
    "Great, thanks! Save this.",
    "Remember this",
    "Don't forget this!",
    "Keep that in mind.",
    "Can you save this?",
    "Could you please remember this?",
    "Save your last answer",
    "I'm vegan, please remember that.",
    "write this down",
    "Add this to your memory",
    "Read https://example.org/x and save this information",
    "Read https://example.org/x and save what you learn",
    "Speichere das bitte.",
    "Merk dir das!",
    "Lerne daraus und speichere es.",
    "Speichere diese Informationen",
    "Kannst du dir das merken?",
    "Merk dir, was du gerade gesagt hast",
    "Meine Frau heißt Ana. Merk dir das bitte.",
    "Retiens ça.",
    "Enregistre cette information",
    "Souviens-toi de ça",
    "Note-le",
    "Peux-tu retenir ça ?",
    "Recuerda esto.",
    "Guarda esto",
    "Guarda esta información",
    "Guárdalo, por favor",
    "No lo olvides",
    "Ricorda questo",
    "Salva questo.",
    "Salva queste informazioni",
    "Salvalo",
    "Lembre-se disso",
    "Guarda isso",
    "Salve esta informação",
    "Guarda isto, por favor",
    "Onthoud dit.",
    "Sla dit op",
    "Bewaar deze informatie",
    "Kun je dit onthouden?",
    "Zapamiętaj to.",
    "Zapisz to",
    "Zapisz te informacje",
    "Запомни это.",
    "Сохрани это",
    "Сохрани эту информацию",
    "Запомни, пожалуйста, это",
    "记住这个",
    "保存这些信息",
    "请把这个记下来",
    "记住你刚才说的话",
    "从中学习并保存",
    "これを覚えておいて",
    "これを保存してください",
    "この情報を記憶してください",
]

NO_REQUEST = [
    "Where do you save this?",
    "Remember Ana?",
    "Do you remember what you just said?",
    "Why did you save that?",
    "You don't need to remember that.",
    "No need to save this.",
    "You can forget that.",
    "Forget that.",
    "Please forget what I said.",
    "Save money.",
    "How can I save this page as PDF?",
    "Save this as a PDF.",
    "Save this to a file.",
    "Save it in /shared/notes.md",
    "Write this to notes.txt",
    "Store this in a spreadsheet.",
    "Note to self is a phrase.",
    "I always remember that song.",
    "Let me remember.",
    "I want to remember that.",
    "Should I save this?",
    'What does "save this" mean?',
    "Keep it simple.",
    "Keep this short.",
    "Remind me tomorrow.",
    "Translate: remember that I love you",
    'Translate into French: "Save this."',
    "Write a function that saves this.",
    "Write that function again",
    "Can you save files?",
    "Ich merke mir das.",
    "Kannst du dich an mich erinnern?",
    "Weißt du noch, dass ich Tee mag?",
    "Vergiss das.",
    "Je retiens ça.",
    "Oublie ça.",
    "Olvida esto.",
    "Запомнил?",
    "记住了吗？",
    "忘记这个。",
    "忘れてください。",
    "Remember that I like tea?",
    "Remember this?",
    "Summarise this mail:\nHi Bob,\nPlease remember this.\nBest, Al",
    "do you remember that I like tea?",
    "Do you remember this?",
    "Don't remember this.",
    "don't save this",
    "Please don't save that.",
    "save this to /shared/x.md",
    "save the file",
    "Save it as notes.txt",
    "I saved this yesterday",
    "I remembered that I like tea",
    'He said "remember that you must die"',
    "remember when we met?",
    "do you remember me?",
    "I remember: no",
    "What did you save?",
    "Remember me?",
    "Did you save that?",
    "How do I save this in Word?",
    "She told me to remember that it was late.",
    "Can you remember what I said?",
    "Write a script and save it",
    "Never mind, do not save it.",
    "I'll remember that.",
    "Summarise this mail:\nHi Bob,\nPlease remember that the meeting is at nine.\nBest, Al",
    "You saved this already.",
    "If you remember that, fine.",
    "> remember that x is y",
    "What is the capital of France?",
    "Remind me to call Bob",
    "hello",
    "Save the world",
    "Erinnerst du dich, dass ich Tee mag?",
    "Merk dir das nicht.",
    "Speichere das nicht",
    "Speichere das in /shared/x.md",
    "Hast du das gespeichert?",
    "Ich habe mir das gemerkt.",
    "Te souviens-tu que j'aime le thé ?",
    "N'enregistre pas ça",
    "Ne retiens pas ça",
    "Enregistre le fichier",
    "As-tu enregistré ça ?",
    "¿Recuerdas que me gusta el té?",
    "No guardes esto",
    "Guarda el archivo",
    "¿Has guardado esto?",
    "Ti ricordi che mi piace il tè?",
    "Non salvare questo",
    "Salva il file",
    "Você lembra que eu gosto de chá?",
    "Não guarde isso",
    "Salve o arquivo",
    "Weet je nog dat ik van thee hou?",
    "Onthoud dit niet",
    "Sla het bestand op",
    "Pamiętasz, że lubię herbatę?",
    "Nie zapisuj tego",
    "Zapisz plik",
    "Ты помнишь, что я люблю чай?",
    "Не сохраняй это",
    "Сохрани файл",
    "你记得我喜欢喝茶吗？",
    "不要保存这个",
    "保存文件",
    "请不要记住这个。",
    "私がお茶が好きなことを覚えていますか？",
    "これを保存しないでください",
    "ファイルを保存して",
]


@pytest.mark.parametrize(("message", "words"), GIVEN)
def test_words_that_are_given_are_kept(message: str, words: tuple[str, ...]) -> None:
    wish = wish_of(message)
    assert wish is not None
    assert wish.words == words


@pytest.mark.parametrize("message", POINTED)
def test_what_is_pointed_at_is_asked_for_without_words(message: str) -> None:
    wish = wish_of(message)
    assert wish is not None
    assert wish.words == ()


@pytest.mark.parametrize("message", NO_REQUEST)
def test_what_only_sounds_like_a_request_is_none(message: str) -> None:
    assert wish_of(message) is None


@pytest.mark.parametrize(
    ("message", "wish"),
    [
        ("My wife is Ana. Please remember that.", Wish(rest="My wife is Ana.", told=True)),
        ("I'm vegan, please remember that.", Wish(rest="I'm vegan", told=True)),
        ("Great, thanks! Save this.", Wish(in_file=True)),
        ("Remember what you just said.", Wish(said=True)),
        ("Note down what you just said.", Wish(said=True)),
        ("Save your last answer", Wish(said=True, in_file=True)),
        (
            "Read /shared/page.md, learn from this and save",
            Wish(rest="Read /shared/page.md", named=("/shared/page.md",)),
        ),
        ("Explain gravity and remember it.", Wish(result=True, made=True, rest="Explain gravity")),
        (
            "Here it is:\n\n- tea\n- milk\n\nStore this information",
            Wish(rest="Here it is:\n\n- tea\n- milk", told=True, attached=True, in_file=True),
        ),
        ("I moved to Bergen and please remember that", Wish(rest="I moved to Bergen", told=True)),
        ("What is gravity? Remember the answer.", Wish(result=True)),
        (
            "Read https://x.org/a and https://x.org/b, learn from this and save.",
            Wish(
                rest="Read https://x.org/a and https://x.org/b",
                named=("https://x.org/a", "https://x.org/b"),
            ),
        ),
        ("Remember this: https://x.org/a", Wish(("https://x.org/a",), named=("https://x.org/a",))),
        (
            "Summarise /shared/a.md and remember it",
            Wish(result=True, made=True, rest="Summarise /shared/a.md", named=("/shared/a.md",)),
        ),
    ],
)
def test_what_is_pointed_at(message: str, wish: Wish) -> None:
    assert wish_of(message) == wish


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("Fix this function. Note: it must not recurse.", False),
        ("Note: the array is sorted. Find the median.", False),
        ("Write a sort. Keep in mind that the input may be empty.", False),
        ("Keep in mind that the budget is 5000.", True),
        ("Find a date. Keep in mind that I only work mornings.", True),
        ("I open the settings and save them.", False),
        ("Ich öffne das Dokument und speichere es.", False),
        ("I moved to Bergen and please remember that.", True),
        ("Can you read https://x.org/a and save it?", True),
        ("Can you tell me how to open a page and save it?", False),
        ("Record: 5 wins", False),
    ],
)
def test_advice_tales_and_how_to_ask_for_nothing(message: str, kept: bool) -> None:
    assert (wish_of(message) is not None) == kept


LONG = "Pancakes\n200 g flour\n2 eggs\n{}\nFry them.\nServe warm."


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (LONG.format("Remember: let the batter rest."), None),
        ("Reply to this.\n\nHi Tom,\nplease remember that we are closed.\nBest, Ana", None),
        ("\n".join(f"Remember that {n} is odd." for n in range(1, 8)), 7),
        ("Remember that my desk is number 12.\nWhat is the weather?", 1),
        (LONG.format("Save the following:\n- tea"), 1),
        (f"Remember that I like tea.\n{LONG}", 1),
        (f"{LONG}\nRemember that I like tea.", 1),
    ],
)
def test_what_stands_within_a_long_message_is_no_request(message: str, words: int | None) -> None:
    wish = wish_of(message)
    assert (wish and len(wish.words)) == words
    assert wish is None or all("weather" not in kept for kept in wish.words)


FRAMES = [message for message, _ in GIVEN[:3]] + ["Merk dir, dass ich Tee mag.", "Save this."]


@given(
    st.sampled_from(FRAMES),
    st.sampled_from(["Hello.", "The weather is fine today.", "Wie geht es?", "1 + 1 = 2!"]),
)
def test_a_request_counts_wherever_its_sentence_stands(request: str, other: str) -> None:
    alone, after = wish_of(request), wish_of(f"{other} {request}")
    assert alone is not None
    assert after is not None
    assert after.words == alone.words


@given(st.sampled_from(FRAMES), st.sampled_from([('"', '"'), ("“", "”"), ("`", "`"), ("> ", "")]))
def test_a_quoted_request_is_none(request: str, quotes: tuple[str, str]) -> None:
    assert wish_of(f"{quotes[0]}{request}{quotes[1]}") is None


@given(st.text())
def test_any_text_can_be_read(message: str) -> None:
    wish = wish_of(message)
    assert wish is None or all(words in message for words in wish.words)


def test_a_long_row_of_dots_is_read_in_linear_time() -> None:
    row = "1. " * 10_000
    assert wish_of(f"Remember that {row}") == Wish(words=(row.strip(),))
