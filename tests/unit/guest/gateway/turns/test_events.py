"""A turn's events: one sequence for every reader, in bounded memory, and nobody holds it up."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.v1 import gateway_pb2

from guest.gateway.turns.events import EventLog


def delta(text: str) -> gateway_pb2.TextDelta:
    return gateway_pb2.TextDelta(text=text)


def notice(text: str) -> gateway_pb2.Notice:
    return gateway_pb2.Notice(text=text)


async def read(log: EventLog, after: int = 0) -> list[gateway_pb2.TurnEvent]:
    return [event async for event in log.follow(after)]


async def test_events_arrive_numbered_and_the_outcome_is_last() -> None:
    log = EventLog("t1")
    reading = asyncio.create_task(read(log))
    for text in "abc":
        await asyncio.sleep(0)
        await log.put(delta(text))
    await asyncio.sleep(0)
    log.finish(gateway_pb2.TurnCompleted(text="abc"))
    events = await asyncio.wait_for(reading, 60)
    assert [event.index for event in events] == [0, 1, 2, 3]
    assert [event.WhichOneof("event") for event in events] == ["text"] * 3 + ["completed"]
    assert {event.turn_id for event in events} == {"t1"}


async def test_who_comes_late_gets_text_in_one_piece_under_its_last_index() -> None:
    log = EventLog("t1")
    for text in "abc":
        log.add(delta(text))
    log.finish(gateway_pb2.TurnCompleted())
    events = await read(log, 1)
    assert [(event.index, event.text.text) for event in events] == [(2, "bc"), (3, "")]


_EVENTS = st.lists(
    st.one_of(st.text("abc", min_size=1, max_size=3).map(delta), st.just("!").map(notice)),
    max_size=30,
)


@given(_EVENTS, st.lists(st.tuples(st.integers(0, 35), st.integers(0, 30)), max_size=5))
def test_readers_from_any_event_on_see_one_sequence(
    happened: list[Any], readers: list[tuple[int, int]]
) -> None:
    """Each reader comes when so many events have happened, and asks from some index on."""

    async def check() -> None:
        log = EventLog("t1")
        reading = []

        async def read_slowly(after: int) -> list[gateway_pb2.TurnEvent]:
            events = []
            async for event in log.follow(after):
                events.append(event)
                for _ in range(after % 3):
                    await asyncio.sleep(0)
            return events

        for number in range(len(happened) + 1):
            for after, comes in readers:
                if min(comes, len(happened)) == number:
                    reading.append((min(after, number), asyncio.create_task(read_slowly(after))))
            await asyncio.sleep(0)
            if number < len(happened):
                log.add(happened[number])
        log.finish(gateway_pb2.TurnCompleted())
        for first, task in reading:
            events = await asyncio.wait_for(task, 60)
            assert events[-1].HasField("completed")
            assert events[-1].index == len(happened)
            index, seen = first, []
            for event in events[:-1]:
                joined = happened[index : event.index + 1]
                assert joined, "an index came twice"
                part = event.text.text if event.HasField("text") else event.notice.text
                assert part == "".join(each.text for each in joined)
                assert len({type(each) for each in joined}) == 1
                index = event.index + 1
                seen += joined
            assert seen == happened[first:]

    asyncio.run(check())


async def test_nobody_who_reads_slowly_or_never_holds_the_turn_up_or_fills_the_memory() -> None:
    log = EventLog("t1", kept_bytes=100_000)
    slow = log.follow()
    log.add(gateway_pb2.TurnStarted(session_id="s"))
    assert (await anext(slow)).HasField("started")
    for number in range(10_000):
        await asyncio.wait_for(log.put(delta(f"word {number} ")), 1)
    assert log.bytes <= 100_000
    log.finish(gateway_pb2.TurnCompleted(text="all of it"))
    events = [event async for event in slow]
    assert "not kept" in events[0].notice.text
    assert events[-1].completed.text == "all of it"
    indices = [event.index for event in events]
    assert indices == sorted(set(indices))
    assert "".join(event.text.text for event in events).endswith("word 9999 ")


async def test_nothing_follows_the_outcome() -> None:
    log = EventLog("t1")
    log.finish(gateway_pb2.TurnCompleted())
    log.add(delta("too late"))
    assert len(await read(log)) == 1


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (gateway_pb2.TurnStarted(session_id="s"), "started"),
        (gateway_pb2.ToolCallStarted(tool="t"), "tool_started"),
        (gateway_pb2.ToolCallFinished(tool="t"), "tool_finished"),
        (gateway_pb2.ApprovalRequested(tool="t"), "approval"),
        (gateway_pb2.ApprovalDecided(by="person"), "decided"),
        (gateway_pb2.ClientCall(tool="t"), "client_call"),
    ],
)
async def test_every_kind_of_progress_has_its_field(event: Any, field: str) -> None:
    log = EventLog("t1")
    log.add(event)
    log.finish(gateway_pb2.TurnCompleted())
    first = (await read(log))[0]
    assert first.WhichOneof("event") == field
    assert getattr(first, field) == event
