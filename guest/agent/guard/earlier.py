"""What a turn takes over from the events of the session's earlier turns."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ToolReturnPart

from guest.agent.guard.deeds import SAVES
from guest.memory.types import Event


@dataclass(frozen=True)
class Earlier:
    """`answer` is what the assistant said last, `material` what tools have brought that
    nobody vouched for, `saved` whether a call has saved something."""

    answer: str = ""
    material: tuple[str, ...] = ()
    saved: bool = False


def earlier_in(events: Sequence[Event]) -> Earlier:
    """What `events` hold; one that cannot be read holds nothing."""
    said = (event.text for event in reversed(events) if event.role == "assistant")
    results = [part for event in events if event.role == "tool" for part in _results(event)]
    material = [name for part in results for name in _material(part)]
    return Earlier(
        answer=next((text for text in said if text.strip()), ""),
        material=tuple(dict.fromkeys(material)),
        saved=any(part.tool_name in SAVES and part.outcome == "success" for part in results),
    )


def _results(event: Event) -> list[ToolReturnPart]:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(event.payload)
    except ValidationError:
        return []
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart)]


def _material(part: ToolReturnPart) -> list[str]:
    known = part.metadata.get("material") if isinstance(part.metadata, dict) else None
    return [str(name) for name in known] if isinstance(known, list) else []
