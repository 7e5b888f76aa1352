"""Where passages are cut."""

import time

import pytest

from guest.memory.indexing.chunking import chunk

SIZE, OVERLAP = 640, 96


def test_a_short_text_is_one_passage() -> None:
    assert chunk("Hello.", SIZE, OVERLAP) == ["Hello."]


def test_an_empty_text_has_no_passage() -> None:
    assert chunk("", SIZE, OVERLAP) == []


def test_a_text_of_exactly_the_size_is_one_passage() -> None:
    assert chunk("a" * SIZE, SIZE, OVERLAP) == ["a" * SIZE]


def test_cuts_fall_on_sentence_ends_and_overlap_by_whole_sentences() -> None:
    text = " ".join(f"Sentence {i} tells about subject {i % 7}." for i in range(100))
    passages = chunk(text, SIZE, OVERLAP)
    assert len(passages) > 5
    assert all(passage.startswith("Sentence ") for passage in passages)
    assert all(passage.rstrip().endswith(".") for passage in passages)
    first, second = passages[:2]
    shared = second[: second.index(".") + 1]
    assert shared in first


def test_without_sentences_cuts_fall_between_words() -> None:
    words = [f"word{i}" for i in range(400)]
    for passage in chunk(" ".join(words), SIZE, OVERLAP):
        assert set(passage.split()) <= set(words)


def test_without_words_cuts_fall_at_the_size() -> None:
    passages = chunk("x" * 2000, SIZE, OVERLAP)
    assert [len(passage) for passage in passages[:-1]] == [SIZE] * (len(passages) - 1)


def test_chinese_sentences_end_without_a_space() -> None:
    passages = chunk("我的名字是山塔努。" * 200, SIZE, OVERLAP)
    assert all(passage.endswith("。") for passage in passages)


@pytest.mark.parametrize(
    "cluster",
    [
        "e\u0301\u0323",
        "🇩🇪",
        "👩‍👩‍👧",
        "👍🏽",
        "\u1100\u1161\u11a8",
        "क्षि",
        "\r\n",
        "🏴\U000e0067\U000e0062\U000e007f",
    ],
)
def test_what_a_reader_sees_as_one_character_stays_whole(cluster: str) -> None:
    passages = chunk(cluster * 800, SIZE, OVERLAP)
    assert len(passages) > 1
    for passage in passages:
        assert passage == cluster * (len(passage) // len(cluster))


def test_a_character_longer_than_a_passage_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 2000
    passages = chunk(text, SIZE, OVERLAP)
    assert "".join(passages) == text
    assert max(map(len, passages)) <= SIZE


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (640, 320), (640, -1), (1, 1)])
def test_bounds_that_cannot_work_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        chunk("text", size, overlap)


@pytest.mark.parametrize("text", [".", '."', ". ", " ", "\n", "\u0301", "🇩", "a.", "。", "\u200d"])
def test_no_text_takes_long(text: str) -> None:
    start = time.monotonic()
    chunk(text * 100_000, SIZE, OVERLAP)
    assert time.monotonic() - start < 20  # the quadratic version took minutes
