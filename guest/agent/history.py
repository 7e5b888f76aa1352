"""Converts conversation events to the model's messages and back.

Every event's payload is one model message as pydantic-ai writes it, so that a session resumes after
a restart exactly as the model saw it. What a killed or cancelled turn left incomplete is completed
when it is read.
"""

import itertools
import json
import logging
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, Literal, cast

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from wire.text import shortened
from wire.tools import MEMORY_TOOLS

from guest.agent import calls
from guest.agent.events import ATTACHMENTS, ORIGIN, RESULTS, SOURCES, SUB_AGENT, TOLD, by_turn
from guest.agent.models.roles import NO_ANSWER
from guest.agent.text_calls import NOT_RUN
from guest.agent.turn import Origin
from guest.memory.conversations.store import TOOL_INDEX_CHARS, Conversations
from guest.memory.models import LOCAL, Event, Role
from guest.tools.base import Ending, ToolResult
from guest.tools.results import data_of

log = logging.getLogger(__name__)

_WRITTEN: Final[dict[Role, tuple[type[ModelRequestPart | ModelResponsePart], ...]]] = {
    "user": (UserPromptPart,),
    "assistant": (TextPart, ThinkingPart, ToolCallPart),
    "tool": (ToolReturnPart,),
}
"""What a turn stores for each role. Nothing else is read back: an event may come from an
imported file, which could contain a system prompt or a URL to fetch."""

_NOT_RUN: Final = NOT_RUN.split("{")[0]
_TITLE_CHARS = 60
_FIRST_WINDOW = 64
_LAST_WINDOW = 4096


async def recent(store: Conversations, session_id: str, turns: int, after: int) -> list[Event]:
    """The events of whole turns, oldest first: all since the event `after`, and before it as many
    as make up `turns` turns.

    If there are more than `_LAST_WINDOW` events, the oldest are left out.
    """
    window = _FIRST_WINDOW
    while True:
        events = await store.history(session_id, window)
        all_there = len(events) < window
        whole = by_turn(events) if all_there else by_turn(events)[1:]
        reached = bool(whole) and 0 < whole[0][0].sequence <= after + 1
        if all_there or window >= _LAST_WINDOW or (reached and len(whole) >= turns):
            return list(itertools.chain.from_iterable(whole))
        window *= 4


def title_of(text: str) -> str:
    """A title for the session that begins with `text`: its first line, cut at a word."""
    line = next(filter(None, (" ".join(line.split()) for line in text.splitlines())), "")
    cut = textwrap.shorten(line, _TITLE_CHARS, placeholder=" …")
    return cut if cut != "…" else shortened(line, _TITLE_CHARS - 1)


def to_messages(events: Iterable[Event]) -> list[ModelMessage]:
    """The messages of `events`, made valid for any provider.

    A tool call without a result is answered as interrupted, and a turn without an answer gets one
    that says so. A result without its call, an unreadable event, and parts that do not belong to
    the event's role are dropped. Calls are as in `guest.agent.calls.readable`.
    """
    messages: list[ModelMessage] = []
    for event in events:
        try:
            read = ModelMessagesTypeAdapter.validate_json(event.payload)
        except ValidationError:
            log.warning("unreadable conversation event %d is left out", event.sequence)
            continue
        messages += (as_written for each in read if (as_written := _as_written(each, event.role)))
    return _answered(calls.readable(messages))


