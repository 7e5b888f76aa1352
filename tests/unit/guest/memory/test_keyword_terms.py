"""Which words of a query are looked for."""

import pytest

from guest.memory.search.keyword import query_terms, references


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("What is my name?", ['"name"']),
        ("what do you know about User's dogs", ['"know"', '"user"', '"dogs"']),
        ("who am I", ['"who"', '"am"', '"i"']),
        ("Tea tea TEA", ['"tea"']),
        ('"quoted" AND (near) NOT* col:umn ^x', ['"quoted"', '"near"', '"col"', '"umn"', '"x"']),
        ("snake_case and C++20", ['"snake"', '"case"', '"c"', '"20"']),
        ("e\u0301tude", ['"etude"']),
        ("नमस्ते दुनिया", ['"नमस्ते"', '"दुनिया"']),
        ("我的名字", ['"我的"', '"的名"', '"名字"']),
        ("猫 and GPT模型", ['"猫"*', '"gpt"', '"模型"']),
        ("ข้าวผัด กิน ก", ['"ข้า าว"', '"าว วผั"', '"วผั ผัด"', '"กิน"', '"ก"*']),
        ("Oxydra™ costs 5€", ['"oxydra"', '"costs"', '"5"']),
        ("!?… 🧠", ['"u1f9e0"']),
        ("getUserId", ['"getuserid"', '"get"', '"user"', '"id"']),
        (
            "12,480 or +49 170 55",
            ['"12"', '"480"', '"49"', '"170"', '"55"', '"12480"', '"4917055"', '"17055"'],
        ),
        ("", []),
    ],
)
def test_telling_words_quoted(query: str, terms: list[str]) -> None:
    assert query_terms(query) == terms


def test_their_number_is_bounded() -> None:
    assert len(query_terms(" ".join(f"word{i}" for i in range(500)))) == 64


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("Where is AB-1234?", [['"ab 1234"']]),
        ("Who is mia.lang@post.example?", [['"mia lang post example"']]),
        ("Who owes 2,480?", [['"2 480"', '"2480"']]),
        (
            "is user_id in app.run or parseDate (v2)?",
            [['"user id"'], ['"app run"'], ['"parsedate"']],
        ),
        ("https://a.example/x7", [['"https a example x7"']]),
        ("On the 12th, at 9, e.g. the well-known and/or common words", []),
        ("", []),
    ],
)
def test_what_is_named_exactly_is_looked_for_as_a_whole(
    query: str, phrases: list[list[str]]
) -> None:
    assert references(query) == phrases
