"""Keeps notes tagged `local`, and what came of them, out of requests to models elsewhere.

It is decided for each request, and so for each model of a chain. Elsewhere is every address but
this machine's own, and a model that a server here passes on. Answers and results of calls bear the
mark in their metadata, texts of the runtime at the end of each line.
"""

import json
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, cast

import httpx2
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from wire.egress.loopback import is_loopback

from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from guest.memory.models import LOCAL
from guest.memory.search.context_block import STAYS, outside
from guest.tools.results import data_of

WITHHELD: Final = "withheld"
"""The mark of an answer of a model that was not sent what stays on this machine."""


def is_home(url: str) -> bool:
    """Whether a server's address is this machine's own. The names below localhost are not: a name
    server may be asked for them."""
    host = httpx2.URL(url).host
    return is_loopback(host) and not host.endswith(".localhost")


class AtHome(WrapperModel):
    """A model that is sent what stays on this machine only if it runs here, as its address says if
    `is_here`. What it answers to that bears the mark."""

    def __init__(self, model: Model, *, is_here: bool) -> None:
        super().__init__(model)
        self._is_here = is_here

    def prepare_messages(self, messages: list[ModelMessage], *_: Any) -> list[ModelMessage]:
        return messages  # marks get lost by it: see `_sent`

    async def request(self, *asked: Any, **named: Any) -> ModelResponse:
        sent, marks = await self._sent(*asked, **named)
        answer = await super().request(*sent)
        return replace(answer, metadata={**(answer.metadata or {}), **marks})

    @asynccontextmanager
    async def request_stream(self, *asked: Any, **named: Any) -> AsyncGenerator[StreamedResponse]:
        sent, marks = await self._sent(*asked, **named)
        async with super().request_stream(*sent) as stream:
            answer: Any = getattr(stream, "response", stream)  # that is whole already
            answer.metadata = {**(answer.metadata or {}), **marks}
            yield stream

    async def _sent(
        self, messages: list[ModelMessage], settings: Any, parameters: Any, *more: Any
    ) -> tuple[tuple[Any, ...], dict[str, bool]]:
        """What the model is asked with, and the marks of its answer."""
        sent, marks = without_local(messages), {}
        if sent != messages:
            passes_on = getattr(self.wrapped, "passes_on", None)
            stays = self._is_here and (passes_on is None or not await passes_on())
            marks = {LOCAL if stays else WITHHELD: True}
            sent = messages if stays else sent
        prepared = repair_messages(self.wrapped.prepare_messages(sent, parameters))
        return (prepared, settings, parameters, *more), marks


def without_local(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """The messages without what stays here: such answers, and what they have led to before the user
    says something. All keep their places."""
    made: list[ModelMessage] = []
    stays = False
    for message in messages:
        parts: list[Any] = [*message.parts]
        said = [part.content for part in parts if isinstance(part, UserPromptPart)]
        if isinstance(message, ModelResponse):
            stays = LOCAL in (message.metadata or {})
            parts = [TextPart(STAYS)] if stays else parts
        elif stays and all(str(each).startswith(FROM_THE_RUNTIME) for each in said):
            parts = [UserPromptPart(f"{FROM_THE_RUNTIME} {STAYS}")]
        else:
            parts = [*map(_outside, parts)]
        made.append(replace(cast(Any, message), parts=parts))
    return made


def _outside(part: ModelRequestPart) -> ModelRequestPart:
    if isinstance(part, UserPromptPart) and isinstance(part.content, str):
        return replace(part, content=outside(part.content))
    if isinstance(part, ToolReturnPart) and LOCAL in (part.metadata or {}):
        result = cast("ToolReturnPart[Any]", part)
        others = _others(data_of(result.model_response_str()), result.metadata[LOCAL])
        shown = json.dumps(others, ensure_ascii=False) if others else ""
        return replace(result, content=f"{shown}\nNote: {STAYS}".strip(), metadata=None)
    return part


def _others(data: Any, notes: Collection[str]) -> Any:
    """What a memory tool gives without these notes: its message, and other items of its lists."""
    if isinstance(data, list):
        items = (each for each in data if isinstance(each, dict))
        return [each for each in items if each.get("note_id", each.get("id", "")) not in notes]
    found = data.items() if isinstance(data, dict) else ()
    told = {name: _others(value, notes) for name, value in found if isinstance(value, list)}
    said = {name: outside(value) for name, value in found if name in ("message", "context")}
    return {**said, **told}
