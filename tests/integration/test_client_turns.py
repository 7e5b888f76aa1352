"""What a client's program adds to turns, over the wire: its tools, and requests without a trace."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from tests.support.gateway.gateways import Client, open_gateways, refusal, run_turn


def tool(name: str, schema: str = '{"type": "object"}') -> pb.ToolDescription:
    return pb.ToolDescription(name=name, description="It helps.", arguments_schema_json=schema)


WEATHER = tool("weather")


@asynccontextmanager
async def agent(*replies: Any) -> AsyncIterator[Client]:
    """Alice's agent, whose model gives these replies."""
    waiting = list(replies)

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield waiting.pop(0)

    made = FunctionModel(stream_function=model)
    async with open_gateways(with_model=made) as gateways:
        yield await gateways.serve("alice")


def call(**arguments: Any) -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall("weather", json.dumps(arguments), tool_call_id="c1")}


async def until(stub: Any, turn_id: str, kind: str, after: int = 0) -> pb.TurnEvent:
    following = stub.FollowTurn(pb.FollowTurnRequest(turn_id=turn_id, after=after))
    async for event in following:
        if event.WhichOneof("event") == kind:
            return event  # type: ignore[no-any-return]
    raise AssertionError(f"no {kind}")


async def test_a_turn_waits_for_the_clients_tool_and_goes_on_with_its_answer() -> None:
    async with agent(call(city="Ulm"), "It is sunny.") as alice:
        session_id = await alice.session()
        turn = await alice.stub.StartTurn(
            pb.StartTurnRequest(session_id=session_id, text="how is it?", client_tools=[WEATHER])
        )
        asked = await until(alice.stub, turn.turn_id, "client_call")
        assert (asked.client_call.tool, asked.client_call.arguments_json) == (
            "weather",
            '{"city": "Ulm"}',
        )
        (running,) = (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
        assert running.state == "waiting"
        answer = pb.AnswerCallRequest(turn_id="another", call_id="c1", output="rain")
        assert not (await alice.stub.AnswerCall(answer)).accepted
        answer = pb.AnswerCallRequest(turn_id=turn.turn_id, call_id="c1", output="sunny")
        assert (await alice.stub.AnswerCall(answer)).accepted
        assert not (await alice.stub.AnswerCall(answer)).accepted
        done = await until(alice.stub, turn.turn_id, "completed", asked.index + 1)
        assert done.completed.text == "It is sunny."


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            tool("memory_save"),
            "is a tool of the agent itself",
        ),
        (
            tool("recall"),
            "is a tool of the agent itself",
        ),
        (tool("a b"), "does not match"),
        (tool("w", "[]"), "not a JSON schema"),
        (tool("w", "{" * 40_000), "over the maximum"),
    ],
)
async def test_bad_tools_of_a_client_are_refused(given: pb.ToolDescription, why: str) -> None:
    async with agent() as alice:
        request = pb.StartTurnRequest(
            session_id=await alice.session(), text="hi", client_tools=[given]
        )
        refused = await refusal(alice.stub.StartTurn(request))
        assert refused.code == Code.INVALID_ARGUMENT
        assert why in refused.brief


async def test_a_request_without_a_trace_leaves_no_session_and_no_turn() -> None:
    async with agent("A title") as alice:
        request = pb.StartTurnRequest(text="make a title", untraced=True, instructions="Be brief.")
        events = [event async for event in run_turn(alice.stub, request)]
        assert events[-1].completed.text == "A title"
        assert not (await alice.stub.ListSessions(pb.ListSessionsRequest())).sessions
        assert not (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
        used = await alice.stub.GetUsage(pb.GetUsageRequest())
        assert used.total.requests == 1
        request.session_id = "s"
        refused = await refusal(run_turn(alice.stub, request))
        assert "session_id" in refused.brief
