"""OpenAI's chat API, as other servers speak it, too.

OpenAI numbers the calls of an answer, and sends the id and the name of each once. Others number all
of them 0 or none, leave the ids out, give all the same, or repeat ids and names with every piece.
A piece of a call is put where its id and its number say, else its number, else to the last one.
"""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx2
from openai import APIError, AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponseStreamEvent
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer
from wire.text import bounded_json

from guest.agent.calls import CALLS_MAX
from guest.agent.models.roles import alternating

log = logging.getLogger(__name__)

_UNKNOWN_FIELD: Final = (400, 422)


class PlainSchemas(OpenAIJsonSchemaTransformer):
    """Schemas as the chat templates of local models can print them: some add each argument's type
    and description to a text, and fail where one is missing."""

    def __init__(self, schema: dict[str, Any], *, strict: bool | None = None) -> None:
        super().__init__(schema, strict=strict)
        self.simplify_nullable_unions = True

    def walk(self) -> dict[str, Any]:
        schema = super().walk()
        for argument in schema.get("properties", {}).values():
            argument.setdefault("description", "")
            argument.pop("nullable", None)
        return schema


@dataclass
class _Call:
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

    def __post_init__(self) -> None:
        # thinking in a text is told apart for all providers alike, in guest.agent.reading
        self._model_profile = {**self._model_profile, "thinking_tags": ("", "")}

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


_LOADED: Final = ("loaded_context_length",)
"""What LM Studio calls the window that a model was loaded with."""
_WINDOW: Final = (
    *_LOADED,
    *("max_model_len", "context_length", "context_window", "max_context_length"),
)
"""What vLLM, OpenRouter, Groq and Mistral call the window of a model in their lists."""
_LIST_VALUES_MAX: Final = 250_000


def window_in(listing: Any, name: str, words: Sequence[str] = _WINDOW) -> int:
    """The window of a model in a server's list; 0 if the list does not say it. A server with one
    model takes every name for it."""
    items = listing.get("data") if isinstance(listing, dict) else None
    found = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    for each in found:
        if each.get("id") == name or len(found) == 1:
            meta = each.get("meta")
            llama = meta.get("n_ctx") if isinstance(meta, dict) else None
            said = [llama, *map(each.get, words)]
            return next((tokens for tokens in said if type(tokens) is int), 0)
    return 0


class _Chunks(AsyncStream[ChatCompletionChunk]):
    """A streamed answer. Where it ends for calls of which none has come, those that `again` brings
    follow."""

    again: Callable[[], Awaitable[AsyncStream[ChatCompletionChunk]]]

    async def __stream__(self) -> AsyncIterator[ChatCompletionChunk]:
        called, reason = False, ""
        async for chunk in super().__stream__():
            for choice in chunk.choices if isinstance(chunk.choices, list) else ():
                delta = getattr(choice, "delta", None)
                called = called or bool(getattr(delta, "tool_calls", None))
                reason = getattr(choice, "finish_reason", None) or reason
            yield chunk
        if reason == "tool_calls" and not called:
            async for chunk in await self.again():
                yield chunk


class OpenAIModel(OpenAIChatModel):
    """A model of OpenAI, or of a server that speaks its API.

    A server that loses calls of streamed answers is asked without streaming from then on.

    Args:
        extra: Fields that some servers do not know. One that a server refuses by its name is not
            sent again. The value of `max_tokens` is the limit of each request.
    """

    window_is_final = True

    def __init__(self, *args: Any, extra: dict[str, Any] | None = None, **given: Any) -> None:
        super().__init__(*args, **given)
        self._extra = extra or {}
        self._streams = True

    async def _completions_create(
        self, messages: Any, stream: bool, model_settings: Any, model_request_parameters: Any
    ) -> Any:
        limit = {"max_tokens": model_settings.get("max_tokens")}
        extra = {name: limit.get(name, value) for name, value in self._extra.items()}
        settings = {**model_settings, "extra_body": {k: v for k, v in extra.items() if v}}
        create: Any = super()._completions_create

        async def ask(stream: bool) -> Any:
            return await create(messages, stream, settings, model_request_parameters)

        try:
            answer = await ask(stream and self._streams)
        except ModelHTTPError as error:
            refused = [name for name in extra if name in str(error)]
            if error.status_code not in _UNKNOWN_FIELD or not refused:
                raise
            log.info("the server does not take %s", ", ".join(refused))
            for name in refused:
                self._extra.pop(name, None)
            return await self._completions_create(
                messages, stream, model_settings, model_request_parameters
            )

        if not stream or isinstance(answer, ModelResponse):
            return answer
        if not isinstance(answer, AsyncStream):
            return self._one_chunk(answer)

        async def again() -> AsyncStream[ChatCompletionChunk]:
            whole = self._validate_completion(await ask(False))
            if any(choice.message.tool_calls for choice in whole.choices):
                log.warning("a call of a streamed answer was lost: answers stream no more")
                self._streams = False
            return self._one_chunk(whole, content=None)  # that has come

        chunks = _Chunks(cast_to=ChatCompletionChunk, response=answer.response, client=self.client)
        chunks.again = again
        return chunks

    def _one_chunk(self, whole: Any, **other: None) -> AsyncStream[ChatCompletionChunk]:
        """An answer in one piece as a stream, with `other` fields of its message."""
        told = self._validate_completion(whole).model_dump(exclude_unset=True)
        for choice in told["choices"]:
            choice["delta"] = choice.pop("message") | other
            for index, call in enumerate(choice["delta"].get("tool_calls") or ()):
                call["index"] = index
        response = httpx2.Response(200, text=f"data: {json.dumps(told)}\n\n")
        return AsyncStream(cast_to=ChatCompletionChunk, response=response, client=self.client)

    async def window(self) -> int:
        """What the list of the server says of it, which is asked as turns are; see `KnowsWindow`.
        OpenAI's own does not say it. LM Studio has a list of its own, and a window for each time
        that it loads a model."""
        if self.system == "openai":
            return 0
        studio = self.system == "lmstudio"
        root = self.base_url.rstrip("/").removesuffix("/v1")
        url = f"{root}/api/v0/models" if studio else "/models"
        text = await self.client.get(url, cast_to=str, options={"max_retries": 0})
        listing = bounded_json(text.encode(), _LIST_VALUES_MAX)
        self.window_is_final = not studio or window_in(listing, self.model_name, _LOADED) > 0
        return window_in(listing, self.model_name)

    async def passes_on(self) -> bool:
        """Whether its server is, or may be, an Ollama that passes the model on to another one. Such
        a model's name ends in "cloud", which counts where only chats get through to it."""
        root = self.base_url.rstrip("/").removesuffix("/v1").removesuffix("/api")
        asked: Any = {"body": {"model": self.model_name}, "options": {"max_retries": 0}}
        try:
            told = await AsyncOpenAI.post(self.client, f"{root}/api/show", cast_to=str, **asked)
            return '"remote_host"' in told
        except APIError as error:
            is_none = self.system != "ollama" and 400 <= getattr(error, "status_code", 0) < 500
            return not is_none or self.model_name.endswith("cloud")

    def prepare_request(self, model_settings: Any, model_request_parameters: Any) -> Any:
        """Without a search, which the library refuses also where it is optional."""
        plain = replace(model_request_parameters, native_tools=[])
        return super().prepare_request(model_settings, plain)

    def prepare_messages(
        self,
        messages: list[ModelMessage],
        model_request_parameters: ModelRequestParameters | None = None,
    ) -> list[ModelMessage]:
        return alternating(super().prepare_messages(messages, model_request_parameters))

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Stream
