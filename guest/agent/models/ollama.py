"""Ollama by its own API, `/api/chat`.

Its `/v1` can set neither the window nor thinking, and has lost calls of streamed answers. What
pydantic-ai makes of OpenAI's API is used as it is: `_Server` replaces OpenAI's client, puts each
request into Ollama's words and each answer into OpenAI's.

Ollama loads a model anew for every other `num_ctx`. So there is one for all requests, chosen before
the first: see `_size`.
"""

import json
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, AsyncStream
from openai._streaming import ServerSentEvent, SSEDecoder
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.ollama import OllamaProvider
from wire.egress.loopback import is_loopback
from wire.settings import AgentSettings
from wire.text import parsed_json

from guest.agent.models.openai_model import OpenAIModel

log = logging.getLogger(__name__)

KEEP_ALIVE: Final = "30m"
"""How long a model stays loaded after an answer. Ollama's five minutes are less than a pause in a
conversation, after which it is loaded and reads the prompt anew."""
SMALLEST: Final = 8_192
"""The least window that is chosen: with less there is hardly room for a conversation."""
UNKNOWN: Final = 16_384
"""The window where the model's figures, or the memory of its machine, are not known."""
_SHARE_OF_MEMORY: Final = 4
"""The window takes one part in so many of the memory at most. The model takes more, as a rule."""
_COUNT_MAX: Final = 1_000_000_000
_LINE_MAX_BYTES: Final = 8 * 1024 * 1024
_FORM: Final = {"id": "", "object": "chat.completion", "created": 0, "model": ""}
_OPTIONS: Final = {
    **{name: name for name in ("temperature", "top_p", "seed", "stop")},
    "max_completion_tokens": "num_predict",
}


class OllamaModel(OpenAIModel):
    """A model of Ollama. `base_url` is the root of its API, or the /v1 or /api there."""

    def __init__(
        self, settings: AgentSettings, profile: ModelProfile, *, api_key: str, **given: Any
    ) -> None:
        self._server = _Server(settings, api_key=api_key or "none", **given)
        provider = OllamaProvider(openai_client=self._server)
        super().__init__(settings.model, provider=provider, profile=profile)

    async def window(self) -> int:
        return await self._server.learn(anew=True)

    @property
    def window_is_final(self) -> bool:  # type: ignore[override]
        """Whether Ollama has said what it gave the model, which it does once it is loaded."""
        return self._server.window_is_final


class _Facts(BaseModel):
    """What Ollama says of a model in `/api/show`, or of those in memory in `/api/ps`."""

    capabilities: list[str] | None = None
    details: Annotated[dict[str, Any], BeforeValidator(lambda value: value or {})] = {}
    model_info: Annotated[dict[str, Any], BeforeValidator(lambda value: value or {})] = {}
    remote_host: str = ""
    models: list[dict[str, Any]] | None = None

    def figure(self, name: str) -> int:
        """A figure of the model; 0 if it is not said."""
        family = self.model_info.get("general.architecture")
        return _counted(self.model_info.get(f"{family}.{name}"))


class _Server(AsyncOpenAI):
    """Ollama, as OpenAI's client asks it; `in_vm`: from a machine with a memory of its own."""

    def __init__(self, settings: AgentSettings, *, in_vm: bool, **given: Any) -> None:
        super().__init__(**given)
        self._in_vm = in_vm
        self.window, self.window_is_final = 0, False
        self._root = re.sub(r"(?<!/)(/v1|/api)?/*$", "", str(self.base_url))
        self._settings = settings
        self._fixed: dict[str, Any] = {}
        self._num_ctx, self._has_answered = 0, False

    async def learn(self, *, anew: bool = False) -> int:
        """The window: what the model takes at first, and `anew` what it was given once loaded."""
        model, raw = self._settings.model, httpx2.Response
        if not self._num_ctx:
            url, body = f"{self._root}/api/show", {"model": model}
            facts = await _facts(super().post(url, cast_to=raw, body=body))
            self._num_ctx = self.window = _size(facts, self._settings, in_vm=self._in_vm)
            self._fixed = {"keep_alive": KEEP_ALIVE, **_thinking(facts, self._settings)}
            log.info("the window of %s: %d tokens", model, self.window)
        if anew and self._has_answered and not self.window_is_final:
            self.window_is_final = True
            loaded = await _facts(super().get(f"{self._root}/api/ps", cast_to=raw))
            for each in loaded.models or ():
                given = _counted(each.get("context_length"))
                if each.get("name") in (model, f"{model}:latest") and 0 < given < self.window:
                    log.warning("Ollama gives %s a window of %d tokens only", model, given)
                    self.window = given
        return self.window

    async def post(self, _path: str, **asked: Any) -> Any:  # type: ignore[override]
        """Ask for a chat, which is all that pydantic-ai asks for."""
        await self.learn()
        body = _request(asked["body"])
        body["options"]["num_ctx"] = self._num_ctx
        given: dict[str, Any] = {"cast_to": httpx2.Response}
        if body["stream"]:
            given = {"cast_to": ChatCompletionChunk, "stream": True}
            given["stream_cls"] = AsyncStream[ChatCompletionChunk]
        url, options = f"{self._root}/api/chat", asked.get("options", {})
        answer: Any = await super().post(url, body=self._fixed | body, options=options, **given)
        self._has_answered = True
        if body["stream"]:
            return answer
        try:
            return ChatCompletion.construct(**_as_openai(answer.content, "message"))
        except httpx2.RemoteProtocolError as error:
            raise APIConnectionError(request=answer.request) from error

    def _make_sse_decoder(self) -> SSEDecoder:
        return _Lines()


