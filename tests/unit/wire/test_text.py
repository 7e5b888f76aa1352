"""What stands in a text or in the name of a file can be seen, and ends no line of ours."""

import os
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.text import HIDDEN, JOINED, PICTURES, UNSEEN, parsed_json, visible, visible_name


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


IGNORABLE = (
    "ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff "
    "ffa0 fff0-fff8 1bca0-1bca3 1d173-1d17a e0000-e0fff"
)
"""Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt."""
BLANK = "2800 1d159 16fe4"
SEEN = "9 a 600-605 6dd 70f 890-891 8e2 110bd 110cd"
"""Of the categories below what is seen all the same."""


def points(ranges: str) -> set[int]:
    ends = [each.partition("-")[::2] for each in ranges.split()]
    return {n for first, last in ends for n in range(int(first, 16), int(last or first, 16) + 1)}


def test_nothing_that_is_never_seen_stays() -> None:
    unseen = {
        point
        for point in range(0x110000)
        if unicodedata.category(chr(point)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    unseen = (unseen | points(IGNORABLE) | points(BLANK)) - points(SEEN)
    assert [hex(point) for point in unseen if visible(f"a{chr(point)}b") == f"a{chr(point)}b"] == []


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d🔬 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3 ✔\ufe0e ™\ufe0f",
        "نامه\u200cها",
        "क्\u200dष ශ්\u200dරී ക്\u200d",
        "größer e\u0301 \u3000日本語 1\u202f000\u00a0€ \u0645\u06dd",
    ],
)
def test_what_a_writing_needs_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    "unseen",
    [
        "".join(chr(0xFE00 + nibble) for byte in b"obey" for nibble in divmod(byte, 16)),
        "".join(chr(0xE0100 + byte) for byte in b"obey"),
        "".join(chr(0xE0000 + byte) for byte in b"obey"),
        "\u200c\u200d\u200d\u200c",
        "\ufe0f\ufe0e\ufe0f",
        "\u200d\ufe0f\u200d",
    ],
)
@pytest.mark.parametrize("behind", ["", "a", "1", "🔥", "❤\ufe0f", "क", "日", " "])
def test_a_sentence_that_nobody_sees_does_not_pass(behind: str, unseen: str) -> None:
    shown = visible(f"{behind}{unseen}b")
    assert sum(char in unseen for char in shown) <= 1 + behind.count("\ufe0f")


def test_the_console_has_the_same_table() -> None:
    source = (Path(__file__).parents[3] / "web/src/text.js").read_text()
    for name, table in {"HIDDEN": HIDDEN, "JOINED": JOINED, "PICTURES": PICTURES}.items():
        (found,) = re.findall(rf"const {name} =\s+((?:\"[^\"]*\"\s*\+?\s*)+);", source)
        assert _points(found) == _points(table), name
    (rule,) = re.findall(r"const UNSEEN = new RegExp\((.*?),\s+\"gu\"", source, re.DOTALL)
    pieces = "".join(re.findall("`([^`]*)`", rule)).replace("\\\\", "\\").replace("${", "{")
    filled = pieces.format(HIDDEN=HIDDEN, JOINED=JOINED, PICTURES=PICTURES)
    assert filled == UNSEEN.pattern


def _points(table: str) -> list[int | str]:
    """A class of a regular expression of Python or JavaScript."""
    found = re.findall(r"\\(?:u\{(\w+)\}|[uU]([0-9a-f]+))|(-)", table)
    return [dash or int(braced or bare, 16) for braced, bare, dash in found]


def test_lines_and_tabs_of_a_text_stay() -> None:
    assert visible("a\n\tb\x1b\u200b") == "a\n\tb\\x1b\\u200b"
