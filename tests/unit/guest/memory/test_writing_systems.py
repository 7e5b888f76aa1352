"""Texts of many writing systems are found by their own words, however those are encoded."""

import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from guest.memory.memory import Memory
from tests.support.memory.store import ORIGIN, opened

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")

SENTENCES = {
    "Korean": ("우리 고양이를 병원에 데려갔다", ("고양이", "병원", "고양이를 병원에")),
    "Chinese": ("我妈妈的生日是三月十五日", ("生日", "妈妈", "日", "妈妈的生日是什么时候")),
    "Japanese": ("車は地下のガレージに止めました", ("ガレージ", "地下", "車", "車はどこですか")),
    "half-width Japanese": ("ﾊﾟｽﾎﾟｰﾄは机の中", ("パスポート", "机")),
    "Thai": ("ฉันชอบกินข้าวผัดที่ร้านใกล้บ้าน", ("ข้าวผัด", "กิน", "ร้าน", "น้ำ ใกล้บ้าน")),
    "Lao": ("ຂ້ອຍມັກກິນເຂົ້າໜຽວ", ("ກິນ", "ເຂົ້າໜຽວ")),
    "Khmer": ("ខ្ញុំចូលចិត្តសៀវភៅនេះ", ("សៀវភៅ", "ចូលចិត្ត")),
    "Burmese": ("ကျွန်တော်ကော်ဖီကြိုက်တယ်", ("ကော်ဖီ", "ကြိုက်")),
    "Hindi": ("मेरी बहन को क़िताबें और फ़िल्में पसंद हैं", ("क़िताबें", "किताबें", "बहन", "फ़िल्में")),
    "Bengali": ("আমার বাড়ি নদীর ধারে", ("বাড়ি", "নদীর")),
    "Tamil": ("என் தம்பி கொழும்பில் வசிக்கிறான்", ("தம்பி", "கொழும்பில்")),
    "Georgian": ("ჩემი ძაღლი პარკში დარბის", ("ძაღლი", "ᲫᲐᲦᲚᲘ")),
    "Cherokee": ("ꮳꮃꭹ ꭶꮼꮒꭿꮝꮧ", ("ᏣᎳᎩ", "ꮳꮃꭹ", "ᎦᏬᏂᎯᏍᏗ")),
    "Adlam": ("𞤊𞤵𞤤𞤬𞤵𞤤𞤣𞤫 𞤃𞤢𞤧𞤭𞤲𞤢", ("𞤊𞤓𞤂𞤊𞤓𞤂𞤁𞤉", "𞤬𞤵𞤤𞤬𞤵𞤤𞤣𞤫", "𞤥𞤢𞤧𞤭𞤲𞤢")),
    "Arabic": ("كَتَبَ أَخِي رِسَالَةً طويلة", ("كتب", "رسالة", "اخي", "طــويلة")),
    "Persian": ("کتاب‌های من در خانه است", ("کتاب", "خانه", "کتاب‌های")),
    "Hebrew": ("הַיֶּלֶד אוֹכֵל תפוח", ("הילד", "אוכל", "תפוח")),
    "Vietnamese": ("Chị tôi thích uống cà phê sữa", ("phê", "PHÊ", "sua", "chị")),
    "Turkish": ("Işık açık, İstanbul'da yağmur yağıyor", ("ışık", "IŞIK", "istanbul", "YAĞIYOR")),
    "German": ("Die Straße heißt „Grüner Weg“", ("STRASSE", "strasse", "Straße", "gruner")),
    "Greek": ("Ο σκύλος μου λέγεται Άργος", ("ΣΚΎΛΟΣ", "σκυλος", "αργοσ")),
    "Russian": ("Моя ёлка стоит на даче", ("елка", "ЁЛКА")),
    "full width": ("Ｏｘｙｄｒａ ｖｅｒｓｉｏｎ １２３", ("oxydra", "123")),
    "hidden characters": ("They co\u00adoperate on x² ❤️", ("cooperate", "x2", "X²")),
    "English in Chinese": ("我用Python写程序", ("python", "程序", "写")),
}
"""Each with queries that find it."""

DIFFERENT = {
    "another vowel in Hindi": ("दिन", "दान"),
    "another vowel in Thai": ("กิน", "กัน"),
    "a voiced sound in Japanese": ("かき", "がき"),
    "the same characters in another order": ("上海", "海上"),
    "letters that two words share": ("ข้าว", "สาว"),
    "another syllable in Korean": ("기타", "기차"),
}


@pytest.fixture
async def by_keyword(tmp_path: Path) -> AsyncIterator[Memory]:
    """A memory without vectors."""
    async with opened(tmp_path / "memory.db") as memory:
        yield memory


async def texts_found(memory: Memory, query: str, *, spoken: bool = False) -> list[str]:
    outcome = await memory.search(query, top_k=50, include_conversation=spoken)
    assert outcome.results == () or outcome.results[0].matched_by == "keyword"
    return [hit.text for hit in outcome.results]


async def add_turn(memory: Memory, session_id: str, text: str) -> None:
    await memory.conversations.create(session_id)
    await memory.conversations.append(session_id, turn_id="t", role="user", text=text, payload="[]")


@pytest.mark.parametrize("form", FORMS)
async def test_a_sentence_is_found_by_its_words_in_every_encoding(
    by_keyword: Memory, form: Form
) -> None:
    saved = {}
    for language, (sentence, _) in SENTENCES.items():
        saved[language] = unicodedata.normalize(form, sentence)
        await by_keyword.save(saved[language], (), ORIGIN)
    for language, (sentence, queries) in SENTENCES.items():
        for query in (*queries, sentence):
            for encoding in FORMS:
                hits = await texts_found(by_keyword, unicodedata.normalize(encoding, query))
                assert hits[:1] == [saved[language]], (language, query, encoding)


@pytest.mark.parametrize(("word", "other"), DIFFERENT.values(), ids=DIFFERENT)
async def test_what_is_written_differently_is_not_found(
    by_keyword: Memory, word: str, other: str
) -> None:
    await by_keyword.save(word, (), ORIGIN)
    assert await texts_found(by_keyword, word) == [word]
    assert await texts_found(by_keyword, other) == []


@pytest.mark.parametrize("form", FORMS)
async def test_a_turn_is_found_by_its_words_and_by_those_around_it(
    by_keyword: Memory, form: Form
) -> None:
    said = {}
    for language, (sentence, _) in SENTENCES.items():
        said[language] = unicodedata.normalize(form, sentence)
        await add_turn(by_keyword, language, said[language])
        await add_turn(by_keyword, language, "Yes, indeed")
    for language, (_, queries) in SENTENCES.items():
        hits = await texts_found(by_keyword, queries[0], spoken=True)
        assert [hit.partition("): ")[2] for hit in hits[:2]] == [said[language], "Yes, indeed"]


async def test_what_is_shown_is_what_was_written(by_keyword: Memory) -> None:
    for form in FORMS:
        for sentence, _ in SENTENCES.values():
            text = unicodedata.normalize(form, sentence)
            note = (await by_keyword.save(text, (), ORIGIN)).note
            assert note.text == text
            assert (await by_keyword.notes.get(note.note_id)).text == text
            assert text in await texts_found(by_keyword, text)


async def test_what_an_update_says_is_found_and_what_it_replaces_is_not(by_keyword: Memory) -> None:
    note = (await by_keyword.save("우리 고양이", (), ORIGIN)).note
    await by_keyword.update(note.note_id, "我的猫很可爱", None, ORIGIN)
    assert await texts_found(by_keyword, "고양이") == []
    assert await texts_found(by_keyword, "可爱") == ["我的猫很可爱"]
