"""What a turn takes over from the events of the session's earlier turns."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ToolReturnPart,
)

from guest.agent.guard.deeds import SAVES
from guest.agent.guard.statements import without
from guest.memory.models import Event


@dataclass(frozen=True)
class Earlier:
    """`answer` is what the model said in the last turn in which it said anything,
    `material` what tools and prompts have brought that nobody vouched for, `saved` whether
    a call has saved something."""

    answer: str = ""
    material: tuple[str, ...] = ()
    saved: bool = False


def earlier_in(events: Sequence[Event]) -> Earlier:
    """What `events` hold; one that cannot be read holds nothing."""
    answers = [(each.turn_id, without(each.text)) for each in events if each.role == "assistant"]
    said = [(turn_id, text) for turn_id, text in answers if text]
    messages = [each for event in events if event.role != "user" for each in _messages(event)]
    results = [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
    prompts = [message for message in messages if isinstance(message, ModelResponse)]
    material = [name for each in (*prompts, *results) for name in _material(each)]
    return Earlier(
        answer="\n\n".join(text for turn_id, text in said if turn_id == said[-1][0]),
        material=tuple(dict.fromkeys(material)),
        saved=any(part.tool_name in SAVES and part.outcome == "success" for part in results),
    )


def _messages(event: Event) -> list[ModelMessage]:
    try:
        return ModelMessagesTypeAdapter.validate_json(event.payload)
    except ValidationError:
        return []


def _material(found: ModelResponse | ToolReturnPart) -> list[str]:
    known = found.metadata.get("material") if isinstance(found.metadata, dict) else None
    return [str(name) for name in known] if isinstance(known, list) else []
