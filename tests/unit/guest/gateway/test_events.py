"""A turn's events: in order, numbered, bounded, ended by the outcome even when nobody reads."""

import asyncio

import pytest
from wire.v1 import gateway_pb2

from guest.gateway.turns import CAPACITY, EventStream


def delta(text: str) -> gateway_pb2.TextDelta:
    return gateway_pb2.TextDelta(text=text)


async def read(stream: EventStream) -> list[gateway_pb2.TurnEvent]:
    return [event async for event in stream.events()]


async def test_events_arrive_numbered_and_the_outcome_is_last() -> None:
    stream = EventStream("t1")
    reading = asyncio.create_task(read(stream))
    for text in "abc":
        await stream.put(delta(text))
        await asyncio.sleep(0)
    stream.finish(gateway_pb2.TurnCompleted(text="abc"))
    events = await asyncio.wait_for(reading, 60)
    assert [event.index for event in events] == [0, 1, 2, 3]
    assert [event.WhichOneof("event") for event in events] == ["text"] * 3 + ["completed"]
    assert {event.turn_id for event in events} == {"t1"}


async def test_a_slow_reader_makes_the_writer_wait() -> None:
    stream = EventStream("t1")
    for _ in range(CAPACITY):
        await stream.put(delta("x"))
    waiting = asyncio.create_task(stream.put(delta("late")))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    events = stream.events()
    await anext(events)
    await asyncio.wait_for(waiting, 60)


async def test_a_turn_ends_even_when_nobody_reads() -> None:
    stream = EventStream("t1")
    for _ in range(CAPACITY):
        await stream.put(delta("x"))
    stream.finish(gateway_pb2.TurnFailed(code="timeout"))
    events = await read(stream)
    assert len(events) == CAPACITY + 1
    assert events[-1].failed.code == "timeout"


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (gateway_pb2.TurnStarted(session_id="s"), "started"),
        (gateway_pb2.ToolCallStarted(tool="t"), "tool_started"),
        (gateway_pb2.ToolCallFinished(tool="t"), "tool_finished"),
        (gateway_pb2.ApprovalRequested(tool="t"), "approval"),
    ],
)
async def test_every_kind_of_progress_has_its_field(event: object, field: str) -> None:
    stream = EventStream("t1")
    await stream.put(event)  # type: ignore[arg-type]
    stream.finish(gateway_pb2.TurnCompleted())
    first = (await read(stream))[0]
    assert first.WhichOneof("event") == field
    assert getattr(first, field) == event
