"""Turns that take their time: busy, cancelled, left, side by side, asking for approval."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from tests.support.gateway.gateways import Client, open_gateways, refusal, run_turn


def tool_call(name: str, **arguments: Any) -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall(name, json.dumps(arguments), tool_call_id="c0")}


async def _slow_words(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
    yield "so far. And"
    await asyncio.sleep(60)


async def test_a_busy_session_refuses_and_a_cancelled_turn_is_recorded() -> None:
    async with open_gateways(with_model=FunctionModel(stream_function=_slow_words)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        request = pb.StartTurnRequest(session_id="s", text="hi", turn_id="t1")
        stream = aiter(run_turn(alice.stub, request))
        assert (await anext(stream)).WhichOneof("event") == "started"
        assert (await anext(stream)).text.text == "so far. And"
        busy = await refusal(run_turn(alice.stub, pb.StartTurnRequest(session_id="s", text="hi")))
        assert busy.code is Code.CONFLICT
        assert "t1" in busy.brief
        assert busy.resolution
        assert (await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="t1"))).cancelled
        assert (await anext(stream)).failed.code == "cancelled"
        again = pb.CancelTurnRequest(turn_id="t1")
        assert not (await alice.stub.CancelTurn(again)).cancelled
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [event.text for event in history.events] == ["hi", "so far. And"]
        used = pb.StartTurnRequest(session_id="s", text="hi", turn_id="t1")
        assert (await refusal(run_turn(alice.stub, used))).code is Code.ALREADY_EXISTS


async def test_leaving_the_stream_cancels_nothing_and_anybody_follows() -> None:
    go_on = asyncio.Event()

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield "so far. "
        await go_on.wait()
        yield "And all."

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice, bob = await gateways.serve("alice"), await gateways.serve("bob")
        await alice.session("s")
        call = await alice.begin("s", "t1")
        call.cancel()
        (running,) = (await alice.stub.ListTurns(pb.ListTurnsRequest(session_id="s"))).turns
        assert (running.turn_id, running.state, running.text) == ("t1", "running", "hi")
        assert not (await bob.stub.ListTurns(pb.ListTurnsRequest())).turns
        following = pb.FollowTurnRequest(turn_id="t1", after=2)
        assert (await refusal(bob.stub.FollowTurn(following))).code is Code.NOT_FOUND
        follower = aiter(alice.stub.FollowTurn(pb.FollowTurnRequest(turn_id="t1")))
        whole = [await anext(follower), await anext(follower)]
        go_on.set()
        whole += [event async for event in follower]
        rest = await _followed(alice, "t1", 2)
        assert [event.index for event in whole] == [0, 1, 2, 3]
        assert rest == whole[2:]
        assert rest[-1].completed.text == "so far. And all."
        again = pb.StartTurnRequest(session_id="s", text="hi", turn_id="t1")
        refused = await refusal(alice.stub.StartTurn(again))
        assert (refused.code, "FollowTurn" in refused.resolution) == (Code.ALREADY_EXISTS, True)


async def _followed(client: Client, turn_id: str, after: int = 0) -> list[pb.TurnEvent]:
    request = pb.FollowTurnRequest(turn_id=turn_id, after=after)
    return [event async for event in client.stub.FollowTurn(request)]


async def test_a_turn_is_answered_for_by_its_record() -> None:
    """As another launch over the same store does."""
    replies = ["a whole answer", tool_call("memory_save", content="Tea, no milk"), "saved it"]

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        if not replies:
            raise ZeroDivisionError
        yield replies.pop(0)

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        for turn_id in ("t1", "t2", "t3"):
            await alice.say("s", f"question of {turn_id}", turn_id)
        relaunched = await gateways.serve("alice", reply_max_bytes=1_000_000)
        turns = (await relaunched.stub.ListTurns(pb.ListTurnsRequest())).turns
        states = [(turn.turn_id, turn.state, turn.text) for turn in turns]
        assert states == [
            ("t3", "failed", "question of t3"),
            ("t2", "completed", "question of t2"),
            ("t1", "completed", "question of t1"),
        ]
        assert list(
            (await relaunched.stub.ListTurns(pb.ListTurnsRequest(session_id="s"))).turns
        ) == (list(turns))
        started, text, completed = await _followed(relaunched, "t1")
        assert started.started.session_id == "s"
        assert text.text.text == completed.completed.text == "a whole answer"
        kinds = [event.WhichOneof("event") for event in await _followed(relaunched, "t2")]
        assert kinds == ["started", "text", "receipt", "completed"]
        (outcome,) = await _followed(relaunched, "t2", 17)
        assert (outcome.index, outcome.completed.text) == (17, "saved it")
        (receipt,) = outcome.completed.receipts
        assert (receipt.action, receipt.durable) == ("saved", True)
        (failed,) = await _followed(relaunched, "t3", 1)
        assert failed.failed.code == "internal"
        used = pb.StartTurnRequest(session_id="s", text="hi", turn_id="t1")
        assert (await refusal(relaunched.stub.StartTurn(used))).code is Code.ALREADY_EXISTS
        await relaunched.stub.ForgetSession(pb.ForgetSessionRequest(session_id="s"))
        missing = relaunched.stub.FollowTurn(pb.FollowTurnRequest(turn_id="t1"))
        assert (await refusal(missing)).code is Code.NOT_FOUND
        assert not (await relaunched.stub.ListTurns(pb.ListTurnsRequest())).turns


async def test_sessions_of_one_user_run_side_by_side() -> None:
    together = asyncio.Barrier(3)

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        await asyncio.wait_for(together.wait(), 60)
        yield "met"

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice = await gateways.serve("alice")
        sessions = [await alice.session() for _ in range(3)]
        answers = await asyncio.gather(*(alice.answer(session, "go") for session in sessions))
        assert answers == ["met"] * 3


async def _nothing(_: ToolContext, __: Any) -> ToolOutput:
    return ToolOutput({"ran": True}, summary="ran")


RISKY = Tool("risky", "Does something risky.", Arguments, Safety.PRIVILEGED, 5.0, _nothing)


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_travels_to_the_user_and_back(approved: bool) -> None:
    replies = [tool_call("risky"), "done"]

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield replies.pop(0)

    async with open_gateways(
        with_model=FunctionModel(stream_function=model), tools=[RISKY], approval="ask"
    ) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        seen = []
        async for event in run_turn(alice.stub, pb.StartTurnRequest(session_id="s", text="go")):
            seen.append(event.WhichOneof("event"))
            if event.WhichOneof("event") == "approval":
                asked = event.approval
                assert (asked.tool, asked.arguments_json) == ("risky", "{}")
                answer = pb.DecideRequest(approval_id=asked.approval_id, approved=approved)
                assert (await alice.stub.Decide(answer)).accepted
                assert not (await alice.stub.Decide(answer)).accepted
            if event.WhichOneof("event") == "tool_finished":
                assert event.tool_finished.ok is approved
        assert not (await alice.stub.Decide(answer)).accepted
        assert seen == [
            *("started", "tool_started", "approval", "decided", "tool_finished"),
            *("text", "completed"),
        ]
        unasked = await alice.stub.CallTool(pb.CallToolRequest(name="risky"))
        assert unasked.is_error


async def test_two_clients_decide_at_once_and_a_wait_takes_no_time_of_the_turn() -> None:
    replies = [tool_call("risky"), "done"]

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield replies.pop(0)

    async with open_gateways(
        with_model=FunctionModel(stream_function=model),
        tools=[RISKY],
        approval="ask",
        turn_timeout_s=2,
    ) as gateways:
        alice, bob = await gateways.serve("alice"), await gateways.serve("bob")
        await alice.session("s")
        request = pb.StartTurnRequest(session_id="s", text="go", turn_id="t1", channel="web")
        await alice.stub.StartTurn(request)
        await asyncio.sleep(2.2)
        (waiting,) = (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
        assert waiting.state == "waiting"
        (asked,) = (await alice.stub.ListApprovals(pb.ListApprovalsRequest())).approvals
        assert (asked.turn_id, asked.session_id, asked.tool) == ("t1", "s", "risky")
        assert (asked.channel, asked.requested_at < asked.expires_at) == ("web", True)
        assert not (await bob.stub.ListApprovals(pb.ListApprovalsRequest())).approvals
        decision = pb.DecideRequest(approval_id=asked.approval_id, approved=True, channel="cli")
        assert not (await bob.stub.Decide(decision)).accepted
        both = await asyncio.gather(*(alice.stub.Decide(decision) for _ in range(2)))
        assert sorted(reply.accepted for reply in both) == [False, True]
        events = await _followed(alice, "t1")
        (decided,) = [event.decided for event in events if event.HasField("decided")]
        assert (decided.by, decided.channel, decided.approved) == ("person", "cli", True)
        assert events[-1].completed.text == "done"


async def test_secrets_in_arguments_reach_no_event() -> None:
    replies = [tool_call("file_read", path="/shared/s3cret-t0ken"), "done"]

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield replies.pop(0)

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice = await gateways.serve("alice")
        events = await alice.say(await alice.session(), "go")
        assert "s3cret" not in "".join(map(str, events))
