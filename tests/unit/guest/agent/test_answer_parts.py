"""Answers that come in several parts, as some providers send them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters, StreamedResponse
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.agent.models.offline import OfflineModel
from guest.agent.turn import TurnRequest
from tests.support.agent.prompt_fakes import loop_on
from tests.support.agent.turn_fakes import (
    CONTEXT,
    FakePipeline,
    FakeStore,
    Watcher,
    tool,
)

THOUGHT = ThinkingPart("I have saved that.")


async def nothing(*_: object) -> str:
    return "ok"


class InParts(OfflineModel):
    """Gives one answer after the other, each made of parts."""

    def __init__(self, *answers: list[ModelResponsePart]) -> None:
        super().__init__()
        self._answers = list(answers)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        settings: Any,
        parameters: ModelRequestParameters,
        *_: Any,
    ) -> AsyncIterator[StreamedResponse]:
        yield CompletedStreamedResponse(
            ModelResponse(parts=self._answers.pop(0)),
            model_request_parameters=parameters,
            replay_events=True,
        )


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        ([[TextPart("Tea is"), TextPart(" fine.")]], "Tea is fine."),
        ([[THOUGHT, TextPart("Tea."), THOUGHT, TextPart("Milk.")]], "Tea.\n\nMilk."),
        ([[THOUGHT], [TextPart(""), THOUGHT, TextPart("Tea.")]], "Tea."),
        (
            [[TextPart("Tea."), ToolCallPart("look", {}), TextPart("Rum.")], [TextPart("Milk.")]],
            "Milk.",
        ),
    ],
)
async def test_parts_are_paragraphs_and_what_is_stored_was_shown(
    answers: list[list[ModelResponsePart]], shown: str
) -> None:
    store, watcher = FakeStore(), Watcher()
    pipeline = FakePipeline([tool("look", nothing)])
    loop = loop_on(InParts(*answers), pipeline, store, AgentSettings())
    outcome = await loop.run(TurnRequest(CONTEXT, "I like tea."), watcher)
    assert isinstance(outcome, gateway_pb2.TurnCompleted)
    assert outcome.text == shown
    assert watcher.text == "".join(store.texts("assistant"))
