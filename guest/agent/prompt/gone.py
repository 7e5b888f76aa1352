"""Leaves out of a request what memory does not hold any more.

What stood beside a message is kept with it. A note that was deleted since, and a scratchpad that
was cleared, are shown nowhere in later requests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from guest.agent.prompt.working_memory import SCRATCHPAD_HEADING, is_beside
from guest.agent.receipts.ledger import parsed
from guest.tools.results import data_of


def without_gone(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages, where nothing that stands beside one shows what was deleted or cleared."""
    deleted, cleared = _gone(messages)
    if not deleted and not cleared:
        return list(messages)
    made: list[ModelMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, ModelRequest):
            parts = [
                UserPromptPart(_without(str(part.content), deleted, scratchpad=index < cleared))
                if isinstance(part, UserPromptPart) and is_beside(part)
                else part
                for part in message.parts
            ]
            message = replace(message, parts=parts)
        made.append(message)
    return made


def _gone(messages: Iterable[ModelMessage]) -> tuple[set[str], int]:
    """The ids of deleted notes, and the last message with which the scratchpad was cleared."""
    calls: dict[str, dict[str, Any]] = {}
    deleted, cleared = set[str](), 0
    for index, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                calls[part.tool_call_id] = parsed(part.args)
            if not isinstance(part, ToolReturnPart) or part.outcome != "success":
                continue
            if part.tool_name == "memory_delete":
                data = data_of(part.model_response_str())
                note_id = data.get("note_id") if isinstance(data, dict) else ""
                deleted |= {str(note_id)} if note_id else set()
            if part.tool_name == "scratch_note":
                mode = calls.get(part.tool_call_id, {}).get("mode")
                cleared = index if mode == "clear" else cleared
    return deleted, cleared


def _without(text: str, deleted: Iterable[str], *, scratchpad: bool) -> str:
    """`text` without such lines, and the quoted ones below them."""
    kept: list[str] = []
    dropping = False
    for line in text.splitlines():
        if not line.startswith("> "):
            cleared = scratchpad and line.startswith(SCRATCHPAD_HEADING)
            dropping = cleared or any(note_id in line for note_id in deleted)
        if not dropping:
            kept.append(line)
    return "\n".join(kept)
