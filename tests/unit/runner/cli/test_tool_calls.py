"""A call is one line with its telling argument; a question shows exactly what would run."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from wire.v1 import gateway_pb2

from guest.tools.arguments import arguments_text, told
from runner.cli.chat.calls import call_begun, call_line, folded, in_full, question
from runner.client.turn import ToolCall, TurnSoFar

NOTE = "note-103637e5-8311-4af9-96dd-6bf2fbb68c13"
Started, Finished = gateway_pb2.ToolCallStarted, gateway_pb2.ToolCallFinished
TurnEvent = gateway_pb2.TurnEvent


def call(arguments: str, summary: str, *, ok: bool = True, telling: str = "x") -> ToolCall:
    started = Started(
        tool="t", arguments_text=arguments_text(arguments), told=told(arguments, telling)
    )
    return ToolCall(0, started, Finished(tool="t", ok=ok, summary=summary))


@pytest.mark.parametrize(
    ("arguments", "summary", "ok", "line"),
    [
        ('{"x": "make test"}', "exit code 0", True, "● t make test → exit code 0"),
        ('{"x": "a\\n\\n  b\\u001b[2J"}', "", True, "● t a ⏎ b<U+001B>[2J →"),
        ('{"x": "/vault/a"}', "not\nfound", False, "● t /vault/a ✗ not found"),
        ('{"y": "a"}', f"Stored: [id: {NOTE}] (as before)", True, "● t → Stored (as before)"),
        (
            f'{{"x": "{NOTE}"}}',
            f"by [id: {NOTE}]",
            True,
            "● t note-103637e5 → by [id: note-103637e5]",
        ),
        ('{"x": 5}', "done", True, "● t → done"),
        ("no JSON", "done", True, "● t → done"),
        ("[1]", "done", True, "● t → done"),
    ],
)
def test_a_call_is_one_line(arguments: str, summary: str, ok: bool, line: str) -> None:
    assert call_line(call(arguments, summary, ok=ok), 80) == line


@given(st.text(max_size=80), st.text(max_size=80), st.integers(min_value=20, max_value=200))
def test_a_line_fits_and_shows_something_of_argument_and_result(
    value: str, summary: str, width: int
) -> None:
    line = call_line(call(json.dumps({"x": value}), summary), width)
    assert cell_len(line) <= width
    assert len(line.splitlines()) == 1


def test_both_are_cut_where_there_is_no_room_for_both() -> None:
    line = call_line(call('{"x": "' + "a" * 99 + '"}', "b" * 99), 40)
    assert line == "● t aaaaaaaaaaaaaaaaa… → bbbbbbbbbbbbbb…"


def test_calls_with_one_id_end_in_the_order_in_which_they_began() -> None:
    turn = TurnSoFar()
    for text in ("one", "two"):
        turn.add(TurnEvent(tool_started=Started(call_id="c", tool="t", told=text)))
    finished = TurnEvent(tool_finished=Finished(call_id="c", tool="t", ok=True))
    ended = [turn.add(finished) for _ in range(3)]
    lines = [call_line(each, 80) for each in ended if each is not None]
    assert lines == ["● t one →", "● t two →", "● t →"]
    assert [call_begun(each.started) for each in turn.calls] == ["t one", "t two"]
    assert turn.running == []


def test_calls_side_by_side_end_by_their_ids() -> None:
    turn = TurnSoFar()
    for text in ("one", "two"):
        turn.add(TurnEvent(tool_started=Started(call_id=text, tool="t", told=text)))
    ended = turn.add(TurnEvent(tool_finished=Finished(call_id="two", tool="t", ok=True)))
    assert ended is turn.calls[1]
    assert turn.running == turn.calls[:1]


def test_long_output_is_folded() -> None:
    assert folded("one\ntwo\n", 20) == "  │ one\n  │ two"
    assert folded("a\n" * 5, 20).splitlines()[-1] == "  … 1 more line: /details"
    assert folded("\x1b[2J" + "x" * 40, 20) == "  │ ␛[2Jxxxxxxxxxxx…"
    assert folded(" \n", 20) == ""


def test_details_are_everything() -> None:
    long = call('{"x": "make\\nall", "n": 3, "none": null}', f"Stored: [id: {NOTE}]")
    long.finished.output = "line\n" * 6
    long.finished.duration_ms = 1234
    assert in_full(long, 60).splitlines() == [
        *("● t", "  x", "  │ make", "  │ all", "  n 3", "  none null", f"  → Stored: [id: {NOTE}]"),
        *("  printed", *["  │ line"] * 6, "  took 1.2 s"),
    ]


def test_a_question_is_what_the_gateway_says_in_lines_that_fit() -> None:
    nested = f'  opts ["{"y" * 29}  │ a"]'
    text = f"allow t?\n  command\n  │ {'x' * 50}\n  │ \x1b[8mrm\n{nested}\n  cwd\n  │ /shared"
    assert question(gateway_pb2.ApprovalRequested(text=text), 40).split("\n") == [
        "allow t?",
        "  command",
        f"  │ {'x' * 36}",
        f"  ┆ {'x' * 14}",
        "  │ ␛[8mrm",
        f'  opts ["{"y" * 29}  ',
        '  ┆ │ a"]',
        "  cwd",
        "  │ /shared",
    ]
    older = gateway_pb2.ApprovalRequested(tool="t", arguments_json='{"a": 1}')
    assert question(older, 40) == 'allow t?\n{"a": 1}'
