"""However an answer is cut into pieces: nothing is lost, nothing moves, no lie is shown."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from guest.agent.guard.claims import claims_of
from guest.agent.guard.held_text import HeldText
from guest.agent.guard.sentences import split

LIES = [
    "I've saved that.",
    "Gespeichert!",
    "C'est noté.",
    "已保存。",
    "覚えました。",
    "Я это запомню.",
]
PLAIN = ["The capital is Paris.", "Is it saved?", "Nein.", "ok", "…", "- a\n", "\n\n", "日本です。"]
SENTENCES = st.lists(
    st.sampled_from([*LIES, *PLAIN]) | st.text(st.characters(exclude_characters="`"), max_size=8),
    max_size=8,
)
BLANKS = st.sampled_from(["", " ", "\n"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    return "".join(sentence + draw(BLANKS) for sentence in draw(SENTENCES))


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[first:last] for first, last in pairwise(places)]


@given(texts(), st.lists(st.integers(0, 1000), max_size=12), st.booleans())
def test_no_lie_is_shown_and_nothing_else_is_lost(text: str, cuts: list[int], due: bool) -> None:
    held = HeldText(lambda sentence: bool(claims_of(sentence)), lambda: due)
    shown = [held.add(piece) for piece in pieces(text, cuts)]
    if due:
        assert "".join(shown) == ""
    given_out = "".join([*shown, held.end()])
    kept = [sentence for sentence in split(text) if sentence not in held.struck]
    assert given_out == "".join(kept)
    assert sorted([*kept, *held.struck]) == sorted(split(text))
    assert "".join(split(text)) == text
    assert all(claims_of(sentence) for sentence in held.struck)
    assert not any(claims_of(sentence) for sentence in kept)


@given(texts(), st.lists(st.integers(0, 1000), max_size=12), st.integers(0, 12))
def test_what_becomes_true_is_shown_whole_and_in_order(
    text: str, cuts: list[int], done_after: int
) -> None:
    done = False
    held = HeldText(lambda sentence: not done and bool(claims_of(sentence)), lambda: False)
    shown = ""
    for number, piece in enumerate(pieces(text, cuts)):
        done = done or number >= done_after
        shown += held.add(piece)
        assert text.startswith(shown)
    done = True
    assert shown + held.end() == text
