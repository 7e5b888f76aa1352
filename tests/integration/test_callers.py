"""The way from a caller of any face to an agent, on real sockets, before fake agents."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2 as pb

from runner.access.callers import CALLS_MAX, Caller, Callers
from runner.access.scopes import Scope
from runner.client.gateway import GatewayClient
from tests.support.gateway.fake_gateway import LIVE, Event, FakeGateway, echo, text
from tests.support.gateway.front import Front, open_front

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def front() -> AsyncIterator[Front]:
    async with open_front() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def callers(front: Front) -> AsyncIterator[Callers]:
    async with Callers.locate(front.config) as made:
        yield made


async def waits(gateway: FakeGateway, request: pb.StartTurnRequest) -> AsyncIterator[Event]:
    yield text("begun")
    await asyncio.Event().wait()


def let_in(front: Front, callers: Callers, name: str, *scopes: Scope) -> Caller:
    return callers.with_token(front.access("alice", name, *scopes).token, "192.0.2.1")


@asynccontextmanager
async def client(callers: Callers, caller: Caller, user_id: str = "") -> AsyncIterator[Any]:
    async with await GatewayClient.over(
        callers.agent(caller, user_id), channel_name="made up"
    ) as agent:
        yield agent


async def test_a_client_over_a_callers_channel_works_and_says_who_calls(
    front: Front, callers: Callers
) -> None:
    front.alice.script = echo
    front.alice.sessions["s"] = pb.Session(session_id="s")
    async with client(callers, let_in(front, callers, "tablet")) as agent:
        events = [event async for event in agent.run_turn("s", "hi", "turn-1")]
        await agent.save_note("a note", [], "")
    assert events[-1].WhichOneof("event") == "completed"
    assert front.alice.turns[-1].channel == "access-tablet"
    assert front.alice.seen[-1].channel == "access-tablet"


async def test_what_has_no_scope_or_is_anothers_is_refused_here(
    front: Front, callers: Callers
) -> None:
    reader = let_in(front, callers, "reader", Scope.MEMORY)
    async with client(callers, reader) as agent:
        with pytest.raises(WireError) as raised:
            await agent.list_sessions(1)
    assert raised.value.code is Code.PERMISSION_DENIED
    with pytest.raises(WireError, match="another user's"):
        callers.agent(reader, "bob")
    async with client(callers, Caller.at_terminal("alice", "mcp"), "bob") as agent:
        await agent.save_note("for bob", [], "")
    assert (front.bob.seen[-1].text, front.bob.seen[-1].channel) == ("for bob", "mcp")


async def test_a_stream_ends_when_its_token_is_revoked(front: Front, callers: Callers) -> None:
    front.alice.script = waits
    caller = let_in(front, callers, "lost")
    left = len(front.alice.left)
    async with client(callers, caller) as agent:
        events = agent.follow_turn(LIVE)
        assert (await anext(events)).text.text == "begun"
        front.tokens.revoke("alice", "lost")
        with pytest.raises(WireError, match="revoked"):
            async with asyncio.timeout(60):
                await anext(events)
        with pytest.raises(WireError, match="revoked"):
            await agent.list_sessions(1)
    async with asyncio.timeout(60):
        while len(front.alice.left) == left:
            await asyncio.sleep(0.01)


async def test_calls_that_were_left_are_counted_no_more(front: Front, callers: Callers) -> None:
    front.alice.script = waits
    caller = let_in(front, callers, "busy")
    async with client(callers, caller) as agent:
        turns = [agent.follow_turn(LIVE) for _ in range(CALLS_MAX)]
        for turn in turns:
            await anext(turn)
        with pytest.raises(WireError, match="too many calls"):
            await agent.list_sessions(1)
        for turn in turns:
            await turn.aclose()
        await agent.list_sessions(1)


async def test_a_call_whose_connection_another_one_gave_up_says_that_the_agent_is_away(
    front: Front, callers: Callers
) -> None:
    front.alice.script = waits
    front.alice.sessions["s"] = pb.Session(session_id="s")
    async with client(callers, let_in(front, callers, "two-calls")) as agent:
        events = agent.follow_turn(LIVE)
        await anext(events)
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        agents = callers.agents
        await agents.forget("alice", await agents.channel("alice"))
        with pytest.raises(WireError) as raised:
            await following
        assert raised.value.code is Code.UNAVAILABLE
        await agent.refresh_hello()
