"""Answers that end before their end: by the length limit, a filter, or a stream that breaks off.

Their text is kept and marked, and the turn ends as incomplete, so that nobody takes half an answer
for a whole one.
"""

from typing import Any, Final, Literal

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from wire.providers import OFFLINE, PROVIDERS
from wire.v1 import gateway_pb2 as pb

from guest.agent import failures
from guest.agent.receipts.second_chance import FROM_THE_RUNTIME

Reason = Literal["length", "filtered", "cut_short", "repeated", "stopped"]
"""Why an answer is incomplete. "stopped": by the person, or by a limit of the turn."""

GO_ON: Final = (
    f"{FROM_THE_RUNTIME} Your last answer was cut off before its end. Go on exactly where it "
    "stopped, within the sentence if need be. Repeat nothing of it, and do not comment on this."
)
"""How the model is asked to go on. Neither of the two wire formats can be relied on to take up an
answer that is begun (docs/design/2026-11-22-incomplete-answers.md)."""

ASKED_TO_GO_ON: Final = "(go on with the answer that was cut off)"
"""What the conversation shows in the place of `GO_ON`."""

_TOLD: Final[dict[str, tuple[str, str]]] = {
    "length": (
        "the answer is incomplete: it reached the most that {model!r} writes at once",
        failures.GO_ON,
    ),
    "filtered": (
        "the answer is incomplete: the content filter of {provider!r} stopped it",
        "ask in other words",
    ),
    "cut_short": (
        "the answer is incomplete: the connection to provider {provider!r} broke off",
        failures.GO_ON,
    ),
    "repeated": (
        "the answer was ended: {model!r} wrote the same again and again, or only white space",
        "ask in other words, or choose another model",
    ),
}


class Incomplete(Exception):  # noqa: N818 - an outcome, not an error
    """The model's answer is incomplete; its text was streamed."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


TEXT_MAX_CHARS: Final = 512 * 1024
"""How much text one answer may have: more than any model writes at once, and few enough that a
stored answer can be exported."""

_STREAMED_MAX_CHARS: Final = 32 * 1024 * 1024
"""How much of calls' arguments is read before an answer is given up. Far below this they are
refused, and the model told."""


class Size:
    """Counts what an answer has streamed so far."""

    def __init__(self) -> None:
        self._text = 0
        self._arguments = 0

    def add(self, event: Any) -> tuple[str, str]:
        """Count an event of the stream; the text and the thinking in it. Raises `Incomplete` once
        it is too much."""
        text = thought = ""
        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ):
                pass
            case (
                PartStartEvent(part=ThinkingPart(content=str(thought)))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(thought)))
            ):
                pass
            case (
                PartStartEvent(part=ToolCallPart(args=str(given)))
                | PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(given)))
            ):
                self._arguments += len(given)
        self._text += len(text) + len(thought)
        if self._text > TEXT_MAX_CHARS or self._arguments > _STREAMED_MAX_CHARS:
            raise Incomplete("length")
        return text, thought


def reason_of(response: ModelResponse, provider: str) -> Reason | None:
    """Why `response` is incomplete; None if it is whole.

    A provider ends every answer with the reason why it stopped. Some compatible servers leave the
    reason out; those that report the usage at the end have come to the end.
    """
    if response.finish_reason == "length":
        return "length"
    if response.finish_reason == "content_filter":
        return "filtered"
    told = (response.provider_details or {}).get("finish_reason")
    if told or provider == OFFLINE:
        return None
    keyed = PROVIDERS.get(provider)
    whole = keyed and keyed.compatible_servers and response.usage.output_tokens
    return None if whole else "cut_short"


def outcome(
    reason: Reason, provider: str, model: str, so_far: pb.TurnCompleted
) -> pb.TurnIncomplete:
    message, resolution = _TOLD[reason]
    return pb.TurnIncomplete(
        reason=reason,
        message=message.format(provider=provider, model=model),
        resolution=resolution,
        so_far=so_far,
    )
