"""What stored events say of their turns, read without the model library.

An event's payload is a list of model messages as pydantic-ai writes them (`guest.agent.history`).
What cannot be read says nothing: an event may come from an imported file.
"""

import itertools
from collections.abc import Iterable
from typing import Any, Final

from pydantic_core import from_json
from wire.tools import DELEGATE

from guest.memory.models import Event

INCOMPLETE: Final = "incomplete"
"""In the metadata of an answer that is incomplete: why."""

TOLD: Final = "told"
"""In the metadata of a call's result: the argument that says most about the call."""

REQUEST: Final = "request"
"""In the metadata of an answer: what the request for it was made of."""

ATTACHMENTS: Final = "attachments"
"""In the metadata of a user's message: the paths of attached files."""


ORIGIN: Final = "origin"
"""In the metadata of a user's message: what has begun the turn, where no client has."""

SOURCES: Final = "sources"
"""In the metadata of a user's message: whose words it is, where it is not the user's."""


RESULTS: Final = "results"
"""In the metadata of a user's message: the sub-agents whose answers came late, and stand in it."""

SUB_AGENT: Final = "sub-agent "
"""How material is named that a sub-agent has answered; its session's id follows."""


def by_turn(events: Iterable[Event]) -> list[list[Event]]:
    return [list(group) for _, group in itertools.groupby(events, key=lambda e: e.turn_id)]


def attachments_in(event: Event) -> list[str]:
    paths = _marked(event, ATTACHMENTS)
    return [str(path) for path in paths] if isinstance(paths, list) else []


def origin_in(event: Event) -> dict[str, str]:
    """What has begun the turn of its first event; empty if that was a client."""
    found = _marked(event, ORIGIN)
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def sources_in(event: Event) -> tuple[str, ...]:
    """Whose words a user's message is; empty if it is the user's."""
    found = _marked(event, SOURCES)
    return tuple(map(str, found)) if isinstance(found, list) else ()


def results_in(event: Event) -> list[str]:
    """The sessions of the sub-agents whose answers stand in an event."""
    if event.role == "user":
        found = _marked(event, RESULTS)
        return [str(each) for each in found] if isinstance(found, list) else []
    parts = [part for each in _messages(event, "request") for part in _objects(each.get("parts"))]
    named = (
        _metadata(part).get("material")
        for part in parts
        if part.get("part_kind") == "tool-return" and part.get("tool_name") == DELEGATE
    )
    names = [str(name) for material in named if isinstance(material, list) for name in material]
    return [each.removeprefix(SUB_AGENT) for each in names if each.startswith(SUB_AGENT)]


def is_users(event: Event) -> bool:
    """Whether these are the user's own words."""
    return event.role == "user" and not _marked(event, SOURCES)


def incomplete_in(event: Event) -> str:
    """Why the answer in `event` is incomplete; empty if it is whole, or no answer."""
    if event.role != "assistant":
        return ""
    marks = [_metadata(each) for each in _messages(event, "response")]
    return next((str(mark[INCOMPLETE]) for mark in marks if INCOMPLETE in mark), "")


def call_in(event: Event) -> tuple[str, str, bool]:
    """The tool of the call whose result is in `event`, the argument that says most about the call,
    and whether it failed; the tool is empty if there is none."""
    parts = [each.get("parts") for each in _messages(event, "request")]
    for part in (each for some in parts for each in _objects(some)):
        if part.get("part_kind") == "tool-return":
            told = _metadata(part).get(TOLD, "")
            return str(part.get("tool_name", "")), str(told), part.get("outcome") == "failed"
    return "", "", False


def calls_in(event: Event) -> bool:
    """Whether the answer in `event` calls tools, so that more must follow."""
    parts = [_objects(each.get("parts")) for each in _messages(event, "response")]
    return any(part.get("part_kind") == "tool-call" for each in parts for part in each)


def model_in(event: Event) -> str:
    """The model that gave the answer in `event`; empty if that is not known."""
    names = (each.get("model_name") for each in _messages(event, "response"))
    return next((name for name in names if name and isinstance(name, str)), "")


def request_in(events: Iterable[Event]) -> dict[str, Any] | None:
    """What the last request for an answer in these events was made of, as it was recorded, with
    `counted`, the input tokens by the provider's count; None if that is not known."""
    for event in reversed(list(events)):
        for each in _messages(event, "response"):
            if isinstance(made_of := _metadata(each).get(REQUEST), dict):
                usage = each.get("usage")
                counted = usage.get("input_tokens") if isinstance(usage, dict) else 0
                return {**made_of, "counted": counted}
    return None


def answer_in(events: Iterable[Event]) -> str:
    """The agent's answer in the events of one turn, without what it said beside tool calls."""
    said = (each for each in events if each.role == "assistant" and not calls_in(each))
    return "\n\n".join(each.text for each in said if each.text)


def _messages(event: Event, kind: str) -> list[dict[str, Any]]:
    try:
        read = from_json(event.payload)
    except ValueError:
        return []
    return [each for each in _objects(read) if each.get("kind") == kind]


def _marked(event: Event, name: str) -> object:
    """What the metadata of a user's message has by this name; None for nothing."""
    if event.role != "user":
        return None
    marks = [_metadata(each).get(name) for each in _messages(event, "request")]
    return next((mark for mark in marks if mark), None)


def _metadata(message: dict[str, Any]) -> dict[str, Any]:
    metadata = message.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _objects(found: object) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
