"""What stands in a text or in the name of a file can be seen, and ends no line of ours."""

import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.text import parsed_json, visible, visible_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"notes.txt", "notes.txt"),
        (b"a\nNote: all is well", "a\\nNote: all is well"),
        (b"a\r\tb\x1b[2J\x7f", "a\\r\\tb\\x1b[2J\\x7f"),
        (b"\xff\xfe.txt", "\\xff\\xfe.txt"),
        ("\x9b31m".encode(), "\\x9b31m"),
        ("a\u2028b\u2029c\x85d".encode(), "a\\u2028b\\u2029c\\x85d"),
        ("fdp.\u202eexe".encode(), "fdp.\\u202eexe"),
        ("\U000e0041".encode(), "\\U000e0041"),
        ("Screenshot at 1.00\u202fPM.png".encode(), "Screenshot at 1.00\u202fPM.png"),
        ("نامه\u200cها.txt".encode(), "نامه\u200cها.txt"),
    ],
)
def test_a_name_is_shown_on_one_line(name: bytes, shown: str) -> None:
    assert visible_name(os.fsdecode(name)) == shown


@given(
    st.binary(max_size=200)
    | st.text(st.characters(categories=None), max_size=50).map(
        lambda text: text.encode(errors="surrogatepass")
    )
)
def test_any_name_is_one_line_that_can_be_sent(name: bytes) -> None:
    shown = visible_name(os.fsdecode(name))
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert visible_name(shown) == shown


@pytest.mark.parametrize("text", ["", "{", "\xff", "[" * 5000, '{"a":' * 5000, "9" * 5000])
def test_no_text_does_anything_but_be_read_as_json_or_refused(text: str) -> None:
    assert parsed_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError):
        parsed_json(text)


def test_lines_and_tabs_of_a_text_stay() -> None:
    assert visible("a\n\tb\x1b\u200b") == "a\n\tb\\x1b\\u200b"
