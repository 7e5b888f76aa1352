"""Has models answer as a client's program demands; see `guest.agent.answer_form`.

A provider that has structured output beside tools is asked for it. To others the schema is told;
those that have it only without tools, as most servers with OpenAI's API, are held to it at the
second attempt. Every answer is checked here, whatever its provider promises: one that is not as
demanded is asked for once more, and then the turn fails.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast

from pydantic_ai import ModelRetry
from pydantic_ai.messages import InstructionPart, ModelResponse, TextPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from wire.errors import Code

from guest.agent import history, incomplete
from guest.agent.answer_form import AnswerForm, bare
from guest.agent.meter import candidates
from guest.agent.requests import RequestHooks
from guest.errors import GuestError

_TOLD: Final = (
    "A program reads your answer to this message. When you have called the tools that you need, "
    "answer with JSON that this JSON schema allows, without any other text and without a fence:"
)
_AGAIN: Final = "A program reads your answer, and cannot use it: {fault}. Answer as it demands."


class HoldToForm(RequestHooks):
    """Has the answers of one turn made as `form` demands, which may be another one later in it.

    Args:
        form: What is demanded now.
        refused: Is called for an answer that is not as demanded, which nobody may be shown.
    """

    def __init__(
        self, form: Callable[[], AnswerForm], provider: str, refused: Callable[[], None]
    ) -> None:
        self._form = form
        self._provider = provider
        self._refused = refused
        self._again = False

    async def prepare(self, request: ModelRequestContext) -> None:
        form = self._form()
        if form.must_call:
            settings = {**(request.model_settings or {}), "tool_choice": [*form.must_call]}
            if settings.get("thinking"):  # Anthropic refuses the two together
                settings["thinking"] = False
            request.model_settings = cast(ModelSettings, settings)
        if form.schema is None:
            return
        parameters = request.model_request_parameters
        told = InstructionPart(f"{_TOLD}\n{json.dumps(form.schema, ensure_ascii=False)}")
        parameters = replace(
            parameters, instruction_parts=[*(parameters.instruction_parts or ()), told]
        )
        models = candidates(request.model)
        beside = all(map(_beside_tools, models)) and bool(form.schema.get("properties"))
        alone = self._again and not form.must_call and all(map(_has_native, models))
        if beside or alone:
            output = OutputObjectDefinition(json_schema=form.schema, name="answer")
            tools = parameters.function_tools if beside else []
            parameters = replace(
                parameters, output_mode="native", output_object=output, function_tools=tools
            )
        request.model_request_parameters = parameters

    async def read(self, _: ModelRequestContext, response: ModelResponse) -> ModelResponse:
        form = self._form()
        if not form or incomplete.reason_of(response, self._provider):
            return response
        text = history.text_of(response)
        called = [call.tool_name for call in response.tool_calls]
        if not (fault := await asyncio.to_thread(form.fault, text, called)):
            self._again = False
            if form.schema is None or called:
                return response
            others = [part for part in response.parts if not isinstance(part, TextPart)]
            return replace(response, parts=[*others, TextPart(bare(text))])
        self._refused()
        if not self._again:
            self._again = True
            raise ModelRetry(_AGAIN.format(fault=fault))
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"the model's answer is not as the request demands: {fault}",
            resolution="ask for less at once or with a simpler schema, or choose another model",
        )


def _has_native(model: Model) -> bool:
    """Whether its provider has structured output."""
    return bool(model.profile.get("supports_json_schema_output"))


def _beside_tools(model: Model) -> bool:
    """Whether its provider has structured output beside tools. Of servers that speak OpenAI's API
    many have one or the other, so that a model which is held to a schema calls no tool."""
    if model.system.startswith("google"):
        return bool(model.profile.get("google_supports_tool_combination"))
    return _has_native(model) and model.system in ("openai", "anthropic")
