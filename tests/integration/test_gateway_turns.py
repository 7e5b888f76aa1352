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
from tests.support.gateway.gateways import open_gateways, refusal


def tool_call(name: str, **arguments: Any) -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall(name, json.dumps(arguments), tool_call_id="c0")}


async def _slow_words(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
    yield "so far. And"
    await asyncio.sleep(60)


async def test_a_busy_session_refuses_and_a_cancelled_turn_is_recorded() -> None:
    async with open_gateways(with_model=FunctionModel(stream_function=_slow_words)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        request = pb.RunTurnRequest(session_id="s", text="hi", turn_id="t1")
        stream = aiter(alice.stub.RunTurn(request))
        assert (await anext(stream)).WhichOneof("event") == "started"
        assert (await anext(stream)).text.text == "so far. And"
        busy = await refusal(alice.stub.RunTurn(pb.RunTurnRequest(session_id="s", text="hi")))
        assert busy.code is Code.CONFLICT
        assert "t1" in busy.brief
        assert busy.resolution
        assert (await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="t1"))).cancelled
        assert (await anext(stream)).failed.code == "cancelled"
        again = pb.CancelTurnRequest(turn_id="t1")
        assert not (await alice.stub.CancelTurn(again)).cancelled
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [event.text for event in history.events] == ["hi", "so far. And"]
        used = pb.RunTurnRequest(session_id="s", text="hi", turn_id="t1")
        assert (await refusal(alice.stub.RunTurn(used))).code is Code.ALREADY_EXISTS


async def test_leaving_the_stream_cancels_the_turn() -> None:
    stopped = asyncio.Event()

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        if stopped.is_set():
            yield "welcome back"
            return
        try:
            yield "so far. And"
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        call = await alice.begin("s", "t1")
        call.cancel()
        await asyncio.wait_for(stopped.wait(), 60)
        assert await alice.answer("s", "I am back") == "welcome back"
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        texts = [event.text for event in history.events]
        assert texts == ["hi", "so far. And", "I am back", "welcome back"]


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
        async for event in alice.stub.RunTurn(pb.RunTurnRequest(session_id="s", text="go")):
            seen.append(event.WhichOneof("event"))
            if event.WhichOneof("event") == "approval":
                asked = event.approval
                assert (asked.tool, asked.arguments_json) == ("risky", "{}")
                answer = pb.AnswerApprovalRequest(approval_id=asked.approval_id, approved=approved)
                assert (await alice.stub.AnswerApproval(answer)).accepted
                assert not (await alice.stub.AnswerApproval(answer)).accepted
            if event.WhichOneof("event") == "tool_finished":
                assert event.tool_finished.ok is approved
        assert not (await alice.stub.AnswerApproval(answer)).accepted
        assert seen == ["started", "tool_started", "approval", "tool_finished", "text", "completed"]
        unasked = await alice.stub.CallTool(pb.CallToolRequest(name="risky"))
        assert unasked.is_error


async def test_secrets_in_arguments_reach_no_event() -> None:
    replies = [tool_call("file_read", path="/shared/s3cret-t0ken"), "done"]

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield replies.pop(0)

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice = await gateways.serve("alice")
        events = await alice.say(await alice.session(), "go")
        assert "s3cret" not in "".join(map(str, events))
