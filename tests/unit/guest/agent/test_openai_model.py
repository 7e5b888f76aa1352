"""A model of a server that speaks OpenAI's API: what only some servers take, and calls that a
stream has lost."""

import json
from collections.abc import AsyncIterable, Iterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models import Model
from wire.settings import AgentSettings

from guest.agent.models.providers import build_model, request_settings
from tests.support.servers.model_servers import ModelServer, always, serving

CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "b"}'}}


def whole(**message: Any) -> dict[str, Any]:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    form = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**form, "choices": [choice], "usage": usage}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving({"POST /v1/chat/completions": always(whole(content="Hello."))}) as running:
        yield running


def settings(server: ModelServer, **more: Any) -> AgentSettings:
    where = {"provider": "compatible", "base_url": f"http://127.0.0.1:{server.port}/v1"}
    return AgentSettings.model_construct(**{"model": "m", **where, **more})


async def said(model: Model, **asked: Any) -> Any:
    every: Any = {"max_tokens": 99, **asked}
    return (await Agent(model).run("hi", model_settings=every)).output


async def test_the_limit_goes_by_both_names_and_no_thinking_in_llama_cpps_way(
    server: ModelServer,
) -> None:
    own = settings(server, thinking="off", temperature=0.25)
    assert await said(build_model(own), **request_settings(own)) == "Hello."
    (body,) = server.bodies
    assert (body["max_tokens"], body["max_completion_tokens"]) == (99, 99)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["temperature"] == 0.25


@pytest.mark.parametrize(
    "more", [{"thinking": "low"}, {"provider": "azure", "thinking": "off"}, {"thinking": "default"}]
)
async def test_who_did_not_ask_for_it_sends_nothing_of_it(
    server: ModelServer, more: dict[str, Any]
) -> None:
    await said(build_model(settings(server, **more), "key"))
    (body,) = server.bodies
    assert "chat_template_kwargs" not in body
    assert ("max_tokens" in body) == ("provider" not in more)


@pytest.mark.parametrize("status", [400, 422])
async def test_a_field_that_a_server_refuses_by_its_name_is_not_sent_again(
    server: ModelServer, status: int
) -> None:
    def strict(body: dict[str, Any]) -> Any:
        for name in ("max_tokens", "chat_template_kwargs"):
            if name in body:
                return status, {"error": {"message": f"unknown field: {name}"}}
        return 200, whole(content="Hello.")

    server.routes["POST /v1/chat/completions"] = strict
    model = build_model(settings(server, thinking="off"))
    assert [await said(model), await said(model)] == ["Hello.", "Hello."]
    assert len(server.bodies) == 4
    assert server.bodies[-1]["max_completion_tokens"] == 99


async def test_another_refusal_is_not_repeated(server: ModelServer) -> None:
    server.routes["POST /v1/chat/completions"] = always({"error": {"message": "no"}}, 400)
    with pytest.raises(Exception, match="no"):
        await said(build_model(settings(server, thinking="off")))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("text", ["", "I look. "])
async def test_a_call_that_a_stream_has_lost_is_asked_for_without_one(
    server: ModelServer, text: str
) -> None:
    def losing(body: dict[str, Any]) -> Any:
        if body["messages"][-1]["role"] == "tool":
            return answered(body)
        if not body.get("stream"):
            return 200, whole(content=text or None, tool_calls=[CALL])
        delta = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        return 200, events(delta, end)

    def answered(body: dict[str, Any]) -> Any:
        if not body.get("stream"):
            return 200, whole(content="Done.")
        choice = {"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}
        return 200, events({"choices": [choice]})

    server.routes["POST /v1/chat/completions"] = losing
    agent = Agent(build_model(settings(server)))
    looked: list[str] = []

    @agent.tool_plain
    def look(at: str) -> None:
        looked.append(at)

    async def listened(_: object, events: AsyncIterable[object]) -> None:
        async for _ in events:
            pass

    for _ in range(2):
        result = await agent.run("hi", event_stream_handler=listened)
        assert result.output == "Done."
        called = result.all_messages()[1].parts
        assert [each for each in called if isinstance(each, ToolCallPart)]
        assert "".join(each.content for each in called if isinstance(each, TextPart)) == text
    assert looked == ["b", "b"]
    # the first is asked again, and nothing is streamed after that
    assert [body.get("stream", False) for body in server.bodies] == [True, *[False] * 4]


async def test_a_server_that_has_no_call_either_way_goes_on_streaming(server: ModelServer) -> None:
    def confused(body: dict[str, Any]) -> Any:
        if not body.get("stream"):
            return 200, whole(content="No call.")
        choice = {"index": 0, "delta": {"content": "No call."}, "finish_reason": "tool_calls"}
        return 200, events({"choices": [choice]})

    async def listened(_: object, events: AsyncIterable[object]) -> None:
        async for _ in events:
            pass

    server.routes["POST /v1/chat/completions"] = confused
    agent = Agent(build_model(settings(server)))
    for _ in range(2):
        assert (await agent.run("hi", event_stream_handler=listened)).output == "No call."
    assert [body.get("stream", False) for body in server.bodies] == [True, False] * 2


def events(*chunks: dict[str, Any]) -> Iterator[str]:
    form = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    yield from (f"data: {json.dumps({**form, **chunk})}\n\n" for chunk in chunks)
    yield "data: [DONE]\n\n"


async def test_lm_studio_says_the_window_of_a_model_that_it_has_loaded(server: ModelServer) -> None:
    m: dict[str, Any] = {"id": "m", "state": "not-loaded", "max_context_length": 40_960}
    server.routes["GET /api/v0/models"] = always({"object": "list", "data": [{"id": "other"}, m]})
    model: Any = build_model(settings(server, provider="lmstudio"))
    assert (await model.window(), model.window_is_final) == (40_960, False)
    m["loaded_context_length"] = 4096
    assert (await model.window(), model.window_is_final) == (4096, True)
