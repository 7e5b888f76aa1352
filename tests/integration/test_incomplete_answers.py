"""Answers that end before their end, in both wire formats, and going on with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.agent.incomplete import ASKED_TO_GO_ON, GO_ON
from tests.support.gateway.gateways import Client, open_gateways, refusal, run_turn
from tests.support.servers import anthropic_replies, openai_server
from tests.support.servers.openai_server import OpenAIServer, Reply


class Format(NamedTuple):
    """A wire format: its provider, its answers, its words for the length limit and a filter."""

    provider: str
    says: Any
    length: dict[str, str]
    filtered: dict[str, str]


OPENAI = Format("openai", openai_server.says, {"finish": "length"}, {"finish": "content_filter"})
ANTHROPIC = Format("anthropic", anthropic_replies.says, {"stop": "max_tokens"}, {"stop": "refusal"})


@asynccontextmanager
async def talk(spoken: Format, *replies: Reply) -> AsyncIterator[tuple[Client, OpenAIServer]]:
    async with openai_server.openai_server(*replies) as server:
        url = server.base_url if spoken is OPENAI else server.base_url.removesuffix("/v1")
        settings: dict[str, Any] = {
            "provider": spoken.provider,
            "model": "test-model",
            "base_url": url,
        }
        async with open_gateways(api_key="sk-test-0123456789", **settings) as gateways:
            alice = await gateways.serve("alice")
            await alice.session("s")
            yield alice, server


async def answers(alice: Client) -> list[tuple[str, str]]:
    history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
    return [(each.text, each.incomplete) for each in history.events if each.role == "assistant"]


@pytest.mark.parametrize("spoken", [OPENAI, ANTHROPIC], ids=lambda spoken: spoken.provider)
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("length", "length"),
        ("filtered", "filtered"),
        ("close", "cut_short"),
        ("abort", "cut_short"),
    ],
)
async def test_half_an_answer_is_kept_marked_and_gone_on_with(
    spoken: Format, how: str, reason: str
) -> None:
    ends = getattr(spoken, how, {"then": how})
    half, rest = spoken.says("Tea is ", "at", **ends), spoken.says(" five.")
    async with talk(spoken, half, rest, spoken.says("Yes.")) as (alice, server):
        ended = (await alice.say("s", "when is tea?"))[-1]
        assert ended.WhichOneof("event") == "incomplete"
        assert (ended.incomplete.reason, ended.incomplete.so_far.text) == (reason, "Tea is at")
        assert ended.incomplete.message
        assert await answers(alice) == [("Tea is at", reason)]

        went_on = (await alice.say("s", "", retry=True))[-1].completed
        assert (went_on.text, went_on.model) == (" five.", f"{spoken.provider}:test-model")
        *_, before, asked = openai_server.untimed(server.requests[-1])
        assert "Tea is at" in str(before)
        assert GO_ON in str(asked)
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        said = [event.text for event in history.events if event.role == "user"]
        assert said == ["when is tea?", ASKED_TO_GO_ON]
        assert await answers(alice) == [("Tea is at", reason), (" five.", "")]


async def test_a_whole_answer_is_not_taken_for_half_a_one() -> None:
    """A compatible server that reports the usage and leaves the reason out."""
    async with talk(OPENAI, openai_server.says("Tea.", finish="")) as (alice, _):
        assert (await alice.say("s", "hi"))[-1].completed.text == "Tea."
        assert await answers(alice) == [("Tea.", "")]


async def test_calls_of_half_an_answer_are_not_made() -> None:
    save = {"name": "memory_save", "arguments": '{"content": "tea"}'}
    call = {"index": 0, "id": "c1", "type": "function", "function": save}
    half = openai_server.stream({"role": "assistant", "tool_calls": [call]}, finish="length")
    async with talk(OPENAI, half) as (alice, server):
        assert (await alice.say("s", "keep tea"))[-1].incomplete.reason == "length"
        assert await alice.notes() == []
        assert len(server.requests) == 1


async def test_a_question_without_an_answer_is_asked_again_once() -> None:
    failing, well = openai_server.error("401 Unauthorized"), openai_server.says("Tea.")
    async with talk(OPENAI, failing, well, well) as (alice, server):
        nothing = pb.StartTurnRequest(session_id="s", retry=True)
        (ended,) = [event async for event in run_turn(alice.stub, nothing)][-1:]
        assert "nothing to try again" in ended.failed.message
        assert (await alice.say("s", "what now?"))[-1].failed.code == Code.FAILED_PRECONDITION
        assert (await alice.say("s", "", retry=True))[-1].completed.text == "Tea."
        asked = [one["content"] for one in openai_server.untimed(server.requests[-1])[1:]]
        assert asked == ["what now?"]
        await alice.say("s", "", retry=True)
        roles = [one["role"] for one in openai_server.untimed(server.requests[-1])]
        assert roles[-3:] == ["user", "assistant", "user"]
        refused = await refusal(run_turn(alice.stub, pb.StartTurnRequest(session_id="s", text=" ")))
        assert refused.code is Code.INVALID_ARGUMENT