def _answered(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages, repaired, with an answer between one of the user and the next."""
    begins = {id(message.parts[0]) for message in messages}
    made: list[ModelMessage] = []
    for message in repair_messages(messages):
        if not isinstance(message, ModelRequest):
            made.append(message)
            continue
        pieces: list[list[ModelRequestPart]] = [[]]
        for part in message.parts:
            if pieces[-1] and isinstance(part, UserPromptPart) and id(part) in begins:
                pieces.append([])
            pieces[-1].append(part)
        for piece in pieces:
            made += unanswered(made)
            made.append(replace(message, parts=piece))
    return made


def unanswered(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """What stands for the answer between these messages and the user's next one, if none does."""
    waits = bool(messages) and isinstance(messages[-1], ModelRequest)
    return [assistant_text(NO_ANSWER)] if waits else []


def _as_written(message: ModelMessage, role: Role) -> ModelMessage | None:
    """The parts of `message` that a turn may have stored for this role; None if there are none."""
    parts: list[Any] = [part for part in message.parts if _is_written(part, role)]
    if not parts:
        return None
    if isinstance(message, ModelRequest):
        return replace(message, parts=parts, instructions=None)
    return replace(message, parts=parts, state="complete", model_id=None, workspace_ref=None)


def _is_written(part: ModelRequestPart | ModelResponsePart, role: Role) -> bool:
    plain = not isinstance(part, UserPromptPart | ToolReturnPart) or isinstance(part.content, str)
    if isinstance(part, ThinkingPart) and not (part.id or part.signature):
        return False  # thinking in tags: a template forgets that of earlier turns, too
    if isinstance(part, TextPart) and part.content.startswith(_NOT_RUN):
        return False
    return plain and isinstance(part, _WRITTEN[role])


def user_message(
    text: str,
    *before: str,
    attachments: Sequence[str] = (),
    origin: Origin | None = None,
    sources: Sequence[str] = (),
    late: Sequence[Ending] = (),
) -> ModelRequest:
    """The user's message, behind what is put before it, with the paths of attached files, what has
    begun its turn, whose words it is if not the user's, and the late answers that stand in it."""
    parts = [UserPromptPart(each) for each in (*before, text) if each]
    begun = {name: value for name, value in asdict(origin).items() if value} if origin else {}
    results = [each.source.removeprefix(SUB_AGENT) for each in late]
    marks = {
        ATTACHMENTS: [*attachments],
        ORIGIN: begun,
        SOURCES: [*sources],
        RESULTS: results,
    }
    return ModelRequest(
        parts=parts, metadata={name: mark for name, mark in marks.items() if mark} or None
    )


def asked_in(event: Event) -> str:
    """What the model was asked with in a user's event."""
    parts = [part for message in messages_of(event) for part in message.parts]
    asked = [part.content for part in parts if isinstance(part, UserPromptPart)]
    return asked[-1] if asked and isinstance(asked[-1], str) else event.text


def assistant_text(text: str) -> ModelResponse:
    """The text of a model's answer that was stopped."""
    return ModelResponse(parts=[TextPart(text)])


def tool_message(
    call_id: str,
    tool: str,
    text: str,
    *,
    is_error: bool,
    material: Sequence[str] = (),
    told: str = "",
    local: Sequence[str] = (),
) -> ModelRequest:
    """A call's result; `material` names the material in it, `told` is the argument that says most
    about the call, `local` are the notes in it that stay on this machine."""
    outcome: Literal["failed", "success"] = "failed" if is_error else "success"
    marks = {"material": list(material), TOLD: told, LOCAL: list(local)}
    metadata = {name: mark for name, mark in marks.items() if mark} or None
    part = ToolReturnPart(tool, text, call_id, outcome=outcome, metadata=metadata)
    return ModelRequest(parts=[part])


def event_text(tool: str, result: ToolResult) -> str:
    """A finished call as people read it and searches find it: what it did, and its result.

    Results of memory tools are left out: their notes are found by themselves, and forgetting one
    must leave no copy here.
    """
    line = f"{tool}: {result.summary}"
    if tool in MEMORY_TOOLS or result.is_error:
        return line
    brought = "\n".join(_strings(data_of(result.text)))
    return f"{line}\n{brought}".strip()[:TOOL_INDEX_CHARS]


def _strings(data: Any) -> Iterator[str]:
    """The texts in `data`, in order, however deep it is nested."""
    left = [data]
    while left:
        value = left.pop()
        if isinstance(value, str) and value.strip():
            yield value
        elif isinstance(value, dict | list):
            left += reversed([*value.values()] if isinstance(value, dict) else value)


def previous_answer(events: Sequence[Event]) -> str:
    """The agent's whole answer in the last of these turns that has one."""
    said = [(each.turn_id, each.text) for each in events if each.role == "assistant" and each.text]
    return "\n\n".join(text.strip() for turn_id, text in said if turn_id == said[-1][0])


def material_in(events: Iterable[Event]) -> tuple[str, ...]:
    """The material that tools and prompts contributed to these turns."""
    messages = [each for event in events if event.role != "user" for each in messages_of(event)]
    found: list[ModelResponse | ToolReturnPart[Any]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            found.append(message)
        else:
            found += (part for part in message.parts if isinstance(part, ToolReturnPart))
    return tuple(dict.fromkeys(name for each in found for name in _material(each)))


def messages_of(event: Event) -> list[ModelMessage]:
    try:
        return ModelMessagesTypeAdapter.validate_json(event.payload)
    except ValidationError:
        return []


def _material(found: ModelResponse | ToolReturnPart[Any]) -> list[str]:
    known = found.metadata.get("material") if isinstance(found.metadata, dict) else None
    return [str(name) for name in known] if isinstance(known, list) else []


def to_payload(message: ModelMessage) -> str:
    if isinstance(message, ModelResponse):
        kept = [part for part in message.parts if isinstance(part, _WRITTEN["assistant"])]
        message = replace(message, parts=[*map(_storable_part, kept)])
    written = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return storable(json.dumps(written, ensure_ascii=False, separators=(",", ":")))


def _storable_part(part: ModelResponsePart) -> ModelResponsePart:
    if isinstance(part, TextPart) and part.citations:
        return TextPart(storable(part.content))  # they point into results that are not kept
    if isinstance(part, TextPart | ThinkingPart):
        return replace(part, content=storable(part.content))
    if isinstance(part, ToolCallPart):
        call = cast("ToolCallPart[Any]", part)
        args = storable(call.args) if isinstance(call.args, str) else call.args
        return replace(call, tool_name=storable(call.tool_name), args=args)
    return part


def text_of(response: ModelResponse) -> str:
    """The text of `response` for a person; empty if it only calls tools."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def storable(text: str) -> str:
    """`text` without characters that a database cannot store: NUL and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
