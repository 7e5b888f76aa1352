"""The built-in model: it does not understand language and says so, but its tool calls are real.

It is used while no provider is configured, so that everything else can be used and tested without
one. It costs no tokens.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.settings import ModelSettings

from guest.agent.models import offline_commands, offline_view
from guest.agent.models.offline_commands import Call, Say
from guest.agent.receipts.second_chance import FROM_THE_RUNTIME, NOTHING_TO_ADD

NAME = "offline"


class OfflineModel(Model[None]):
    """Answers a handful of plain commands; see `guest.agent.models.offline_commands`."""

    def __init__(self, *, no_shell_reason: str = "") -> None:
        super().__init__()
        self._no_shell_reason = no_shell_reason

    @property
    def model_name(self) -> str:
        return NAME

    @property
    def system(self) -> str:
        return NAME

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,  # noqa: ARG002 - nothing to set
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self._answer(messages, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,  # noqa: ARG002
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[StreamedResponse]:
        yield CompletedStreamedResponse(
            self._answer(messages, model_request_parameters),
            model_request_parameters=model_request_parameters,
            replay_events=True,
        )

    def _answer(
        self, messages: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse:
        view = offline_view.read(messages, (tool.name for tool in parameters.function_tools))
        if view.command.startswith(FROM_THE_RUNTIME):
            taken: Say | Call = Say(NOTHING_TO_ADD)  # it has done what it understands
        else:
            taken = offline_commands.step(view, self._no_shell_reason)
        if isinstance(taken, Say) and view.attached:
            named = "\n".join(f"You attached {each}." for each in view.attached)
            taken = Say(f"{named} I cannot look at files.\n{taken.text}")
        part = (
            TextPart(taken.text)
            if isinstance(taken, Say)
            else ToolCallPart(taken.tool, taken.arguments)
        )
        return ModelResponse(parts=[part], model_name=NAME, provider_name=NAME)
