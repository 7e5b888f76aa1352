"""A model of Ollama by its own API: what it is sent, how its answers come back, and its window."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from pydantic_ai import Agent, BinaryContent, NativeOutput
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartStartEvent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from wire.settings import AgentSettings

from guest.agent.models import errors
from guest.agent.models.ollama import KEEP_ALIVE, SMALLEST, UNKNOWN, OllamaModel
from guest.agent.models.providers import build_model, request_settings
from tests.support.servers import model_servers as fake
from tests.support.servers.model_servers import ModelServer, Route, always, serving, tag

LARGE: Any = {"context_length": 40_960, "block_count": 36, "embedding_length": 2560} | {
    "attention__head_count": 32,
    "attention__head_count_kv": 8,
    "attention__key_length": 128,
}
"""Qwen3 4B, of which a token takes 147,456 bytes."""
TOOL = ToolDefinition(name="look", parameters_json_schema={"type": "object", "properties": {}})
END = {"done": True, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7}


def settings(server: ModelServer, **more: Any) -> AgentSettings:
    where = f"http://127.0.0.1:{server.port}/v1"
    return AgentSettings(provider="ollama", model="m", base_url=where, **more)


def model_of(server: ModelServer, **more: Any) -> OllamaModel:
    model = build_model(settings(server, **more))
    assert isinstance(model, OllamaModel)
    return model


def lines(*said: dict[str, Any] | str) -> Route:
    """A model that answers with these lines, whatever it is asked."""

    def chat(_: object) -> fake.Answer:
        return 200, iter(
            [each if isinstance(each, str) else json.dumps(each) + "\n" for each in said]
        )

    return chat


def message(**parts: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": "", **parts}, "done": False}


@asynccontextmanager
async def streamed(
    model: OllamaModel, messages: list[ModelMessage] | None = None, **asked: Any
) -> AsyncIterator[StreamedResponse]:
    parameters = ModelRequestParameters(function_tools=[TOOL])
    said = messages or [ModelRequest.user_text_prompt("hi")]
    async with model.request_stream(said, cast("ModelSettings", asked), parameters) as stream:
        yield stream


async def answer(model: OllamaModel, messages: list[ModelMessage] | None = None) -> ModelResponse:
    async with streamed(model, messages) as stream:
        async for _ in stream:
            pass
        return stream.get()


@pytest.fixture
def ollama() -> Iterator[ModelServer]:
    with serving(fake.ollama(tag("m", "completion", "tools", **LARGE))) as server:
        yield server


def chats(server: ModelServer) -> list[dict[str, Any]]:
    return [
        body
        for name, body in zip(server.asked, server.bodies, strict=True)
        if name == "POST /api/chat"
    ]


async def test_every_request_has_the_same_window(ollama: ModelServer) -> None:
    model = model_of(ollama, temperature=0.25)
    await answer(model)
    await Agent(model).run("sum this up", model_settings={"max_tokens": 300})
    turn, summary = chats(ollama)
    assert {turn["options"]["num_ctx"], summary["options"]["num_ctx"]} == {await model.window()}
    assert (turn["stream"], summary["stream"]) == (True, False)
    assert summary["options"]["num_predict"] == 300
    for each in (turn, summary):
        assert each["keep_alive"] == KEEP_ALIVE
        assert (each["truncate"], each["shift"]) == (False, False)
        assert "think" not in each
    assert ollama.asked.count("POST /api/show") == 1


async def test_the_settings_of_a_request_are_its_options(ollama: ModelServer) -> None:
    asked = request_settings(settings(ollama, temperature=0.25))
    async with streamed(model_of(ollama), max_tokens=99, **asked) as stream:
        async for _ in stream:
            pass
    options = chats(ollama)[0]["options"]
    del options["num_ctx"]
    assert options == {"temperature": 0.25, "num_predict": 99}


GIB = 2**30


@pytest.mark.parametrize(
    ("facts", "memory", "chosen", "window"),
    [
        (LARGE, 64 * GIB, {}, 40_960),
        (LARGE, 16 * GIB, {}, 16_384),
        (LARGE, 2 * GIB, {}, SMALLEST),
        (LARGE, 2 * GIB, {"context_window": 20_000}, 20_000),
        (LARGE, 64 * GIB, {"context_window": 50_000}, 40_960),
        ({**LARGE, "context_length": 2_048}, 64 * GIB, {}, 2_048),
        ({**LARGE, "context_length": 1_000_000}, 640 * GIB, {}, 64_000),
        ({**LARGE, "attention__key_length": 0}, 16 * GIB, {}, 32_768),
        ({**LARGE, "attention__key_length": 0}, 8 * GIB, {}, 16_384),
        ({**LARGE, "attention__head_count_kv": -1}, 16 * GIB, {}, UNKNOWN),
        ({**LARGE, "block_count": 10**12}, 16 * GIB, {}, UNKNOWN),
        ({}, 16 * GIB, {}, UNKNOWN),
    ],
)
async def test_the_window_is_what_model_memory_and_settings_allow(
    facts: Any,
    memory: int,
    chosen: dict[str, int],
    window: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": memory // 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    with serving(fake.ollama(tag("m", "tools", **facts))) as server:
        assert await model_of(server, **chosen).window() == window


async def test_the_memory_of_a_virtual_machine_is_not_the_one_where_the_model_runs() -> None:
    with serving(fake.ollama(tag("m", "tools", **LARGE))) as server:
        model: Any = build_model(settings(server), in_vm=True)
        assert await model.window() == UNKNOWN


async def test_a_model_that_runs_elsewhere_takes_no_memory_here() -> None:
    cloud = tag("m", "tools", at="https://ollama.com", context_length=262_144)
    with serving(fake.ollama(cloud)) as server:
        assert await model_of(server).window() == 64_000


@pytest.mark.parametrize("refusal", [403, 404, 405])
async def test_a_proxy_that_lets_only_chats_through_is_enough(refusal: int) -> None:
    routes = fake.ollama(tag("m", "tools", **LARGE))
    routes["POST /api/show"] = routes["GET /api/ps"] = always("no", refusal)
    with serving(routes) as server:
        model = model_of(server)
        await answer(model)
        await answer(model)
        assert [each["options"]["num_ctx"] for each in chats(server)] == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(("name", "given"), [("m", 4_096), ("m:latest", 4_096), ("other", 0)])
async def test_what_ollama_gave_the_model_counts_and_the_requests_stay_the_same(
    name: str, given: int, caplog: pytest.LogCaptureFixture
) -> None:
    routes = fake.ollama(tag("m", "tools", **LARGE))
    routes["GET /api/ps"] = always({"models": [{"name": name, "context_length": 4_096}]})
    with serving(routes) as server:
        model = model_of(server, context_window=20_000)
        assert await model.window() == 20_000
        assert not model.window_is_final
        await answer(model)
        assert await model.window() == (given or 20_000)
        assert model.window_is_final
        await answer(model)
        assert [each["options"]["num_ctx"] for each in chats(server)] == [20_000, 20_000]
        assert server.asked.count("GET /api/ps") == 1
    assert ("a window of 4096 tokens only" in caplog.text) == bool(given)


async def test_a_request_above_the_window_is_refused_as_too_long_and_not_cut_off() -> None:
    with serving(fake.ollama(tag("m", "tools", **LARGE), gives=1_000)) as server:
        with pytest.raises(Exception, match="exceeds the available context size") as raised:
            await answer(model_of(server), [ModelRequest.user_text_prompt("word " * 4_000)])
        assert errors.is_too_long(raised.value)


@pytest.mark.parametrize(
    ("thinking", "family", "can", "sent"),
    [
        ("default", "qwen3", True, None),
        ("off", "qwen3", True, False),
        ("low", "qwen3", True, True),
        ("high", "gptoss", True, "high"),
        ("off", "gptoss", True, False),
        ("off", "llama", False, None),
        ("high", "llama", False, None),
    ],
)
async def test_thinking_is_asked_of_models_that_can(
    thinking: str, family: str, can: bool, sent: object
) -> None:
    abilities = ("tools", "thinking") if can else ("tools",)
    with serving(fake.ollama(tag("m", *abilities, family=family))) as server:
        model = model_of(server, thinking=thinking)
        await answer(model)
        assert chats(server)[0].get("think") == sent


async def test_a_conversation_makes_the_round_trip(ollama: ModelServer) -> None:
    """Several calls without ids, an image, thinking, and arguments that are no object."""
    ollama.routes["POST /api/chat"] = lines(
        message(thinking="Let me "),
        message(thinking="see."),
        message(tool_calls=[{"function": {"name": "look", "arguments": {"at": "ü"}}}]),
        message(tool_calls=[{"function": {"index": 0, "name": "look", "arguments": {"at": "b"}}}]),
        {**message(), **END},
    )
    model = model_of(ollama)
    asked = ModelRequest(
        parts=[UserPromptPart(["what is this?", BinaryContent(b"png", media_type="image/png")])],
        instructions="Be short.",
    )
    response = await answer(model, [asked])
    thought, *calls = response.parts
    assert isinstance(thought, ThinkingPart)
    assert thought.content == "Let me see."
    assert all(isinstance(each, ToolCallPart) for each in calls)
    first, second = (each for each in calls if isinstance(each, ToolCallPart))
    assert (first.args_as_dict(), second.args_as_dict()) == ({"at": "ü"}, {"at": "b"})
    assert first.tool_call_id != second.tool_call_id
    assert response.finish_reason == "tool_call"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (11, 7)
    broken = ToolCallPart("look", "{no JSON", tool_call_id="c3")
    results = [
        ToolReturnPart("look", f"seen {n}", each.tool_call_id)
        for n, each in enumerate((first, second, broken))
    ]
    await answer(
        model,
        [
            asked,
            ModelResponse([*response.parts, broken]),
            ModelRequest(results, instructions="Be short."),
        ],
    )
    system, user, assistant, *tools = chats(ollama)[-1]["messages"]
    assert system == {"role": "system", "content": "Be short."}
    assert user == {"role": "user", "content": "what is this?", "images": ["cG5n"]}
    assert (assistant["content"], assistant["thinking"]) == ("", "Let me see.")
    assert [each["function"]["arguments"] for each in assistant["tool_calls"]] == [
        {"at": "ü"},
        {"at": "b"},
        {"INVALID_JSON": "{no JSON"},
    ]
    assert [(each["tool_name"], each["content"]) for each in tools] == [
        ("look", "seen 0"),
        ("look", "seen 1"),
        ("look", "seen 2"),
    ]
    assert [each["id"] for each in assistant["tool_calls"]] == [e["tool_call_id"] for e in tools]


async def test_text_comes_as_it_is_said_and_figures_that_cannot_be_are_none(
    ollama: ModelServer,
) -> None:
    end = {**END, "done_reason": "length", "prompt_eval_count": -5, "eval_count": 10**15}
    ollama.routes["POST /api/chat"] = lines(
        message(content="Hel"), "\n", message(content="lo"), {**message(), **end}
    )
    response = await answer(model_of(ollama))
    assert response.parts == [TextPart("Hello")]
    assert response.finish_reason == "length"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (0, 0)


async def test_a_form_is_asked_for_by_its_schema(ollama: ModelServer) -> None:
    said = {**message(content='{"response": 3}'), **END}
    ollama.routes["POST /api/chat"] = always(said)
    assert (await Agent(model_of(ollama), output_type=NativeOutput(int)).run("3?")).output == 3
    assert chats(ollama)[0]["format"]["properties"]["response"]["type"] == "integer"


FAILURES: dict[str, tuple[Route, str, str]] = {
    "an unknown model": (
        always({"error": "model 'm' not found"}, 404),
        "provider 'ollama' at URL knows no model 'm'",
        "ollama pull m; or correct model",
    ),
    "no tools": (
        always({"error": "registry.ollama.ai/library/m does not support tools"}, 400),
        "model 'm' cannot call tools",
        "choose a model that can",
    ),
    "the question is cut away": (
        always({"error": "no user query found in messages"}, 500),
        "too long for model 'm'",
        "",
    ),
    "an error in the stream": (
        lines(message(content="so"), {"error": "an error was encountered: out of memory"}),
        "failed to answer",
        "",
    ),
    "no end": (lines(message(content="so far")), "failed or broke off", ""),
    "a line that is no JSON": (lines("{nonsense\n"), "failed or broke off", ""),
    "a line of another form": (lines({"message": {"tool_calls": [7]}}), "failed or broke off", ""),
    "a line without end": (lines('"', *["x" * 2**20] * 9), "failed or broke off", ""),
    "a list": (lines("[1, 2]\n"), "failed or broke off", ""),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_each_failure_is_told_in_clear_words(
    name: str, ollama: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anyio, "sleep", lambda _seconds: asyncio.sleep(0))
    route, told, fix = FAILURES[name]
    ollama.routes["POST /api/chat"] = route
    with pytest.raises(Exception) as raised:
        await answer(model_of(ollama))
    url = f"http://127.0.0.1:{ollama.port}/v1"
    failed = errors.from_model(raised.value, "ollama", "m", url)
    assert failed is not None
    assert told.replace("URL", url) in failed.message
    assert fix in failed.resolution


@pytest.mark.parametrize("body", ["", "no", "[]", '{"message": 5}'])
async def test_a_whole_answer_that_cannot_be_read_is_a_failure(
    body: str, ollama: ModelServer
) -> None:
    ollama.routes["POST /api/chat"] = always(body)
    with pytest.raises(Exception) as raised:
        await Agent(model_of(ollama)).run("hi")
    assert errors.from_model(raised.value, "ollama", "m") is not None


async def test_who_stops_listening_closes_the_connection(ollama: ModelServer) -> None:
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def endless(_: object) -> fake.Answer:
        def said() -> Iterator[str]:
            try:
                while True:
                    yield json.dumps(message(content="word ")) + "\n"
            finally:
                loop.call_soon_threadsafe(closed.set_result, None)

        return 200, said()

    ollama.routes["POST /api/chat"] = endless
    async with streamed(model_of(ollama)) as stream:
        async for event in stream:
            if isinstance(event, PartStartEvent):
                break
    await asyncio.wait_for(closed, 30)
