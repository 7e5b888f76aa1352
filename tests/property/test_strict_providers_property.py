"""Whatever turns have left in a session, a strict provider accepts the next request: the bodies
that the libraries of three providers make of it are checked against what those demand."""

import asyncio
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import Model

from guest.agent import history
from guest.agent.calls import begun
from guest.memory.models import Event, Role
from tests.support.examples import examples

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
IDS = st.sampled_from(
    ["", "c1", "c2", "call 3", "c" * 200, "é", "functions.look:0", f"chatcmpl-tool-{'1f' * 16}"]
)
NAMES = st.sampled_from(["look", "keep", "", "memory save", "x" * 100])
ARGUMENTS = st.sampled_from(
    [
        *("{}", "", "{", "[1]", '{"a": {"b": [1]}}', "[" * 5000, '{"text": "\\u0000"}', "null"),
        *('{"a": NaN}', '{"a": [1, -1e999]}'),
    ]
)
OBJECTS = st.sampled_from([{}, {"a": 1}])
CALL: st.SearchStrategy[ToolCallPart] = st.builds(
    ToolCallPart, NAMES, st.one_of(ARGUMENTS, OBJECTS), IDS
)
TEXT = st.builds(TextPart, st.sampled_from(["", "said", " "]))
THINKING = st.builds(ThinkingPart, st.sampled_from(["", "hm"]))
ANSWER = st.lists(st.one_of(CALL, CALL, TEXT, THINKING), min_size=1, max_size=4)
SAID = st.sampled_from(["hello", "and now?", ""])
STEP = st.one_of(
    st.tuples(st.just("user"), SAID),
    st.tuples(st.just("assistant"), ANSWER),
    st.tuples(st.just("results"), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("result"), NAMES, IDS),
)
"""Turns in any order, as kills, cancellations, imports and other models leave them: questions
without an answer, answers with some of their results or with those of others, none at all."""


def events_of(steps: Sequence[tuple[Any, ...]]) -> list[Event]:
    events: list[Event] = []
    calls: list[ToolCallPart] = []

    def add(role: Role, message: ModelMessage) -> None:
        number = len(events) + 1
        events.append(Event(number, f"t{number}", role, "", history.to_payload(message), "now"))

    for step in steps:
        match step:
            case "user", str(text):
                add("user", history.user_message(text or " ", "a file lies there"))
            case "assistant", [*parts]:
                add("assistant", answer(parts))
                calls = [part for part in parts if isinstance(part, ToolCallPart)]
            case "results", int(count), backwards:
                for call in (calls[::-1] if backwards else calls)[:count]:
                    add("tool", result(call.tool_call_id, call.tool_name))
            case "result", str(name), str(call_id):
                add("tool", result(call_id, name))
    return events


def answer(parts: Sequence[ModelResponsePart]) -> ModelResponse:
    return ModelResponse(parts=[*parts])


def result(call_id: str, tool: str) -> ModelMessage:
    return history.tool_message(call_id, tool, "found", is_error=False)


async def body_of(provider: str, messages: list[ModelMessage]) -> dict[str, Any]:
    """The body of the request that asks a provider the next question."""
    sent: list[dict[str, Any]] = []

    async def refuse(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(await request.aread()))
        return httpx2.Response(400, json={"error": {"message": "seen", "type": "x"}})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refuse), timeout=600) as client:
        agent = Agent(model_of(provider, client), retries=0)
        with pytest.raises(ModelHTTPError):
            await agent.run("now?", message_history=messages)
    return sent[-1]


def model_of(provider: str, client: httpx2.AsyncClient) -> Model:
    if provider == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        from guest.agent.models.openai_model import OpenAIModel

        return OpenAIModel("gpt-4o", provider=OpenAIProvider(api_key="k", http_client=client))
    if provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        anthropic = AnthropicProvider(api_key="k", http_client=client)
        return AnthropicModel("claude-sonnet-5-0", provider=anthropic)
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel("gemini-2.5-pro", provider=GoogleProvider(api_key="k", http_client=client))


def joined(messages: list[dict[str, Any]], content: str) -> list[dict[str, Any]]:
    """The messages as the provider takes them: one after another of the same role is joined."""
    made: list[dict[str, Any]] = []
    for message in messages:
        whole = message[content]
        items = [{"type": "text", "text": whole}] if isinstance(whole, str) else whole
        if made and made[-1]["role"] == message["role"]:
            made[-1][content] += items
        else:
            made.append({**message, content: [*items]})
    return made


def strictly(text: str) -> Any:
    """What JSON says that has nothing but what its standard knows."""
    value = json.loads(text)
    json.dumps(value, allow_nan=False)
    return value


def check_openai(body: dict[str, Any]) -> None:
    """Calls are followed by just their results; ids are there once; nothing is empty."""
    spoken = [one["role"] for one in body["messages"] if one["role"] != "tool"]
    assert all(a != b for a, b in itertools.pairwise(spoken) if "user" in (a, b))
    seen: list[str] = []
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        calls = message.get("tool_calls") or []
        assert calls or message.get("content")
        for call in calls:
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(strictly(call["function"]["arguments"]), dict)
            waiting.append(call["id"])
        seen += waiting
    assert not waiting
    assert len(seen) == len(set(seen))
    assert all(1 <= len(call_id) <= 40 for call_id in seen)


def check_anthropic(body: dict[str, Any]) -> None:
    """The user begins; results stand first, right behind their calls."""
    seen: list[str] = []
    waiting: list[str] = []
    for number, message in enumerate(joined(body["messages"], "content")):
        assert message["role"] == ("assistant" if number % 2 else "user")
        blocks = message["content"]
        assert blocks
        kinds = [block["type"] for block in blocks]
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        assert sorted(results) == sorted(waiting)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        seen += waiting
        for block in blocks:
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_use":
                assert NAME.fullmatch(block["name"])
                assert isinstance(block["input"], dict)
    assert not waiting
    assert len(seen) == len(set(seen))
    assert all(NAME.fullmatch(call_id) for call_id in seen)


def check_google(body: dict[str, Any]) -> None:
    """The user begins; as many results follow as there were calls."""
    waiting = 0
    for number, content in enumerate(joined(body["contents"], "parts")):
        assert content["role"] == ("model" if number % 2 else "user")
        assert content["parts"]
        assert sum("functionResponse" in part for part in content["parts"]) == waiting
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        assert all(NAME.fullmatch(call["name"]) for call in calls)
        assert all(part.get("text") != "" for part in content["parts"])
        waiting = len(calls)
    assert not waiting


@pytest.mark.parametrize(
    ("provider", "check"),
    [("openai", check_openai), ("anthropic", check_anthropic), ("google", check_google)],
)
@examples(20)
@given(st.lists(STEP, max_size=12))
@example([("assistant", [TextPart("said")])])
@example([("user", "hello"), ("assistant", [ThinkingPart("hm")]), ("user", "hello")])
@example([("user", "hello"), ("assistant", [TextPart(" ")]), ("user", "hello")])
@example([("user", "hello"), ("assistant", [ToolCallPart("look", '{"a": NaN}', "c1")])])
@example([("user", "hello"), ("assistant", [ToolCallPart("look", '{"a": 1e999}', "c1")])])
@example(
    [
        ("user", "hello"),
        *(("assistant", [ToolCallPart("look", "{}", "c1")]), ("results", 1, False)) * 2,
    ]
)
def test_a_strict_provider_accepts_any_history(
    provider: str, check: Any, steps: list[tuple[Any, ...]]
) -> None:
    check(asyncio.run(body_of(provider, begun(history.to_messages(events_of(steps))))))
