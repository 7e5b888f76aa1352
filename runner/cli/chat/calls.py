"""The model's tool calls as the chat shows them: on one line, in full, and as a question."""

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rich.cells import cell_len, chop_cells
from wire.v1 import gateway_pb2

from runner.cli.output import clip, neutralise, one_line

_LINE_BREAK: Final = " ⏎ "
_ROW: Final = "  │ "
_SAME_ROW: Final = "  ┆ "
_FOLDED_LINES: Final = 4
_TELLING_MIN_CELLS: Final = 10
_OWN_ID: Final = re.compile(r": \[id: [\w-]+\]")
_BLANKS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that look like nothing."""
_ID: Final = re.compile(r"(note-[0-9a-f]{8})-[0-9a-f-]{27}")


@dataclass
class Call:
    """One call, and how it ended."""

    started: gateway_pb2.ToolCallStarted
    finished: gateway_pb2.ToolCallFinished = field(default_factory=gateway_pb2.ToolCallFinished)


class Calls:
    """The calls of one turn, in order."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def begin(self, started: gateway_pb2.ToolCallStarted) -> None:
        self._calls.append(Call(started))

    def end(self, finished: gateway_pb2.ToolCallFinished) -> Call:
        """The call that has finished. Some models give several calls the same id."""
        for call in self._calls:
            if call.started.call_id == finished.call_id and not call.finished.tool:
                call.finished = finished
                return call
        return Call(gateway_pb2.ToolCallStarted(), finished)


def short_ids(text: str) -> str:
    """`text` with the ids of notes as tables show them."""
    return _ID.sub(r"\1", text)


def call_begun(started: gateway_pb2.ToolCallStarted) -> str:
    """A running call: its tool and its telling argument, `shell_exec make test`."""
    return f"{one_line(started.tool)} {_telling(started)}".rstrip()


def call_line(call: Call, width: int) -> str:
    """A finished call: `● shell_exec make test → exit code 0` or `● file_read /a ✗ not found`.

    If there is too little room, both the argument and the result are cut.
    """
    finished = call.finished
    summary = short_ids(_OWN_ID.sub("", one_line(finished.summary)))
    head = f"● {one_line(finished.tool)}"
    tail = f" {'→' if finished.ok else '✗'} {summary}".rstrip()
    if telling := _telling(call.started):
        room = width - cell_len(head) - 1
        for_telling = max(room - cell_len(tail), room // 2, _TELLING_MIN_CELLS)
        head += f" {clip(telling, for_telling)}"
    return clip(head + tail, width)


def folded(output: str, width: int) -> str:
    """The beginning of what a command printed, and how much more there is; empty if nothing."""
    if not output.strip():
        return ""
    lines = neutralise(output).expandtabs(4).rstrip("\n").split("\n")
    shown = [_ROW + clip(line, width - len(_ROW)) for line in lines[:_FOLDED_LINES]]
    if more := len(lines) - len(shown):
        shown.append(f"  … {more:,} more line{'' if more == 1 else 's'}: /details")
    return "\n".join(shown)


def in_full(call: Call, width: int) -> str:
    """A call with all its arguments, its result and what it printed."""
    finished = call.finished
    shown = [f"● {one_line(finished.tool)}", *_arguments(call.started.arguments_json, width)]
    shown.append(f"  {'→' if finished.ok else '✗'} {neutralise(finished.summary)}")
    if finished.output.strip():
        printed = neutralise(finished.output).expandtabs(4).rstrip("\n")
        shown += ["  printed", *_block(printed, width)]
    shown.append(f"  took {finished.duration_ms / 1000:.1f} s")
    return "\n".join(shown)


def question(approval: gateway_pb2.ApprovalRequested, width: int) -> str:
    """What a person decides on: the tool and exactly the arguments that it would get; or a question
    of another kind, with what it is about."""
    arguments = _arguments(approval.arguments_json, width)
    asked = approval.question or f"allow {approval.tool}?"
    return "\n".join([one_line(asked), *arguments])


def _telling(started: gateway_pb2.ToolCallStarted) -> str:
    value = _parsed(started.arguments_json).get(started.telling)
    lines = map(one_line, value.splitlines()) if isinstance(value, str) else ()
    return short_ids(_LINE_BREAK.join(filter(None, lines)))


def _parsed(arguments_json: str) -> dict[str, Any]:
    try:
        given = json.loads(arguments_json or "{}")
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _arguments(arguments_json: str, width: int) -> Iterator[str]:
    """Every argument that is set, exactly: each line of a text begins with a bar, and where it is
    too long for the screen, it goes on behind another one."""
    given = _parsed(arguments_json)
    if not given and arguments_json.strip() not in ("", "{}"):
        given = {"arguments": arguments_json}
    for name, value in given.items():
        if isinstance(value, str):
            yield f"  {one_line(name)}"
            yield from _block(_exact(value), width)
        elif value is not None:
            yield f"  {one_line(name)} {one_line(json.dumps(value, ensure_ascii=False))}"


def _block(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        first, *others = chop_cells(line, max(width - len(_ROW), 1)) or [""]
        yield _ROW + first
        yield from (_SAME_ROW + other for other in others)


def _exact(text: str) -> str:
    """`text` with everything visible that looks like nothing or like a blank, except for blanks."""
    shown = neutralise(text.replace("\r", "␍").replace("\t", "␉"))
    shown = "".join(f"<U+{ord(char):04X}>" if _looks_blank(char) else char for char in shown)
    return re.sub(r" +$", lambda blanks: "␠" * len(blanks[0]), shown, flags=re.MULTILINE)


def _looks_blank(char: str) -> bool:
    if char in " \n":
        return False
    return char in _BLANKS or unicodedata.category(char) in ("Cf", "Zs", "Zl", "Zp", "Cn")
