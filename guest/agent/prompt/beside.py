"""What the runtime puts beside users' messages, and shows there again in later requests.

A provider's cache, or a local server's, keeps a request up to the first byte that differs. What is
recalled is only in the memory of this process: a copy in the conversation would outlive the note.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponsePart,
    UserPromptPart,
)

from guest.agent import history
from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from guest.agent.turn import TIME
from guest.memory.models import Event

_KEPT_MAX: Final = 4_000
_NOTE: Final = re.compile(r"note-[\w-]+")


def is_beside(part: ModelRequestPart | ModelResponsePart) -> bool:
    """Whether the runtime has put a part beside a user's message."""
    return (
        isinstance(part, UserPromptPart)
        and isinstance(part.content, str)
        and part.content.startswith(FROM_THE_RUNTIME)
    )


def shown_beside(messages: Iterable[ModelMessage]) -> list[str]:
    parts = (part for message in messages for part in message.parts)
    return [str(getattr(part, "content", "")) for part in parts if is_beside(part)]


def with_beside(message: ModelRequest, beside: str) -> ModelRequest:
    """The user's message with `beside` before its own words, and before the line that announces
    them; nothing for an empty one."""
    if not beside:
        return message
    *before, said = message.parts
    last = before[-1] if before else None
    announced = isinstance(last, UserPromptPart) and str(last.content).startswith(TIME)
    line = [before.pop()] if announced else []
    return replace(message, parts=[*before, UserPromptPart(beside), *line, said])


def without_beside(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    parts = [part for part in message.parts if part is message.parts[-1] or not is_beside(part)]
    return replace(message, parts=parts)


def without_deleted(
    messages: Sequence[ModelMessage], deleted: Collection[str]
) -> list[ModelMessage]:
    """The messages, where nothing that stands beside one shows these notes."""
    return [
        replace(message, parts=[_without(part, deleted) for part in message.parts])
        if deleted and isinstance(message, ModelRequest)
        else message
        for message in messages
    ]


def _without(part: ModelRequestPart, deleted: Collection[str]) -> ModelRequestPart:
    """What stands beside a message, without the lines that name these notes, and the quoted ones
    below them."""
    if not isinstance(part, UserPromptPart) or not is_beside(part):
        return part
    kept: list[str] = []
    dropping = False
    for line in str(part.content).splitlines():
        if not line.startswith("> "):
            dropping = any(note_id in deleted for note_id in _NOTE.findall(line))
        if not dropping:
            kept.append(line)
    return UserPromptPart("\n".join(kept))


class Beside:
    """What stood beside the last messages of all sessions; of none that came before a deletion.
    `deleted` are the ids of the notes that were deleted last."""

    def __init__(self, deleted: Sequence[str]) -> None:
        self.deleted = deleted
        self._known = [*deleted]
        self._kept: dict[tuple[str, str], str] = {}

    def keep(self, session_id: str, turn_id: str, text: str) -> None:
        """Remember what stood beside a turn's message; the last text counts."""
        self._kept[session_id, turn_id] = text
        if len(self._kept) > _KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def restored(self, session_id: str, events: Sequence[Event]) -> list[Event]:
        """The events of a session, with what stood beside each user's message."""
        if self._known != [*self.deleted]:
            self._kept.clear()
            self._known = [*self.deleted]
        return [
            _with(event, text)
            if event.role == "user" and (text := self._kept.get((session_id, event.turn_id), ""))
            else event
            for event in events
        ]


def _with(event: Event, beside: str) -> Event:
    messages = history.messages_of(event)
    (message,) = messages if len(messages) == 1 else (None,)
    if not isinstance(message, ModelRequest):
        return event
    return replace(event, payload=history.to_payload(with_beside(message, beside)))
