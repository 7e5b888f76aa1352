"""Which words of a query are looked for."""

import pytest

from guest.memory.search.keyword import query_terms


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
        ("!?… 🧠", []),
        ("", []),
    ],
)
def test_telling_words_quoted(query: str, terms: list[str]) -> None:
    assert query_terms(query) == terms


def test_their_number_is_bounded() -> None:
    assert len(query_terms(" ".join(f"word{i}" for i in range(500)))) == 64
