"""The model's tool calls as the chat shows them: on one line, in full, and as a question."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.cells import cell_len, chop_cells
from wire.v1 import gateway_pb2

from runner.cli.output import clip, neutralise, one_line
from runner.client.gateway import wording

_ROW: Final = "  │ "
_SAME_ROW: Final = "  ┆ "
_FOLDED_LINES: Final = 4
_TELLING_MIN_CELLS: Final = 10
_OWN_ID: Final = re.compile(r": \[id: [\w-]+\]")
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
    shown = [f"● {one_line(finished.tool)}"]
    if call.started.arguments_text:
        shown += _fitted(call.started.arguments_text, width)
    shown.append(f"  {'→' if finished.ok else '✗'} {neutralise(finished.summary)}")
    if finished.output.strip():
        printed = neutralise(finished.output).expandtabs(4).rstrip("\n")
        shown += ["  printed", *_fitted(_ROW + printed.replace("\n", f"\n{_ROW}"), width)]
    shown.append(f"  took {finished.duration_ms / 1000:.1f} s")
    return "\n".join(shown)


def question(approval: gateway_pb2.ApprovalRequested, width: int) -> str:
    """What a person decides on, as the gateway words it."""
    return "\n".join(_fitted(wording(approval), width))


def _telling(started: gateway_pb2.ToolCallStarted) -> str:
    return short_ids(one_line(started.told))


def _fitted(text: str, width: int) -> Iterator[str]:
    """`text` in lines that fit. A longer one goes on behind a bar with which none begins."""
    room = max(width - len(_ROW), 1)
    for line in neutralise(text).split("\n"):
        start = line[: len(_ROW)]
        first, *others = chop_cells(line[len(_ROW) :], room) or [""]
        yield start + first
        yield from (_SAME_ROW + other for other in others)
