"""What happens in a turn, and what was said in a session, as updates for an editor."""

import re
from collections.abc import Iterator
from typing import Final

import acp
from acp import schema
from acp.helpers import SessionUpdate
from wire.v1 import gateway_pb2 as pb

from runner.client.gateway import wording

_KINDS: Final[dict[str, schema.ToolKind]] = {
    "file_read": "read",
    "file_list": "read",
    "file_search": "search",
    "file_write": "edit",
    "file_edit": "edit",
    "file_delete": "delete",
    "shell_exec": "execute",
    "memory_search": "search",
    "recall": "search",
    "search_memory": "search",
}
_TITLE_CHARS: Final = 120


class Updates:
    """The updates of one turn. Each call has an id of its own, whatever the model names it."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._open: dict[str, str] = {}

    def of(self, event: pb.TurnEvent) -> Iterator[SessionUpdate]:
        """What the editor is told of `event`."""
        kind = event.WhichOneof("event")
        if kind == "text":
            yield acp.update_agent_message_text(event.text.text)
        elif kind == "notice":
            yield acp.update_agent_thought_text(event.notice.text)
        elif kind == "tool_started":
            yield self._started(event.index, event.tool_started)
        elif kind == "tool_finished":
            yield self._finished(event.tool_finished)
        elif kind == "receipt" and event.receipt.asked_by == "runtime":
            yield _by_itself(f"{self._turn_id}-{event.index}", event.receipt)

    def asked(self, approval: pb.ApprovalRequested) -> schema.ToolCallUpdate:
        """The call that a person is asked about: the one that began last, or the question that it
        led to."""
        begun = next(reversed(self._open.values()), approval.approval_id)
        return schema.ToolCallUpdate(
            tool_call_id=approval.approval_id if approval.question else begun,
            title=" ⏎ ".join(line.strip() for line in wording(approval).split("\n")),
            kind="fetch" if approval.question else _KINDS.get(approval.tool, "other"),
            status="pending",
            content=[acp.tool_content(acp.text_block(_verbatim(wording(approval))))],
        )

    def _started(self, index: int, started: pb.ToolCallStarted) -> SessionUpdate:
        call_id = f"{self._turn_id}-{index}"
        self._open[started.call_id] = call_id
        return acp.start_tool_call(
            call_id,
            _title(started),
            kind=_KINDS.get(started.tool, "other"),
            status="in_progress",
            raw_input=started.arguments_text,
        )

    def _finished(self, finished: pb.ToolCallFinished) -> SessionUpdate:
        call_id = self._open.pop(finished.call_id, finished.call_id)
        told = finished.output or finished.summary
        return acp.update_tool_call(
            call_id,
            status="completed" if finished.ok else "failed",
            content=[acp.tool_content(acp.text_block(told))] if told else None,
        )


def of_history(history: pb.SessionHistory) -> Iterator[SessionUpdate]:
    """What was said in a session, as an editor that opens it is told."""
    for event in history.events:
        if event.role == "user":
            yield acp.update_user_message_text(event.text)
        elif event.role == "assistant" and event.text:
            yield acp.update_agent_message_text(event.text)
        elif event.role == "tool":
            line = event.text.split("\n", 1)[0][:_TITLE_CHARS]
            yield acp.start_tool_call(
                f"{event.turn_id}-{event.sequence}", line, kind="other", status="completed"
            )


def _by_itself(call_id: str, receipt: pb.MemoryReceipt) -> SessionUpdate:
    """What the runtime did to memory, without a call of the model."""
    done = receipt.outcome == "done"
    title = f"memory: {receipt.action} {receipt.note_id}".rstrip()
    said = receipt.reason or ("found by meaning" if receipt.searchable == "semantic" else "")
    return acp.start_tool_call(
        call_id,
        title,
        kind="other",
        status="completed" if done else "failed",
        content=[acp.tool_content(acp.text_block(said))] if said else None,
    )


def _title(started: pb.ToolCallStarted) -> str:
    """A call in one line. A command is shown as it is."""
    if started.tool == "shell_exec" and started.told:
        return started.told
    return f"{started.tool} {started.told}".rstrip()[:_TITLE_CHARS]


def _verbatim(text: str) -> str:
    """`text` in Markdown that shows it as it is."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
