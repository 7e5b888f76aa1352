"""A model whose window is smaller than `context_window` says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.gateway.gateways import Client, open_gateways
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import OpenAIServer, Reply, Request, openai_server


def of_at_most(chars: int, words: str) -> Reply:
    """Answers, unless it is sent more characters."""

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        if len(json.dumps(request.body["messages"])) > chars:
            refusal = wire.error("400 Bad Request", words, code="context_length_exceeded")
            await refusal(request, writer)
        else:
            told = str(request.body["messages"][0]["content"])
            await wire.says("- said" if told.startswith("You summarise") else "ok")(request, writer)

    return reply


@asynccontextmanager
async def talk(
    chars: int, words: str = "the context length of this model is exceeded", **more: Any
) -> AsyncIterator[tuple[Client, OpenAIServer]]:
    settings: dict[str, Any] = {"provider": "openai", "model": "small", **more}
    async with (
        openai_server(of_at_most(chars, words)) as server,
        open_gateways(base_url=server.base_url, api_key="k", **settings) as gateways,
    ):
        alice = await gateways.serve("alice")
        await alice.session("s")
        yield alice, server


async def said(alice: Client, text: str) -> tuple[str, list[str]]:
    events = await alice.say("s", text)
    last = events[-1]
    answer = last.completed.text if last.HasField("completed") else last.failed.message
    return answer, [event.notice.text for event in events if event.HasField("notice")]


WAITS = (
    "the conversation fills the model's window: its oldest turns are summarised before the answer"
)
LONG = "a word of many " * 400


async def test_a_session_goes_on_without_its_oldest_turns_and_says_so_once() -> None:
    async with talk(40_000) as (alice, server):
        told = []
        for number in range(12):
            answer, notices = await said(alice, f"{number}: {LONG}")
            assert answer == "ok"
            told += notices
        assert [each for each in told if each != WAITS] == [
            "the window of openai:small is smaller than was known, less than context_window "
            "(64,000): requests are kept below it",
        ]
        assert 1 <= told.count(WAITS) <= 8
        refused = [len(json.dumps(each.body["messages"])) > 40_000 for each in server.requests]
        assert refused.count(True) == 1
        asked = [each.body["messages"] for each in server.requests]
        last = [each for each in asked if "You summarise" not in str(each[0]["content"])][-1]
        assert "\n\n11: a word" in last[-1]["content"]
        assert not any("\n\n0: a word" in str(each["content"]) for each in last)


async def test_what_can_never_fit_is_told_and_the_session_goes_on() -> None:
    async with talk(40_000) as (alice, server):
        answer, notices = await said(alice, LONG * 8)
        assert (answer, notices) == ("the conversation is too long for model 'small'", [])
        assert len(server.requests) <= 4
        assert (await said(alice, "hi"))[0] == "ok"
        assert (await said(alice, "and now?"))[0] == "ok"


async def test_a_known_window_does_not_refuse_what_the_model_may_take() -> None:
    """What was found is a guess: a message larger than that is tried in full."""
    async with talk(60_000) as (alice, _):
        for number in range(12):
            assert (await said(alice, f"{number}: {LONG}"))[0] == "ok"
        assert (await said(alice, LONG * 6))[0] == "ok"
