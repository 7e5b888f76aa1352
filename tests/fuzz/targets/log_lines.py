"""Lines of logs, answers of the self-test and specifications for it: what guests and the runner
tell each other as JSON.

Any line can be shown, and nothing in it reaches a terminal as a command. What is no specification
is a `ValueError`.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from wire.boundary import BoundarySpec
from wire.errors import Code, WireError
from wire.logs import find_startup_failure

from runner.cli.operation.logs import json_line
from runner.logs import readable
from tests.fuzz.material import Target, stateless

_KEPT = "\t\n"


def _one_input(data: bytes) -> None:
    text = data.decode(errors="replace")
    assert all(char.isprintable() or char in _KEPT for char in readable(text))
    written = json_line(text)
    assert isinstance(json.loads(written), dict)
    assert written.isprintable()
    assert isinstance(find_startup_failure(text), WireError | None)
    with suppress(ValueError):
        spec = BoundarySpec.from_json(data)
        assert BoundarySpec.from_json(spec.to_json()) == spec


def _seeds() -> Mapping[str, bytes]:
    line = {"time": "2026-11-22T10:00:00.000000Z", "level": "INFO", "logger": "guest.app"}
    error = WireError(Code.NOT_FOUND, "brief", details="why", resolution="fix").fields()
    lines: tuple[Any, ...] = (
        {**line, "message": "ready", "event": "ready", "turn": "t1"},
        {**line, "message": "failed", "traceback": "Traceback\n  File"},
        {**line, "message": "\x1b[2J\u202e\x9b", "extra": {"a": ["\x07"]}},
        {**line, "message": "no", "event": "startup_failed", "error": error},
        {**line, "event": "startup_failed", "error": {"code": "none"}},
        {"time": 1, "level": 2, "logger": 3, "message": 4},
        [],
        {},
    )
    seeds = {f"line-{number}": json.dumps(each).encode() for number, each in enumerate(lines)}
    return seeds | {
        "plain": b"a library says: \x1b[31mred",
        "nested": b"[" * 1500,
        "nested-object": b'{"a":' * 1000,
        "number": b'{"time": ' + b"9" * 1000 + b"}",
        "several": b"one\ntwo\n" + seeds["line-3"],
    }


TARGET = Target("log_lines", 50, stateless(_one_input), _seeds)
