"""What the hashing backend finds near, and that its vectors never change unnoticed."""

import numpy as np
import pytest
from wire.errors import Code

from guest.embedding import backends, loading
from guest.embedding.hashing import MODEL_ID, HashingBackend, split_words
from guest.errors import EmbedderError
from tests.support.memory.store import HashingEmbedder


def similarity(one: str, other: str) -> float:
    first, second = HashingBackend().encode([one, other])
    return float(first @ second)


@pytest.mark.parametrize(
    ("one", "near", "far"),
    [
        ("food allergy", "allergic to peanuts", "the train leaves at noon"),
        ("my name", "my name is Shantanu", "the weather in March"),
        ("running shoes", "she runs in new shoe", "a recipe for soup"),
        ("我喜欢吃苹果", "苹果很好吃", "天气预报"),
        ("любимая книга", "книги на полке", "погода завтра"),
    ],
)
def test_shared_words_and_stems_are_near(one: str, near: str, far: str) -> None:
    assert similarity(one, near) > 0.2
    assert similarity(one, near) > similarity(one, far) + 0.1


@pytest.mark.parametrize(
    ("one", "other"),
    [("Zürich Café", "zurich cafe"), ("ＡＢＣ", "abc"), ("don't!", "DON'T"), ("a\u0301", "á")],
)
def test_case_accents_width_and_punctuation_do_not_matter(one: str, other: str) -> None:
    assert similarity(one, other) == pytest.approx(1.0)


def test_stop_words_weigh_little() -> None:
    assert similarity("what is the name of it", "name") > 0.9
    assert similarity("what is the name of it", "what is the price of it") < 0.2


def test_texts_without_words_are_defined_and_told_apart() -> None:
    assert similarity("", "  \n") == pytest.approx(1.0)
    assert similarity("!!!", "🍕🍕") < 0.5
    assert similarity("🍕🍕", "🍕") > 0.5


def test_words() -> None:
    assert split_words("Grüße, I'm_42 – naïve\0x") == ["grusse", "i", "m", "42", "naive", "x"]


def test_vectors_are_the_ones_of_version_one() -> None:
    """If this fails, stored vectors no longer match: raise the version in `MODEL_ID`."""
    vector = HashingBackend().encode(["The user's name is Shantanu, allergic to peanuts: 苹果"])[0]
    assert MODEL_ID == "hashing-v1-384"
    known = {148: 0.2761, 42: 0.2559, 189: -0.2559, 176: -0.2014, 83: 0.1868}
    assert {index: round(float(vector[index]), 4) for index in known} == known
    assert np.count_nonzero(vector) == 73


def test_no_texts_are_no_rows() -> None:
    assert HashingBackend().encode([]).shape == (0, 384)


def test_the_memo_of_words_is_bounded() -> None:
    backend = HashingBackend(memo_words=10)
    backend.encode([f"word{number}" for number in range(100)] + ["x" * 8000])
    assert len(backend.memo) <= 10
    assert "x" * 8000 not in backend.memo


async def test_in_process_embedder() -> None:
    embedder = HashingEmbedder()
    embedded = await embedder.embed(["one", "two"], timeout=5)
    assert embedded.model_id == MODEL_ID
    np.testing.assert_array_equal(embedded.vectors, HashingBackend().encode(["one", "two"]))
    assert await embedder.state() == "ready"
    await embedder.close()
    await embedder.close()


async def test_in_process_embedder_keeps_its_timeout() -> None:
    with pytest.raises(EmbedderError) as raised:
        await HashingEmbedder().embed([f"{i} word{i} " * 500 for i in range(50)], timeout=0.0)
    assert raised.value.code is Code.TIMEOUT


def test_rows_become_unit_vectors_or_are_refused() -> None:
    rows = backends.unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [1.0, 0.0]], atol=1e-6)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not finite"):
            backends.unit_rows(np.array([[1.0, bad]]))


def test_an_unknown_backend_names_the_known_ones() -> None:
    with pytest.raises(EmbedderError, match=r"unknown backend 'word2vec'") as raised:
        loading.load("word2vec", "")
    assert "sentence-transformers, hashing" in raised.value.resolution
