"""A client that stops reading, as one that Ctrl-Z has stopped, holds no turn beyond its time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.v1 import gateway_pb2 as pb

from tests.support.gateway.gateways import open_gateways, run_turn


async def test_a_turn_ends_in_time_though_nobody_reads_what_it_says() -> None:
    said = 0

    async def babble(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        nonlocal said
        while True:
            yield " ".join(f"word{said}.{n}" for n in range(400 if said < 100 else 1))
            said += 1
            await asyncio.sleep(0.001)

    model = FunctionModel(stream_function=babble)
    async with open_gateways(with_model=model, turn_timeout_s=3) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        paused = run_turn(alice.stub, pb.StartTurnRequest(session_id="s", text="hi", turn_id="t1"))
        reading = aiter(paused)
        assert (await anext(reading)).WhichOneof("event") == "started"
        async with asyncio.timeout(60):
            while (await state(alice, "t1")) in ("running", "waiting"):
                await asyncio.sleep(0.05)
        assert await state(alice, "t1") == "failed"
        assert said > 100, "flow control has begun: more was said than the client's window holds"
        async with asyncio.timeout(60):
            other = [
                event async for event in alice.stub.FollowTurn(pb.FollowTurnRequest(turn_id="t1"))
            ]
        assert other[-1].failed.code == "timeout"
        await alice.stub.StartTurn(pb.StartTurnRequest(session_id="s", text="hi", turn_id="t2"))
        assert (await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="t2"))).cancelled
        events = [event async for event in reading]
        assert events[-1].failed.code == "timeout"


async def state(client: Any, turn_id: str) -> str:
    turns = (await client.stub.ListTurns(pb.ListTurnsRequest(session_id="s"))).turns
    return next(str(turn.state) for turn in turns if turn.turn_id == turn_id)
