"""Keeps what stood beside users' messages, so that it stands there again in later requests.

A provider's cache, or a local server's, keeps a request up to the first byte that differs. What is
recalled is only in the memory of this process: a copy in the conversation would outlive the note.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest

from guest.agent import history
from guest.memory.models import Event

_SESSIONS_MAX: Final = 64
_TURNS_MAX: Final = 200


class Beside:
    """What stood beside the messages of the sessions that were used last; of none that came before
    a deletion. `deletions` counts the notes that were deleted."""

    def __init__(self, deletions: Callable[[], int]) -> None:
        self._deletions = deletions
        self._counted = deletions()
        self._kept: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()

    def keep(self, session_id: str, turn_id: str, text: str) -> None:
        """Remember what stood beside a turn's message; the last text counts."""
        turns = self._kept.setdefault(session_id, OrderedDict())
        self._kept.move_to_end(session_id)
        turns[turn_id] = text
        if len(turns) > _TURNS_MAX:
            turns.popitem(last=False)
        if len(self._kept) > _SESSIONS_MAX:
            self._kept.popitem(last=False)

    def restored(self, session_id: str, events: Sequence[Event]) -> list[Event]:
        """The events of a session, with what stood beside each user's message."""
        if self._counted != (counted := self._deletions()):
            self._kept.clear()
            self._counted = counted
        kept = dict(self._kept.get(session_id, {}))
        return [
            _with(event, text)
            if event.role == "user" and (text := kept.pop(event.turn_id, ""))
            else event
            for event in events
        ]


def _with(event: Event, beside: str) -> Event:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(event.payload)
    except ValidationError:
        return event  # it is left out where it is read
    (message,) = messages if len(messages) == 1 else (None,)
    if not isinstance(message, ModelRequest):
        return event
    return replace(event, payload=history.to_payload(history.with_beside(message, beside)))
