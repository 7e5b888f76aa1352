"""What a person is told outside of turns, over the wire: by the gateway itself, and by the host."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel
from wire.errors import Code
from wire.settings import BudgetSettings
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from guest.gateway import notices as module
from runner.client.gateway import GatewayClient
from tests.support.gateway.gateways import Client, Gateways, goes_on, open_gateways, refusal


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    async with open_gateways(with_model=FunctionModel(stream_function=goes_on)) as opened:
        yield opened


@pytest.fixture
async def alice(gateways: Gateways) -> Client:
    return await gateways.serve("alice", approval_wait_s=30)


async def listed(alice: Client, **only: Any) -> pb.ListNoticesReply:
    return await alice.stub.ListNotices(pb.ListNoticesRequest(**only))


async def told(alice: Client) -> list[pb.StoredNotice]:
    """The notices, once there are some."""
    async with asyncio.timeout(60):
        while not (found := (await listed(alice)).notices):
            await asyncio.sleep(0.02)
    return list(found)


async def test_each_surface_follows_from_its_own_mark(
    alice: Client, runner: "gateway_pb2_grpc.GatewayAsyncStub"
) -> None:
    for number in range(3):
        added = pb.AddNoticeRequest(kind="guest", text=f"n{number}", key=f"k{number}")
        assert await runner.AddNotice(added) == await runner.AddNotice(added)
    async with await GatewayClient.open(alice.peer, channel_name="cli") as client:

        async def follow(surface: str, most: int) -> list[str]:
            """The next notices that this surface is told; the last one counts as not told."""
            found = []
            async for notice in client.follow_notices(surface):
                found.append(notice.text)
                if len(found) == most:
                    break
            return found

        assert await follow("chat", 2) == ["n0", "n1"]
        assert await follow("chat", 1) == ["n1"]
        assert await follow("console", 3) == ["n0", "n1", "n2"]
        new = await client.notices(9, surface="chat")
        assert ([each.text for each in new.notices], new.unread) == (["n2", "n1"], 3)
        assert await client.mark_notices(read_up_to=new.notices[1].number) == 1
        assert await follow("console", 1) == ["n2"]
        first = await listed(alice, limit=2)
        assert [each.text for each in first.notices] == ["n2", "n1"]
        rest = await listed(alice, limit=2, before=first.before)
        assert ([each.text for each in rest.notices], rest.before) == (["n0"], 0)
    refused = await refusal(runner.AddNotice(pb.AddNoticeRequest(kind="x", text="t", key="k")))
    assert refused.code is Code.INVALID_ARGUMENT
    refused = await refusal(alice.stub.AddNotice(added))
    assert refused.code is Code.PERMISSION_DENIED


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_call_that_waits_with_nobody_there_is_told_until_it_is_decided(
    alice: Client,
    runner: "gateway_pb2_grpc.GatewayAsyncStub",
    is_followed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOMENT_S", 0.1)
    await alice.session("s")
    turn = await alice.begin("s", "t1")
    if not is_followed:
        turn.cancel()
    asked = pb.AskRequest(tool="network", session_id="s", turn_id="t1", question="allow x.org?")
    asking = asyncio.ensure_future(runner.Ask(asked))
    if is_followed:
        await asyncio.sleep(0.5)
        assert not (await listed(alice)).notices
        asking.cancel()
        return
    (notice,) = await told(alice)
    assert (notice.kind, notice.session_id, notice.turn_id) == ("approval", "s", "t1")
    assert notice.text.startswith("network waits for your word until ")
    assert notice.text.endswith(": allow x.org?")
    await alice.stub.Decide(pb.DecideRequest(approval_id=notice.key, approved=True))
    await asking
    async with asyncio.timeout(60):
        while (await listed(alice)).unread:
            await asyncio.sleep(0.02)


async def test_nothing_of_a_temporary_conversation_is_in_a_notice(
    alice: Client,
    runner: "gateway_pb2_grpc.GatewayAsyncStub",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOMENT_S", 0.1)
    session = await alice.stub.CreateSession(pb.CreateSessionRequest(temporary=True))
    asked = pb.AskRequest(tool="network", session_id=session.session_id, question="allow x.org?")
    asking = asyncio.ensure_future(runner.Ask(asked))
    (notice,) = await told(alice)
    assert (notice.session_id, "x.org" in notice.text) == ("", False)
    asking.cancel()


async def test_a_budget_that_is_reached_is_told_once() -> None:
    budget = BudgetSettings(day_tokens=1_000)
    model = FunctionModel(stream_function=goes_on)
    async with open_gateways(with_model=model, budget=budget) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        for _ in range(2):
            assert (await alice.say("s", "word " * 2_000))[-1].WhichOneof("event") == "failed"
        (notice,) = await told(alice)
        assert notice.kind == "budget"
        assert notice.text.startswith("the budget of the day does not cover the next request: ")
        assert "raise day_tokens" in notice.text
