"""Questions that the runner puts to people through the agent: may this host be reached?"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.errors import Code
from wire.identity import Party
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from tests.support import parties
from tests.support.gateway.gateways import Client, Gateways, goes_on, open_gateways, refusal

QUESTION = "allow files.example.org for this session?"


async def _waits(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
    yield "so far"
    await asyncio.sleep(3.1)
    yield ", and on"


@pytest.fixture
async def gateways() -> AsyncIterator[Gateways]:
    async with open_gateways(with_model=FunctionModel(stream_function=goes_on)) as opened:
        yield opened


@pytest.fixture
async def alice(gateways: Gateways) -> Client:
    return await gateways.serve("alice", approval_wait_s=30)


def question(**fields: str) -> pb.AskRequest:
    asked = {"tool": "network", "arguments_json": '{"host": "files.example.org"}'}
    return pb.AskRequest(**{**asked, "question": QUESTION, "session_id": "s", **fields})


async def asked_of(alice: Client) -> pb.ApprovalRequested:
    """The question that is open, once it is."""
    async with asyncio.timeout(60):
        while True:
            found = (await alice.stub.ListApprovals(pb.ListApprovalsRequest())).approvals
            if found:
                (approval,) = found
                return approval
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("approved", [True, False])
async def test_a_question_of_a_turn_is_seen_and_decided_by_those_who_follow_it(
    alice: Client, runner: "gateway_pb2_grpc.GatewayAsyncStub", approved: bool
) -> None:
    await alice.session("s")
    turn = await alice.begin("s", "t1")
    asking = asyncio.create_task(_reply(runner.Ask(question(turn_id="t1"))))
    shown = (await anext(aiter(turn))).approval
    assert shown == await asked_of(alice)
    assert (shown.question, shown.tool, shown.turn_id, shown.session_id) == (
        *(QUESTION, "network", "t1", "s"),
    )
    (running,) = (await alice.stub.ListTurns(pb.ListTurnsRequest(session_id="s"))).turns
    assert running.state == "waiting"
    decision = pb.DecideRequest(approval_id=shown.approval_id, approved=approved, channel="web")
    assert (await alice.stub.Decide(decision)).accepted
    assert await asking == pb.AskReply(approved=approved, by="person", channel="web")
    assert (await anext(aiter(turn))).decided.approved is approved


async def test_a_question_does_not_outlive_its_turn(
    alice: Client, runner: "gateway_pb2_grpc.GatewayAsyncStub"
) -> None:
    await alice.session("s")
    turn = await alice.begin("s", "t1")
    asking = asyncio.create_task(_reply(runner.Ask(question(turn_id="t1"))))
    shown = await asked_of(alice)
    await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="t1"))
    assert (await asking).by == "cancelled"
    kinds = [event.WhichOneof("event") async for event in turn]
    assert kinds == ["approval", "decided", "failed"]
    late = pb.DecideRequest(approval_id=shown.approval_id, approved=True)
    assert not (await alice.stub.Decide(late)).accepted
    ended = await refusal(runner.Ask(question(turn_id="t1")))
    assert (ended.code, ended.brief) == (
        *(Code.FAILED_PRECONDITION, "the turn that it was for does not run any more"),
    )


async def test_a_question_for_a_turn_of_another_session_is_refused(
    alice: Client, runner: "gateway_pb2_grpc.GatewayAsyncStub"
) -> None:
    await alice.session("s")
    await alice.session("other")
    await alice.begin("s", "t1")
    wrong = await refusal(runner.Ask(question(turn_id="t1", session_id="other")))
    assert wrong.code is Code.FAILED_PRECONDITION


async def test_a_question_without_a_turn_is_the_sessions(
    alice: Client, runner: "gateway_pb2_grpc.GatewayAsyncStub"
) -> None:
    unknown = await refusal(runner.Ask(question()))
    assert unknown.code is Code.NOT_FOUND
    await alice.session("s")
    asking = asyncio.create_task(_reply(runner.Ask(question())))
    shown = await asked_of(alice)
    assert (shown.session_id, shown.turn_id) == ("s", "")
    await alice.stub.Decide(pb.DecideRequest(approval_id=shown.approval_id, approved=True))
    assert (await asking).approved


async def test_who_asks_and_leaves_withdraws_the_question(
    alice: Client, runner: "gateway_pb2_grpc.GatewayAsyncStub"
) -> None:
    await alice.session("s")
    turn = await alice.begin("s", "t1")
    call = runner.Ask(question(turn_id="t1"))
    asking = asyncio.create_task(_reply(call))
    await asked_of(alice)
    call.cancel()
    await asyncio.wait({asking})
    assert [(await anext(aiter(turn))).WhichOneof("event") for _ in range(2)] == [
        *("approval", "decided"),
    ]
    assert not (await alice.stub.ListApprovals(pb.ListApprovalsRequest())).approvals


async def test_a_question_takes_no_time_of_its_turn() -> None:
    async with open_gateways(
        with_model=FunctionModel(stream_function=_waits), turn_timeout_s=2
    ) as gateways:
        alice = await gateways.serve("alice", approval_wait_s=30)
        await alice.session("s")
        turn = await alice.begin("s", "t1")
        async with open_channel(parties.peer(alice.address, Party.AGENT, alice.token)) as channel:
            asking = asyncio.create_task(
                _reply(gateway_pb2_grpc.GatewayStub(channel).Ask(question(turn_id="t1")))
            )
            shown = await asked_of(alice)
            await asyncio.sleep(3)
            decision = pb.DecideRequest(approval_id=shown.approval_id, approved=True)
            assert (await alice.stub.Decide(decision)).accepted
            assert (await asking).approved
        kinds = [event.WhichOneof("event") async for event in turn]
        assert kinds == ["approval", "decided", "text", "completed"]


async def test_nobody_answers_in_time(gateways: Gateways) -> None:
    alice = await gateways.serve("alice", approval_wait_s=0.2)
    await alice.session("s")
    await alice.begin("s", "t1")
    peer = parties.peer(alice.address, Party.AGENT, alice.token)
    async with open_channel(peer) as channel:
        reply = await gateway_pb2_grpc.GatewayStub(channel).Ask(question(turn_id="t1"))
    assert (reply.approved, reply.by) == (False, "expiry")


@pytest.mark.parametrize("party", [Party.SHELL, Party.EGRESS, Party.CLI, Party.ACCESS])
async def test_only_the_runner_asks(alice: Client, party: Party) -> None:
    await alice.session("s")
    peer = parties.peer(alice.address, Party.AGENT, alice.token, party)
    async with open_channel(peer) as channel:
        refused = await refusal(gateway_pb2_grpc.GatewayStub(channel).Ask(question()))
    assert refused.code is Code.PERMISSION_DENIED


async def _reply(call: Any) -> Any:
    return await call
