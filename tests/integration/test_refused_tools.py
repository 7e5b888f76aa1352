"""A provider that refuses a request because of a foreign tool: the turn goes on without it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from guest.tools.arguments import SchemaArguments
from guest.tools.base import Safety, Tool, ToolContext, ToolOutput
from tests.support.gateway.gateways import Client, open_gateways
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import OpenAIServer, Reply, Request, openai_server

Words = Callable[[list[str]], str]
"""What a provider says of a request with these tools."""


def foreign(*names: str) -> list[Tool]:
    async def run(_: ToolContext, __: Any) -> ToolOutput:
        return ToolOutput({"content": "done"})

    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    arguments = [SchemaArguments.of(schema) for _ in names]
    return [
        Tool(name, "A tool.", each, Safety.READ_ONLY, 5.0, run)
        for name, each in zip(names, arguments, strict=True)
    ]


def names_in(request: Request) -> list[str]:
    return [each["function"]["name"] for each in request.body.get("tools", ())]


def strict(words: Words, *bad: str) -> Reply:
    """Answers, unless a `bad` tool is offered."""

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        sent = names_in(request)
        if set(sent) & set(bad):
            await wire.error("400 Bad Request", words(sent))(request, writer)
        else:
            await wire.says("ok")(request, writer)

    return reply


async def notices(alice: Client) -> tuple[str, list[str]]:
    events = await alice.say("s", "hi")
    last = events[-1]
    said = last.completed.text if last.HasField("completed") else last.failed.message
    return said, [event.notice.text for event in events if event.HasField("notice")]


@asynccontextmanager
async def gateways(server: OpenAIServer, *names: str, **more: Any) -> AsyncIterator[Client]:
    """Alice, whose agent has found these foreign tools."""
    settings: dict[str, Any] = {"provider": "openai", "model": "test-model", **more}
    tools = foreign(*names)
    async with open_gateways(
        base_url=server.base_url, api_key="k", tools=tools, **settings
    ) as opened:
        alice = await opened.serve("alice")
        await alice.session("s")
        found = json.dumps({name: number for number, name in enumerate(names)})
        await opened.memory.state_of.swap("s", "found_tools", found, 0)
        yield alice


@pytest.mark.parametrize(
    "words",
    [
        lambda sent: "Invalid schema for function 's_bad': array schema missing items",
        lambda sent: f"tools.{sent.index('s_bad')}.custom.input_schema: no union at the top level",
        lambda sent: f"Invalid 'tools[{sent.index('s_bad')}].function.parameters': no",
        lambda sent: f"tools[0].function_declarations[{sent.index('s_bad')}].parameters.type",
        lambda sent: f"tools[{sent.index('s_bad')}].function_declarations[0].parameters.type",
    ],
)
async def test_the_tool_that_is_named_is_left_out_from_then_on(words: Words) -> None:
    async with (
        openai_server(strict(words, "s_bad")) as server,
        gateways(server, "s_good", "s_bad") as alice,
    ):
        assert await notices(alice) == (
            "ok",
            ["openai:test-model refuses s_bad, which is left out"],
        )
        assert await notices(alice) == ("ok", [])
        sent = [names_in(request) for request in server.requests]
        assert ["s_bad" in each for each in sent] == [True, False, False]
        assert all("s_good" in each and "file_read" in each for each in sent)


async def test_where_none_is_named_all_foreign_ones_are_left_out_in_this_turn() -> None:
    refusing = strict(lambda _: "the request is not valid", "s_bad")
    async with (
        openai_server(refusing) as server,
        gateways(server, "s_good", "s_bad") as alice,
    ):
        for _ in range(2):
            said, told = await notices(alice)
            assert said == "ok"
            assert told == [
                "openai:test-model refuses a tool and does not say which; those of MCP servers are "
                "left out in this turn"
            ]
        assert [("s_good" in names_in(each)) for each in server.requests] == [True, False] * 2
        assert all("file_read" in names_in(each) for each in server.requests)


async def test_a_request_that_is_refused_for_another_reason_is_told_as_ever() -> None:
    async with openai_server(wire.error("400 Bad Request")) as server:
        async with gateways(server, "s_good") as alice:
            said, told = await notices(alice)
            assert (said, told) == (
                f"provider 'openai' at {server.base_url} rejected the request",
                [],
            )
            assert len(server.requests) == 2
        server.requests.clear()
        async with gateways(server) as alice:
            assert (await notices(alice))[0].endswith(f"{server.base_url} rejected the request")
            assert len(server.requests) == 1
    async with (
        openai_server(wire.error("401 Unauthorized", "s_good")) as server,
        gateways(server, "s_good") as alice,
    ):
        assert (await notices(alice))[0].endswith(f"{server.base_url} refused the API key")
        assert len(server.requests) == 1


async def test_many_tools_refused_one_by_one_cost_few_requests() -> None:
    names = [f"s_bad{number}" for number in range(20)]

    def words(sent: list[str]) -> str:
        return f"Invalid schema for function '{next(each for each in sent if each in names)}'"

    async with (
        openai_server(strict(words, *names)) as server,
        gateways(server, *names) as alice,
    ):
        assert (await notices(alice))[0] == "ok"
        assert len(server.requests) == 6


async def test_a_chain_of_models_goes_on_without_it_too() -> None:
    """All refuse it; then each is asked again, and the first one answers."""
    refusing = strict(lambda _: "Invalid schema for function 's_bad'", "s_bad")
    async with (
        openai_server(refusing) as server,
        gateways(server, "s_bad", fallbacks=("openai:other",)) as alice,
    ):
        events = await alice.say("s", "hi")
        assert events[-1].completed.model == "openai:test-model"
        told = [event.notice.text for event in events if event.HasField("notice")]
        assert told == ["openai:test-model refuses s_bad, which is left out"]
        assert [request.body["model"] for request in server.requests] == [
            "test-model",
            "other",
            "test-model",
        ]


@pytest.mark.parametrize(
    "words",
    [
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Only user and assistant roles are supported!",
        "Unexpected message role: tool",
    ],
)
async def test_a_template_without_a_role_for_tools_is_told_calls_and_results_as_texts(
    words: str,
) -> None:
    replies = iter([wire.calls(("c", "file_list", "{}")), wire.says("Empty."), wire.says("Yes.")])

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        roles = [each["role"] for each in request.body["messages"]]
        refused = wire.error("500 Internal Server Error", words) if "tool" in roles else None
        await (refused or next(replies))(request, writer)

    async with openai_server(reply) as server, gateways(server) as alice:
        assert (await alice.say("s", "what is there?"))[-1].completed.text == "Empty."
        assert (await alice.say("s", "sure?"))[-1].completed.text == "Yes."
        roles = [[each["role"] for each in each.body["messages"]] for each in server.requests]
        turn = ["system", "user", "assistant", "user"]
        assert [each for each in roles if "tool" not in each] == [
            *(turn[:2], turn, [*turn, "assistant", "user"])
        ]
        _, _, called, result, *_ = server.requests[-1].body["messages"]
        assert called["content"] == '{"name": "file_list", "arguments": {}}'
        assert result["content"].startswith(
            "[This is the runtime, not the user.] file_list gives:\n> "
        )
