"""Steps are told to whoever wants them, in their trace, and never fill the memory."""

import asyncio

import pytest
from wire import trace
from wire.v1 import gateway_pb2 as pb

from guest import watch
from guest.watch import Spans


@pytest.fixture
def spans() -> Spans:
    made = Spans()
    made.wanted = True
    return made


def taken(spans: Spans) -> dict[str, pb.Span]:
    batch = spans.take()
    return {span.name: span for span in batch.spans} if batch is not None else {}


async def test_steps_within_steps_also_in_other_tasks_are_one_trace(spans: Spans) -> None:
    async def inner() -> None:
        with watch.step("shell"):
            await asyncio.sleep(0)

    trace.here.set(caller := trace.SpanContext.below(None))
    with spans.step("turn"), watch.step("tool", tool="shell_exec") as tool:
        tool.counts["input_tokens"] = -1
        await asyncio.create_task(inner())
    assert trace.here.get() == caller
    found = taken(spans)
    assert {span.trace_id for span in found.values()} == {caller.trace_id}
    assert found["turn"].parent_span_id == caller.span_id
    assert found["tool"].parent_span_id == found["turn"].span_id
    assert found["shell"].parent_span_id == found["tool"].span_id
    assert found["tool"].counts["input_tokens"] == 0
    trace.here.set(None)


def test_a_failure_and_a_cancellation_are_told(spans: Spans) -> None:
    with pytest.raises(ZeroDivisionError), spans.step("tool"):
        raise ZeroDivisionError
    with pytest.raises(asyncio.CancelledError), spans.step("turn"):
        raise asyncio.CancelledError
    found = taken(spans)
    assert found["tool"].failed
    assert not found["turn"].failed
    assert found["turn"].words["outcome"] == "cancelled"


def test_a_flood_of_steps_is_bounded_and_counted(spans: Spans) -> None:
    for _ in range(watch.SPANS_MAX + 1000):
        with spans.step("shell"):
            pass
    batches = []
    while (batch := spans.take()) is not None:
        batches.append(batch)
    assert sum(len(batch.spans) for batch in batches) == watch.SPANS_MAX
    assert sum(batch.lost for batch in batches) == 1000
    assert max(len(batch.spans) for batch in batches) <= watch.BATCH


def test_while_nobody_wants_them_nothing_is_kept() -> None:
    quiet = Spans()
    with quiet.step("turn"), watch.step("tool"):
        assert trace.here.get() is None
    assert quiet.take() is None


@pytest.mark.parametrize(
    "odd", ["", "00-zz", f"00-{'0' * 32}-{'1' * 16}-01", f"01-{'1' * 32}-{'1' * 16}-01"]
)
def test_an_odd_traceparent_is_none(odd: str) -> None:
    assert trace.SpanContext.of(odd) is None


def test_a_place_is_said_and_heard() -> None:
    place = trace.SpanContext.below(None)
    assert trace.SpanContext.of(str(place)) == place
