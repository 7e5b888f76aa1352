"""`runner logs`: what stands in a log is shown and obeyed by nobody."""

import json

import pytest

from runner.cli.operation.logs import json_line


@pytest.mark.parametrize(
    "line",
    [
        '{"message": "\x9b31m\x85\x9d0;title\x9c \u202e\ue0001 \x7f", "time": "now"}',
        "plain \x9b2J\x1b[2J\u2066 text",
        '{"message": "' + "\x9b" + '", "deep": ' + "[" * 9000,
        '["\x9b"]',
    ],
)
def test_a_line_of_json_holds_nothing_that_a_terminal_obeys(line: str) -> None:
    shown = json_line(line)
    assert shown.isprintable()
    content = json.loads(shown)
    expected = json.loads(line)["message"] if line.endswith('"now"}') else line
    assert content["message"] == expected
