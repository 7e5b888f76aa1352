"""What a person decides on is shown exactly, and no argument can pass for another one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.text import visible

from guest.tools.arguments import arguments_text, asked_text, told


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ls\nrm -r a", ["│ ls", "│ rm -r a"]),
        ("a\tb\r\nc", ["│ a<U+0009>b<U+000D>", "│ c"]),
        ("\x1b[8mrm", ["│ <U+001B>[8mrm"]),
        (
            "rm\u00a0a\u200b\u202e\ufe0f\U000e0041",
            ["│ rm<U+00A0>a<U+200B><U+202E><U+FE0F><U+E0041>"],
        ),
        ("rm a\\  \nb", ["│ rm a\\␠␠", "│ b"]),
        ("a   b", ["│ a   b"]),
        ("", ["│ "]),
        ("ls\n  cwd\n  │ /tmp", ["│ ls", "│   cwd", "│   │ /tmp"]),
    ],
)
def test_a_text_is_shown_exactly(command: str, shown: list[str]) -> None:
    asked = asked_text("shell_exec", json.dumps({"command": command})).split("\n")
    assert asked == ["allow shell_exec?", "  command", *(f"  {row}" for row in shown)]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"number": 9007199254740997, "until": null}', ["number 9007199254740997", "until null"]),
        ('{"b": 1, "a": 2, "b": 3}', ["b 3", "a 2"]),
        ('{"f": 0.1, "g": 1e300, "h": -0.0, "i": true}', ["f 0.1", "g 1e+300", "h -0.0", "i true"]),
        ('{"o": {"10": [null, {}], "2": 123456789012345678901}}',
         ['o {"10": [null, {}], "2": 123456789012345678901}']),
        ('{"o": ["a\\u202eb\\nc"]}', ['o ["a<U+202E>b\\nc"]']),
        ('{"a\\nb │ c": 1, "__proto__": {"x": 1}}', ['"a\\nb │ c" 1', '__proto__ {"x": 1}']),
        ('{"": false, "n 1": 2}', ['"" false', '"n 1" 2']),
        ("rm \x1b", ["arguments", "│ rm <U+001B>"]),
        ("[1]", ["arguments", "│ [1]"]),
        ("{}", []),
    ],
)  # fmt: skip
def test_numbers_nulls_and_order_stay(arguments: str, shown: list[str]) -> None:
    assert asked_text("t", arguments).split("\n")[1:] == [f"  {line}" for line in shown]


def test_a_question_of_another_kind_stands_in_one_line() -> None:
    asked = asked_text("network", '{"host": "a.test"}', "allow a.test\x1b[2J\nfor this session?")
    assert asked == "allow a.test<U+001B>[2J<U+000A>for this session?\n  host\n  │ a.test"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=5))
def test_different_arguments_are_never_shown_alike(arguments: dict[str, object]) -> None:
    """Each line without a bar begins an argument, and all of them are there."""
    lines = arguments_text(json.dumps(arguments)).split("\n") if arguments else []
    begun = [line for line in lines if not line.startswith("  │ ")]
    assert len(begun) == len(arguments)
    assert visible("\n".join(lines)) == "\n".join(lines)


def test_a_call_in_one_line_is_short() -> None:
    assert told('{"x": "a\\n\\n  b\\u0000⏎"}', "x") == "a ⏎ b<U+0000><U+23CE>"
    assert len(told(json.dumps({"x": "y" * 9999}), "x")) == 501
    assert told('{"x": 5}', "x") == told("[1]", "x") == told("no JSON", "x") == ""
