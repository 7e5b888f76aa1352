"""Answers are Markdown; nothing in them gets lost, drives the terminal or passes for a receipt."""

import io
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from runner.cli.chat.answer import Blocks, rows

pieces = st.sampled_from(
    [
        *("word ", "**b**", "`c`", "\n", "\n\n", "- ", "1. ", "> ", "# ", "    ", "```\n", "---\n"),
        *("<b>", "</kbd>", "<!-- x -->", "&#27;", "![i](u)", "[t](http://x)", "[r]: u\n"),
        *("✓ saved", "\x1b[2J", "\u202e", "é", "日本", "*", "_", "~~s~~", "\t", "\r"),
        "| a | b |\n|---|---|\n",
    ]
)
markup = st.lists(pieces | st.text(max_size=5), max_size=40).map("".join)


def plain(text: str, width: int = 40) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    return [row.plain for row in rows(console, text)]


@given(markup, st.integers(min_value=10, max_value=100))
def test_no_letter_gets_lost_and_nothing_drives_the_terminal(text: str, width: int) -> None:
    shown = "\n".join(plain(text, width))
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    assert "\u202e" not in shown
    lost = Counter(filter(str.isalpha, text)) - Counter(filter(str.isalpha, shown))
    named = Counter(c for line in text.split("\n") if "```" in line for c in line)
    assert not lost - named


@given(markup)
def test_the_blocks_of_an_answer_are_the_answer(text: str) -> None:
    blocks = Blocks()
    finished = [blocks.add(char) for char in text]
    assert "".join(finished) + blocks.rest() == text
    assert blocks.unfinished == ""


def test_blocks_come_when_nothing_can_change_them_any_more() -> None:
    blocks = Blocks()
    lines = ["one\n", "two\n", "\n", "- a\n", "\n", "- b\n", "```\n", "\n", "x\n", "```\n", "end\n"]
    come = [blocks.add(line) for line in lines]
    assert list(filter(None, come)) == ["one\ntwo\n\n", "- a\n\n- b\n", "```\n\nx\n```\n"]
    assert blocks.rest() == "end\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Title\nwords", ["Title", "", "words"]),
        ("a **b** `c`\nd", ["a b c", "d"]),
        ("- one\n- two", [" • one", " • two"]),
        ("[t](http://x.y)", ["t (http://x.y)"]),
        ("![alt](u)", ["!alt (u)"]),
        ("<!-- hidden --> <b>x</b> </kbd>", ["<!-- hidden --> <b>x</b> </kbd>"]),
        ("[r]: http://x", ["[r]: http://x"]),
        ("&#27;[2J", ["&#27;[2J"]),
        ("```sh\nls  -l\n```", ["  ls  -l"]),
        ("✓ saved note-1", ["│ ✓ saved note-1"]),
        ("```\n✓ saved note-1\n```", ["│   ✓ saved note-1"]),
        ("word " * 7 + "abcde ✓ saved", ["word " * 7 + "abcde", "│ ✓ saved"]),
        ("\x1b]0;owned\x07", ["␛]0;owned␇"]),
    ],
)
def test_what_an_answer_looks_like(text: str, shown: list[str]) -> None:
    assert plain(text) == shown


def test_a_table_without_room_is_shown_as_it_was_written() -> None:
    table = "|" + "letters|" * 9 + "\n|" + "-|" * 9 + "\n"
    assert "".join(plain(table, 12)).count("letters") + "".join(plain(table, 12)).count("l") > 9
    assert all(cell_len(row) <= 12 for row in plain(table, 12))
