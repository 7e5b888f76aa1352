"""The hashing backend holds for any string there is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from guest.embedding.hashing import DIMENSIONS, HashingBackend
from tests.support.examples import examples

ANY_TEXT = st.text(st.characters(), max_size=200)  # lone surrogates included
WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=5, max_size=12)


@given(st.lists(ANY_TEXT, max_size=8))
@examples(150)
def test_any_texts_have_unit_vectors_that_do_not_depend_on_company(texts: list[str]) -> None:
    together = HashingBackend().encode(texts)
    assert together.shape == (len(texts), DIMENSIONS)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    backend = HashingBackend()
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_array_equal(backend.encode([text])[0], row)
        np.testing.assert_array_equal(backend.encode([text])[0], row)


@given(st.lists(WORD, min_size=6, max_size=6, unique=True), WORD)
@examples(100)
def test_a_text_is_nearest_to_the_one_that_shares_its_words(words: list[str], extra: str) -> None:
    query, relative, stranger = HashingBackend().encode(
        [" ".join(words[:3]), " ".join([extra, *words[:3]]), " ".join(words[3:])]
    )
    assert query @ relative > query @ stranger


@given(st.text("abcdefghijklmnopqrstuvwxyzäöüéñ ", max_size=60))
@examples(60)
def test_case_does_not_matter(text: str) -> None:
    low, high = HashingBackend().encode([text, text.upper()])
    np.testing.assert_allclose(low, high, atol=1e-6)
