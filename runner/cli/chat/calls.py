"""The model's tool calls and what memory did, as the chat shows them."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rich.cells import cell_len, chop_cells
from wire.v1 import gateway_pb2

from runner.cli.chat.screen import Screen, Style
from runner.cli.output import clip, neutralise, one_line
from runner.client import changes
from runner.client.gateway import wording
from runner.client.turn import ToolCall

_ROW: Final = "  │ "
_SAME_ROW: Final = "  ┆ "
_FOLDED_LINES: Final = 4
_TELLING_MIN_CELLS: Final = 10
_PAST_LINES: Final = 12
_INTERRUPTED: Final = "(interrupted: the agent stopped here; /retry asks again)"
_OWN_ID: Final = re.compile(r": \[id: [\w-]+\]")
_ID: Final = re.compile(r"(note-[0-9a-f]{8})-[0-9a-f-]{27}")


def short_ids(text: str) -> str:
    """`text` with the ids of notes as tables show them."""
    return _ID.sub(r"\1", text)


def call_begun(started: gateway_pb2.ToolCallStarted) -> str:
    """A running call: its tool and its telling argument, `shell_exec make test`."""
    return f"{one_line(started.tool)} {_telling(started)}".rstrip()


def call_line(call: ToolCall, width: int) -> str:
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


def in_full(call: ToolCall, width: int) -> str:
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
    """What a person decides on, as the gateway words it, and what they can allow besides."""
    lines = [wording(approval)]
    for number, offer in enumerate(approval.offers, 1):
        lines.append(f"  {number} yes, and in this session: {one_line(offer)}")
    return "\n".join(_fitted("\n".join(lines), width))


def choices(offers: int) -> str:
    """What may be answered to a question with so many offers."""
    return f"[{'/'.join(['y', 'N', *map(str, range(1, offers + 1))])}]"


def answered(typed: str, offers: int) -> int:
    """What was typed as an answer, as `GatewayClient.decide` takes it."""
    word = typed.strip().lower()
    if word in map(str, range(1, offers + 1)):
        return int(word) + 1
    return int(word in ("y", "yes"))


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


_WORDS_CELLS: Final = 40
_ACTIONS: Final = frozenset({"saved", "updated", "superseded", "deleted", "restored", "undone"})
_STYLES: Final = {"done": Style.RECEIPT, "failed": Style.FAILURE, "unknown": Style.FAILURE}


def receipt_line(receipt: gateway_pb2.MemoryReceipt) -> str:
    """One receipt: `✓ saved "my dog is Rex" (note-103637e5)`, `✓ saved note-103637e5` where no
    words are known, `✗ not saved: …` or `? may be saved: …`."""
    note = short_ids(one_line(receipt.note_id))
    action = one_line(receipt.action)
    if receipt.outcome == "done":
        words = (clip(one_line(each).replace('"', "'"), _WORDS_CELLS) for each in receipt.words)
        told, said = [], " → ".join(f'"{each}"' for each in dict.fromkeys(words))
        if said:
            told, note = [note], said
        told += [f"version {receipt.version}"] if receipt.version > 1 else []
        told += ["by the runtime"] if receipt.asked_by == "runtime" else []
        told += [one_line(receipt.reason)] if receipt.reason else []
        more = f" ({', '.join(told)})" if told else ""
        return f"✓ {action} {note}".rstrip() + more
    sign, how = ("✗", "not") if receipt.outcome == "failed" else ("?", "may be")
    line = f"{sign} {how} {action} {note}" if action in _ACTIONS else f"{sign} {action} {note}"
    line = line.rstrip()
    return f"{line}: {one_line(receipt.reason)}" if receipt.reason else line


def files_line(files: gateway_pb2.FileChanges) -> str:
    """What a turn changed in projects: `✓ changed 1 file, +2 −1: api/a.py`, or `? changes to files
    are not counted: …`; empty where there is nothing to tell."""
    line = changes.told(files)
    return line and f"{'✓' if files.files else '?'} {line}"


async def show_files(screen: Screen, files: gateway_pb2.FileChanges | None) -> None:
    if files is not None and (line := files_line(files)):
        await screen.line(line, Style.RECEIPT if files.files else Style.NOTICE)


async def show_receipts(screen: Screen, receipts: Iterable[gateway_pb2.MemoryReceipt]) -> None:
    shown = list(receipts)
    for receipt in shown:
        await screen.line(receipt_line(receipt), _STYLES.get(receipt.outcome, Style.FAILURE))
    if not shown:
        await screen.unchanged()


async def show_past(screen: Screen, event: gateway_pb2.HistoryEvent) -> None:
    """Show what was said or called earlier as it looked then."""
    if event.role == "user":
        lines = neutralise(event.text).split("\n")
        if (more := len(lines) - _PAST_LINES) > 1:
            lines[_PAST_LINES:] = [f"… {more:,} more lines"]
        await screen.line("> " + "\n  ".join(lines), Style.PROMPT)
    elif event.role == "tool":
        summary = event.text.split("\n", 1)[0].removeprefix(f"{event.tool}: ")
        tool = event.tool or "tool"
        call = ToolCall(
            -1,
            gateway_pb2.ToolCallStarted(tool=tool, told=event.told),
            gateway_pb2.ToolCallFinished(tool=tool, ok=not event.failed, summary=summary),
        )
        style = Style.FAILURE if event.failed else Style.TOOL
        await screen.line(call_line(call, screen.width), style)
    elif event.text:
        await screen.stream(event.text)
    if event.incomplete == "interrupted":
        await screen.line(_INTERRUPTED, Style.NOTICE)
    elif event.incomplete:
        await screen.line("(incomplete; /retry goes on with it)", Style.NOTICE)


def by_event(
    history: gateway_pb2.SessionHistory,
) -> list[
    tuple[
        gateway_pb2.HistoryEvent,
        list[gateway_pb2.MemoryReceipt],
        gateway_pb2.FileChanges | None,
    ]
]:
    """The events of a session. The last event of each turn comes with the receipts of the turn, and
    what it changed in projects."""
    receipts: dict[str, list[gateway_pb2.MemoryReceipt]] = {}
    for receipt in history.receipts:
        receipts.setdefault(receipt.turn_id, []).append(receipt)
    files = {each.turn_id: each.files for each in history.files}
    found = []
    for event in reversed(history.events):
        of_turn = event.turn_id
        found.append((event, receipts.pop(of_turn, []), files.pop(of_turn, None)))
    return found[::-1]
