"""What models write in the place of an answer: calls as text, thinking in tags, or anything."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from guest.agent.call_origin import Words
from guest.agent.repetition import Repetition
from guest.agent.text_calls import TextCall, may_be_calls, parse
from tests.unit.guest.agent.test_thinking_text import in_pieces, split

OFFERED = ("file_read", "shell_exec", "remember")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(TextCall, st.sampled_from(OFFERED), st.dictionaries(TEXTS, VALUES, max_size=4))


def plain(call: TextCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


FORMS: tuple[Callable[[TextCall], str], ...] = (
    plain,
    lambda call: json.dumps({"arguments": call.arguments, "name": call.name}, indent=2),
    lambda call: json.dumps({"function": {"name": call.name, "parameters": call.arguments}}),
    lambda call: json.dumps({"function": call.name, "arguments": json.dumps(call.arguments)}),
    lambda call: f"```json\n{plain(call)}\n```",
    lambda call: f"<tool_call>{plain(call)}</tool_call>",
    lambda call: f" <tools>\n{plain(call)}\n</tools>\n",
    lambda call: f"[TOOL_CALLS][{plain(call)}]",
)
WRITTEN = st.lists(st.tuples(CALLS, st.sampled_from(FORMS)), min_size=1, max_size=3)
PIECES = (
    "<think>",
    "</think>",
    "<|channel|>",
    '{"name": "',
    "file_read",
    "```",
    "\n",
    "[TOOL",
    "\\u",
)
ODD = st.lists(st.sampled_from(PIECES) | TEXTS, max_size=12).map("".join)


@given(WRITTEN, st.integers(0, 10_000))
def test_calls_are_read_as_they_were_written(
    written: list[tuple[TextCall, Callable[[TextCall], str]]], cut: int
) -> None:
    text = "\n".join(form(call) for call, form in written)
    assert parse(text, OFFERED) == [call for call, _ in written]
    assert may_be_calls(text[: cut % (len(text) + 1)], OFFERED)
    assert parse(f"{text} So.", OFFERED) == []


@given(ODD, st.integers(1, 9))
def test_any_text_is_borne_and_split_alike_in_all_pieces(text: str, size: int) -> None:
    parse(text, OFFERED)
    may_be_calls(text, OFFERED)
    Words([text], [text]).hold("file_read", {"path": text}, ())

    repetition = Repetition("")
    for piece in in_pieces(text, size):
        repetition.add(piece)
    assert split(text, size) == split(text, len(text) + 1)


@given(CALLS, st.sampled_from(FORMS), st.integers(0, 3), TEXTS)
def test_a_call_that_stands_in_what_was_read_is_found(
    call: TextCall, form: Callable[[TextCall], str], depth: int, around: str
) -> None:
    """However often it was put into JSON on its way."""
    page = f"{around}\n{form(call)}\n{around}"
    for _ in range(depth):
        page = json.dumps({"content": page})
    assert Words([page], []).hold(call.name, call.arguments, ())
