"""Agents that hand tasks on, killed at random moments, with a provider that breaks off: each answer
stands once in the history that asked, or is said to be unknown; one budget holds for all."""

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
from wire.v1 import gateway_pb2 as pb

from guest.agent.events import incomplete_in, results_in
from guest.agent.turn import FROM_AGENT
from guest.notices.outbox import Outbox
from tests.support.crashing import delegating
from tests.support.crashing.delegating import Agent, Host
from tests.support.examples import SEED
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import OpenAIServer, Reply, Request, openai_server

SUB_AGENTS = 3
AT_ONCE = 4
SLOW_S = 0.15
BEGUN_S = 60
ENDED_S = 3
FEW = 10
SHARE_BROKEN = 0.15
BROKEN = (
    wire.error("500 Internal Server Error"),
    wire.says("half an", then="abort"),
    wire.says("half an", then="close"),
)


def provider(chance: random.Random, *, breaks: bool = True) -> Reply:
    """Hands tasks on when told "go"; a sub-agent searches memory and answers. It takes its time,
    and breaks off now and then."""

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        messages = request.body["messages"]
        last, whole = messages[-1], json.dumps(messages)
        await asyncio.sleep(chance.random() * SLOW_S)
        if breaks and chance.random() < SHARE_BROKEN:
            await chance.choice(BROKEN)(request, writer)
        elif FROM_AGENT in whole:
            searched = last["role"] == "tool"
            answer = wire.says("the ", "whole ", "answer")
            search = wire.calls(("c1", "memory_search", '{"query": "x"}'), usage=(1_500, 20, 0))
            await (answer if searched else search)(request, writer)
        elif last["role"] == "user" and str(last["content"]).endswith("go"):
            task = json.dumps({"task": "find out"})
            named = [(f"c{n}", "delegate", task) for n in range(SUB_AGENTS)]
            await wire.calls(*named)(request, writer)
        else:
            await wire.says("well")(request, writer)

    return reply


async def killed_once(kind: type[Agent | Host], place: Path, run: int) -> tuple[int, int, float]:
    """As `accounted`, after two kills."""
    chance = random.Random(f"{SEED} {run}")
    async with openai_server(provider(chance)) as server:
        killed = kind(place, server.base_url)
        try:
            for text, most in (("go", 2 * SUB_AGENTS + 2), ("next", 1)):
                before = len(server.requests)
                await killed.ask(text)
                await asked(server, before, chance.randint(1, most))
                await asyncio.sleep(chance.random() * SLOW_S)
                await killed.kill()
            server.replies[:] = [provider(chance, breaks=False)]
            return await accounted(killed.path, server.base_url)
        finally:
            killed.close()


async def asked(server: OpenAIServer, before: int, count: int) -> None:
    """Wait until the provider was asked so often; fewer requests come where a turn fails."""
    async with asyncio.timeout(BEGUN_S):
        while len(server.requests) == before:
            await asyncio.sleep(0.01)
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDED_S):
            while len(server.requests) < before + count:
                await asyncio.sleep(0.01)


async def accounted(path: Path, base_url: str) -> tuple[int, int, float]:
    """Start the agent once more, and look what stands in its history. Returns how many sub-agents
    there were, of how many it is not known what came of them, and what they and their turn cost."""
    async with delegating.agent(path, base_url) as (gateways, alice):
        for _ in range(2):
            last = (await alice.say("s", "and then?"))[-1]
            assert last.WhichOneof("event") == "completed", last
        memory = gateways.memory
        turns = (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
        events = await memory.conversations.history("s", 1_000)
        told = [each for event in events for each in results_in(event)]
        children = sorted(await memory.conversations.working_for("s"))
        unknown = 0
        for child in children:
            assert told.count(child) == 1, (child, told)
            (event,) = (each for each in events if child in results_in(each))
            own = await memory.conversations.history(child, 100)
            answered = own and own[-1].text == "the whole answer" and not incomplete_in(own[-1])
            stands = "the whole answer" in event.payload
            assert not answered or stands
            if not answered:
                unknown += "unknown" in event.payload
                assert any(word in event.payload for word in ("unknown", "failed", "incomplete"))
        assert sorted(told) == children
        notices = await Outbox(memory.store.database, "alice").newest(100)
        keys = [each.key for each in notices if each.kind == "delegation"]
        assert len(keys) == len(set(keys))
        asked = {each.turn_id for each in turns if each.text == "go"}
        paid = (each for each in turns if {each.turn_id, each.parent_turn_id} & asked)
        spent = sum(each.cost_usd for each in paid)
        assert spent <= delegating.CAP  # what the provider refused is not counted
        return len(children), unknown, spent


@pytest.mark.parametrize(
    ("killed", "runs"),
    [
        (Agent, 12),
        pytest.param(Agent, 200, marks=pytest.mark.long),
        (Host, 2),
        pytest.param(Host, 50, marks=pytest.mark.long),
    ],
)
async def test_a_kill_loses_and_repeats_no_answer(
    killed: type[Agent | Host], runs: int, tmp_path: Path
) -> None:
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(run: int) -> tuple[int, int, float]:
        path = tmp_path / str(run)
        path.mkdir()
        async with at_once:
            return await killed_once(killed, path, run)

    counts = await asyncio.gather(*map(one, range(runs)))
    begun, unknown, spent = map(sum, zip(*counts, strict=True))
    print(f"{begun} sub-agents in {runs} runs, {unknown} unknown")
    assert begun
    assert spent > 0
    if runs > FEW:
        assert begun > runs
        assert 0 < unknown < begun
