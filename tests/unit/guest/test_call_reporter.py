"""Calls wait until the runner has recorded them, if they may change something; others do not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2 as pb

from guest import watch
from guest.tools.memory.notes import memory_tools
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.watch import CallReporter
from tests.support.memory.store import opened
from tests.support.tools.memory_tools import ALICE

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def witness(monkeypatch: pytest.MonkeyPatch) -> CallReporter:
    monkeypatch.setattr(watch, "WAIT_S", 0.2)
    return CallReporter(required=True)


@asynccontextmanager
async def runner(witness: CallReporter, **answer: Any) -> AsyncIterator[list[pb.CallReport]]:
    """A runner that records what it hears, and answers calls that wait."""
    heard: list[pb.CallReport] = []
    replies: asyncio.Queue[pb.CallReportReply] = asyncio.Queue()

    async def said() -> AsyncIterator[pb.CallReportReply]:
        while True:
            yield await replies.get()

    async def hear() -> None:
        async with aclosing(witness.stream(said())) as events:  # type: ignore[type-var]
            async for event in events:
                heard.append(event)
                if event.begun.must_be_recorded:
                    await replies.put(pb.CallReportReply(call_id=event.begun.call_id, **answer))

    hearing = asyncio.create_task(hear())
    try:
        yield heard
        await asyncio.sleep(0.01)
    finally:
        hearing.cancel()
        await asyncio.wait({hearing})


@asynccontextmanager
async def tools(witness: CallReporter, path: Path) -> AsyncIterator[ToolPipeline]:
    async with opened(path / "memory.db") as memory:
        registry = Registry(memory_tools(memory))
        yield ToolPipeline(registry, scrubber=Scrubber([SECRET]), witness=witness)


async def test_a_call_is_told_before_it_runs_and_when_it_has_ended(
    witness: CallReporter, tmp_path: Path
) -> None:
    async with tools(witness, tmp_path) as pipeline, runner(witness) as heard:
        await pipeline.call(ALICE, "memory_save", {"content": f"walrus {SECRET}"})
        await pipeline.call(ALICE, "memory_search", {"query": "walrus"})
        await pipeline.call(ALICE, "memory_delete", {"note_id": "walrus is no id"})
        await pipeline.call(ALICE, "walrus", {})
    begun, ended = heard[0].begun, heard[1].ended
    assert (begun.tool, begun.safety, begun.channel) == ("memory_save", "side_effecting", "chat")
    assert (begun.session_id, begun.turn_id, begun.actor) == ("session-1", "turn-1", "agent")
    assert (ended.call_id, ended.outcome) == (begun.call_id, "ok")
    assert ended.note_ids[0].startswith("note-")
    outcomes = [event.ended.outcome for event in heard if event.HasField("ended")]
    assert outcomes == ["ok", "ok", "refused", "refused"]
    assert heard[-2].begun.tool == "unknown"
    assert "walrus" not in str(heard)
    assert SECRET not in str(heard)


async def test_without_the_runner_nothing_is_changed_and_reading_goes_on(
    witness: CallReporter, tmp_path: Path
) -> None:
    async with tools(witness, tmp_path) as pipeline:
        with pytest.raises(WireError) as raised:
            await pipeline.call(ALICE, "memory_save", {"content": "Tea"})
        assert raised.value.code is Code.UNAVAILABLE
        assert "cannot be recorded" in raised.value.brief
        found = await pipeline.call(ALICE, "memory_search", {"query": "tea"})
        assert "Tea" not in found.text
        async with runner(witness) as heard:
            pass
        tools_told = [event.begun.tool for event in heard if event.HasField("begun")]
        assert tools_told == ["memory_search"], "a refused call is not told later"


async def test_what_the_runner_refuses_is_not_run(witness: CallReporter, tmp_path: Path) -> None:
    async with tools(witness, tmp_path) as pipeline:
        answer = {"refused": "the disk is full", "resolution": "make room"}
        async with runner(witness, **answer) as heard:
            with pytest.raises(WireError) as raised:
                await pipeline.call(ALICE, "memory_save", {"content": "Tea"})
            assert "the disk is full" in raised.value.brief
            assert raised.value.resolution == "make room"
            assert (await pipeline.call(ALICE, "memory_search", {"query": "tea"})).text
        assert [event.ended.outcome for event in heard if event.HasField("ended")] == ["ok"]


async def test_calls_that_nobody_hears_of_are_counted(
    witness: CallReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "CALLS_MAX", 4)
    for _ in range(10):
        witness.recording(tool="file_read").end("ok", 1)
    async with runner(witness) as heard:
        await asyncio.sleep(0.01)
    assert sum(event.lost_calls for event in heard) > 0


async def test_a_later_stream_takes_the_place_of_an_earlier_one(witness: CallReporter) -> None:
    async with runner(witness) as first, runner(witness) as second:
        await asyncio.sleep(0.01)
        witness.recording(tool="file_read").end("ok", 1)
        await asyncio.sleep(0.05)
    assert not first
    assert len(second) == 2


async def test_a_guest_that_nobody_watches_keeps_nothing() -> None:
    quiet = CallReporter(required=False)
    record = quiet.recording(tool="memory_save", must_be_recorded=True)
    await record.begin("about")
    record.end("ok", 1)
    async with runner(quiet) as heard:
        await asyncio.sleep(0.01)
    assert not heard
