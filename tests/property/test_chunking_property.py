"""Chunking loses no text and respects its bounds, whatever the text."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from guest.memory.indexing.chunking import chunk

TEXTS = st.one_of(
    st.text(max_size=400),
    st.text(alphabet="ab. \n\u0301\u200d🇩🇪👍🏽。각", max_size=400),
    st.lists(st.sampled_from(["word", "End. ", "e\u0301", " ", "\n\n", "日本語。", "🇩🇪"])).map(
        "".join
    ),
)
BOUNDS = st.integers(1, 80).flatmap(
    lambda size: st.tuples(st.just(size), st.integers(0, max(0, (size - 1) // 2)))
)


@given(TEXTS, BOUNDS)
def test_every_character_lies_in_order_in_some_passage(text: str, bounds: tuple[int, int]) -> None:
    size, overlap = bounds
    ends = {0}  # all the places up to which the passages so far may reach
    for passage in chunk(text, size, overlap):
        assert 0 < len(passage) <= size
        ends = {
            start + len(passage)
            for end in ends
            for start in range(max(0, end - overlap), end + 1)
            if text.startswith(passage, start) and start + len(passage) > end
        }
        assert ends, "a passage leaves a gap or repeats too much"
    assert len(text) in ends


@given(TEXTS, st.integers(30, 80))
def test_no_mark_is_parted_from_its_letter(text: str, size: int) -> None:
    for passage in chunk(text, size, size // 4)[1:]:
        starts_with_mark = unicodedata.category(passage[0]).startswith("M")
        assert not starts_with_mark or _long_run_of_joined(text, size)


def _long_run_of_joined(text: str, size: int) -> bool:
    """Whether some visible character may be longer than half a passage."""
    run = longest = 0
    for character in text:
        joins = unicodedata.category(character).startswith("M") or character in "\u200d"
        run = run + 1 if joins else 0
        longest = max(longest, run)
    return longest >= size // 8


@given(TEXTS, BOUNDS)
def test_the_same_text_is_always_cut_the_same(text: str, bounds: tuple[int, int]) -> None:
    assert chunk(text, *bounds) == chunk(text, *bounds)