async def _facts(asked: Awaitable[httpx2.Response]) -> _Facts:
    """What it says; nothing if it does not say it, as where a proxy lets only chats through."""
    try:
        return _Facts.model_validate_json((await asked).content)
    except (APIStatusError, ValidationError) as error:
        if getattr(error, "status_code", 404) not in (403, 404, 405):
            raise
        return _Facts()


class _Lines(SSEDecoder):
    """Reads Ollama's stream, one JSON object a line, as the events that OpenAI's would have."""

    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[ServerSentEvent]:
        calls, rest = 0, b""
        async for piece in iterator:
            *lines, rest = (rest + piece).split(b"\n")
            for line in filter(bytes.strip, lines):
                chunk = _as_openai(line, "delta", calls)
                calls += len(chunk["choices"][0]["delta"].get("tool_calls", ()))
                yield ServerSentEvent(data=json.dumps(chunk))
                if chunk["usage"]:
                    yield ServerSentEvent(data="[DONE]")
                    return
            if len(rest) > _LINE_MAX_BYTES:
                raise httpx2.RemoteProtocolError("a line of the answer is too long")
        raise httpx2.RemoteProtocolError("the answer broke off")


def _as_openai(text: bytes, name: str, calls: int = 0) -> dict[str, Any]:
    """An answer, or a line of one, as OpenAI says it, with the message as `name`. So many `calls`
    were made before. Raises `httpx2.RemoteProtocolError` if it cannot be read."""
    try:
        said = parsed_json(text)
        message = said.get("message") or {}
        told: dict[str, Any] = {"role": "assistant", "content": str(message.get("content") or "")}
        told["reasoning"] = str(message.get("thinking") or "")
        for number, call in enumerate(message.get("tool_calls") or (), calls):
            function = dict(call["function"])
            given = function.get("arguments") or {}
            function["arguments"] = given if isinstance(given, str) else json.dumps(given)
            function["name"] = str(function["name"])
            made = {"index": number, "id": str(call.get("id") or ""), "type": "function"}
            told.setdefault("tool_calls", []).append({**made, "function": function})
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise httpx2.RemoteProtocolError("a line of the answer cannot be read") from error
    done, why = bool(said.get("done")), "tool_calls" if calls or "tool_calls" in told else "stop"
    why = "length" if said.get("done_reason") == "length" else why
    read, written = _counted(said.get("prompt_eval_count")), _counted(said.get("eval_count"))
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {
        **_FORM,
        "choices": [{"index": 0, name: told, "finish_reason": why if done else None}],
        "usage": usage if done else None,
        "error": said.get("error"),
    }


def _counted(value: object) -> int:
    """A figure of a server; 0 for what cannot be meant."""
    return value if isinstance(value, int) and 0 < value < _COUNT_MAX else 0


def _size(facts: _Facts, settings: AgentSettings, *, in_vm: bool) -> int:
    """The window to ask for: the one of the settings if somebody has set it, else as much as a
    share of this machine's memory holds, in powers of two. Never more than the model takes."""
    most = min(facts.figure("context_length") or _COUNT_MAX, settings.context_window)
    is_set = settings.context_window != AgentSettings.model_fields["context_window"].default
    if is_set or facts.remote_host:
        return most
    heads = facts.figure("attention.head_count") or 1
    width = facts.figure("attention.key_length") or facts.figure("embedding_length") // heads
    stored = facts.figure("attention.head_count_kv") * width * facts.figure("block_count")
    if in_vm or not stored or not is_loopback(httpx2.URL(settings.url).host):
        return min(most, UNKNOWN)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fits = memory // _SHARE_OF_MEMORY // (stored * 4)  # a key and a value of two bytes
    return min(most, max(SMALLEST, 1 << fits.bit_length() >> 1))


def _thinking(facts: _Facts, settings: AgentSettings) -> dict[str, Any]:
    """`think`, for a model that can be told. Those of one family are told how much."""
    if settings.thinking == "default" or "thinking" not in (facts.capabilities or ()):
        return {}
    levels = facts.details.get("family") in ("gptoss", "gpt-oss")
    thinks = settings.thinking != "off"
    return {"think": settings.thinking if levels and thinks else thinks}


def _request(body: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's request in Ollama's form. What does not fit is refused instead of cut off, and an
    answer ends where the window does."""
    sent = {
        "model": body["model"],
        "messages": list(_messages(body["messages"])),
        "stream": bool(body.get("stream")),
        "options": {ours: body[name] for name, ours in _OPTIONS.items() if name in body},
        "truncate": False,
        "shift": False,
    }
    if body.get("tools") and body.get("tool_choice") != "none":
        sent["tools"] = body["tools"]
    if form := body.get("response_format"):
        sent["format"] = form["json_schema"]["schema"] if "json_schema" in form else "json"
    return sent


def _messages(messages: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    names: dict[str, str] = {}
    for each in messages:
        content = each.get("content") or ""
        parts: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [part["text"] for part in parts if part["type"] == "text"]
        sent: dict[str, Any] = {"role": each["role"], "content": "\n\n".join(texts)}
        if images := [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]:
            sent["images"] = [url.partition(";base64,")[2] for url in images]
        if each.get("reasoning"):
            sent["thinking"] = each["reasoning"]
        for call in each.get("tool_calls") or ():
            names[call["id"]] = name = call["function"]["name"]
            function = {"name": name, "arguments": json.loads(call["function"]["arguments"])}
            sent.setdefault("tool_calls", []).append({"id": call["id"], "function": function})
        if called := each.get("tool_call_id"):
            sent |= {"tool_call_id": called, "tool_name": names.get(called, "")}
        yield sent
