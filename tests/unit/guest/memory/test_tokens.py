"""Sizes by estimate: not under what tokenizers make of a text, and additive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.memory.search.tokens import bytes_within, tokens_of

MOST = (
    ("We decided to ship the release on Friday, because the tests need one more day.", 17),
    (
        "def tokens_of(text: str) -> int:\n    return sum(map(weigh, text.encode()))\n",
        26,
    ),
    ('{"note_id":"note-103637e5","score":0.8312,"tags":["ops","db"],"version":3}', 30),
    ("id,x,y,ok\n1,12,7,0\n2,99,41,1\n3,5,60,1\n4,77,8,0\n", 40),
    ("8f14e45fceea167a5a36dedd4bea2543 c9f0f895fb98ab9159f51fd0297e236d", 39),
    ("1f0e3dad-9990-8345-f743-9f8ffabdffc4", 24),
    ("-rw-r--r-- 1 root root 48213 Nov 21 23:47 /shared/report-final.md", 26),
    ("Die Straßenbahn fährt heute nicht über den Hauptbahnhof, deshalb müssen Sie umsteigen.", 28),
    (
        "Souviens-toi que la réunion a été déplacée à mercredi, l'équipe est à l'étranger.",
        34,
    ),
    ("Proszę pamiętać, że spotkanie zostało przełożone na środę, ponieważ zespół wyjeżdża.", 46),
    ("Lütfen toplantının çarşambaya ertelendiğini unutma, çünkü ekibin çoğu yurt dışında.", 42),
    ("Hãy nhớ rằng cuộc họp đã được dời sang thứ tư vì phần lớn nhóm đi công tác.", 56),
    ("Пожалуйста, запомни, что встреча перенесена на среду, потому что команда уезжает.", 39),
    ("Παρακαλώ θυμήσου ότι η συνάντηση μεταφέρθηκε για την Τετάρτη επειδή η ομάδα φεύγει.", 96),
    ("אנא זכור שהפגישה נדחתה ליום רביעי כי רוב הצוות נוסע.", 53),
    ("يرجى تذكر أن الاجتماع قد تم تأجيله إلى يوم الأربعاء لأن الفريق مسافر.", 67),
    ("कृपया याद रखें कि बैठक बुधवार तक के लिए स्थगित कर दी गई है।", 68),
    ("โปรดจำไว้ว่าการประชุมถูกเลื่อนไปเป็นวันพุธเพราะทีมเดินทาง", 105),
    ("გთხოვთ დაიმახსოვროთ რომ შეხვედრა გადაიდო ოთხშაბათისთვის", 104),
    ("请记住会议改到星期三，因为大部分团队成员要出差。", 27),
    ("会議は水曜日に変更されたことを覚えておいてください。", 26),
    ("회의가 수요일로 변경되었다는 것을 기억해 주세요.", 25),
    ("👨‍👩‍👧‍👦🎉🦀🙏🏽🧵", 33),
    ("┌──────┬──────┐\n│ name │ size │\n└──────┴──────┘", 28),
    ("THE LICENCE IS GRANTED WITHOUT WARRANTY OF ANY KIND", 13),
    ("!@#$%^&*()_+-=[]{}|;:,.<>?/~`", 21),
)
"""With the most tokens that cl100k, Claude 2's and DeepSeek's tokenizers make of it."""


@pytest.mark.parametrize(("text", "most"), MOST, ids=[text[:12] for text, _ in MOST])
def test_no_estimate_is_under_what_a_tokenizer_makes(text: str, most: int) -> None:
    assert most <= tokens_of(text) <= 3 * most


@given(text=st.text(), other=st.text(), tokens=st.integers(-5, 50))
def test_texts_add_up_and_are_cut_where_they_reach_a_size(
    text: str, other: str, tokens: int
) -> None:
    apart = tokens_of(text) + tokens_of(other)
    assert apart - 1 <= tokens_of(text + other) <= apart
    encoded = text.encode(errors="replace")
    room = bytes_within(encoded, tokens)
    assert tokens_of(encoded[:room].decode(errors="ignore")) <= max(0, tokens)
    assert room == len(encoded) or tokens_of(text) > tokens
