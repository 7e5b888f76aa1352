"""OpenAI's chat API, as other servers speak it, too.

OpenAI numbers the calls of an answer, and sends the id and the name of each once. Others number all
of them 0 or none, leave the ids out, give all the same, or repeat ids and names with every piece.
A piece of a call is put where its id and its number say, else its number, else to the last one.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponseStreamEvent
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from wire.text import bounded_json

from guest.agent.calls import CALLS_MAX
from guest.agent.models.roles import alternating


@dataclass
class _Call:
    """A call as far as it has come."""

    id: str
    number: int | None
    name: str = ""
    arguments: str = ""

    @property
    def is_whole(self) -> bool:
        with suppress(ValueError, RecursionError):
            return json.loads(self.arguments) is not None
        return False


@dataclass
class _Stream(OpenAIStreamedResponse):
    _calls: list[_Call] = field(default_factory=list, init=False)

    def _map_tool_call_delta(self, choice: Any) -> Iterable[ModelResponseStreamEvent]:
        for piece in choice.delta.tool_calls or ():
            piece.id = str(piece.id) if piece.id else None
            place = self._place_of(piece)
            call, said = self._calls[place], piece.function
            piece.index = place
            call.id = call.id or piece.id or ""
            if any(call.id == each.id for each in self._calls[:place]):
                piece.id = None  # two results of one id could not be told apart
            if said is not None:
                if said.name and said.name == call.name:
                    said.name = None
                call.name += said.name or ""
                given = said.arguments or ""
                call.arguments += given if isinstance(given, str) else json.dumps(given)
        return super()._map_tool_call_delta(choice)

    def _place_of(self, piece: Any) -> int:
        """Which call a piece belongs to; a new one if it begins one."""
        number = getattr(piece, "index", None)
        name = piece.function.name if piece.function is not None else None
        same_number = [n for n, call in enumerate(self._calls) if number in (None, call.number)]
        same_id = [n for n, call in enumerate(self._calls) if piece.id and call.id == piece.id]
        both = sorted({*same_number} & {*same_id})
        for place in (both or (not name and same_id) or same_number)[-1:]:
            if not (name and self._calls[place].name and self._begins(piece, self._calls[place])):
                return place
        if len(self._calls) <= CALLS_MAX:  # what is beyond one more is not run, and is put to that
            self._calls.append(_Call(piece.id or "", number))
        return len(self._calls) - 1

    def _begins(self, piece: Any, last: _Call) -> bool:
        """Whether a piece with a name, which would be put to `last`, begins another call."""
        is_other = piece.function.name != last.name
        if piece.id and last.id:
            is_new = last.is_whole and (is_other or bool(piece.function.arguments))
            return is_new or piece.id != last.id
        return last.is_whole or (is_other and bool(last.arguments or last.number is None))


_WINDOW: Final = ("max_model_len", "context_length", "context_window", "max_context_length")
"""What vLLM, OpenRouter, Groq and Mistral call the window of a model in their lists."""
_LIST_VALUES_MAX: Final = 250_000


def window_in(listing: Any, name: str) -> int:
    """The window of a model in a server's list; 0 if the list does not say it. A server with one
    model takes every name for it."""
    items = listing.get("data") if isinstance(listing, dict) else None
    found = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    for each in found:
        if each.get("id") == name or len(found) == 1:
            meta = each.get("meta")
            llama = meta.get("n_ctx") if isinstance(meta, dict) else None
            said = [llama, *(each.get(key) for key in _WINDOW)]
            return next((tokens for tokens in said if type(tokens) is int), 0)
    return 0


class OpenAIModel(OpenAIChatModel):
    """A model of OpenAI, or of a server that speaks its API."""

    async def window(self) -> int:
        """What the list of the server says of it, which is asked as turns are; see `KnowsWindow`.
        OpenAI's own does not say it."""
        if self.system == "openai":
            return 0
        text = await self.client.get("/models", cast_to=str, options={"max_retries": 0})
        return window_in(bounded_json(text.encode(), _LIST_VALUES_MAX), self.model_name)

    def prepare_messages(
        self,
        messages: list[ModelMessage],
        model_request_parameters: ModelRequestParameters | None = None,
    ) -> list[ModelMessage]:
        return alternating(super().prepare_messages(messages, model_request_parameters))

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Stream
