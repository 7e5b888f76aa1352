"""Every operation on memory is a step with its outcome, and is logged without what it says."""

import logging
from collections import Counter
from pathlib import Path

import pytest
from wire.tools import FAMILIES
from wire.v1 import gateway_pb2 as pb

from guest.watch import Spans
from tests.support.memory.store import FakeEmbedder, away
from tests.support.tools.memory_tools import ALICE, RIGHT, all_tools

OF_AN_UNKNOWN_NOTE = ("memory_update", "memory_delete", "forget")


@pytest.fixture
def spans() -> Spans:
    made = Spans()
    made.wanted = True
    return made


def taken(spans: Spans, name: str) -> list[pb.Span]:
    found = []
    while (batch := spans.take()) is not None:
        found += [span for span in batch.spans if span.name == name]
    return found


async def test_each_operation_is_a_step_with_its_outcome(spans: Spans, tmp_path: Path) -> None:
    families = ("memory", "typed_memory", "working_memory")
    assert set(RIGHT) == {name for family in families for name in FAMILIES[family]}
    async with all_tools(tmp_path / "memory.db") as tools:
        for name, arguments in RIGHT.items():
            with spans.step("turn"):
                await tools.pipeline.call(ALICE, name, arguments)
                await tools.refusal(name, nonsense=1)
    found = taken(spans, "tool")
    assert Counter(span.words["tool"] for span in found) == Counter(dict.fromkeys(RIGHT, 2))
    refused = Counter(s.words["tool"] for s in found if s.words["outcome"] == "refused")
    assert refused == Counter({name: 2 if name in OF_AN_UNKNOWN_NOTE else 1 for name in RIGHT})
    assert all(span.words["session"] == "session-1" for span in found)
    assert all(span.words["tool"] in FAMILIES[span.words["kind"]] for span in found)
    (saved,) = [s for s in found if s.words["tool"] == "memory_save" and s.words["outcome"] == "ok"]
    assert saved.words["note_id"].startswith("note-")


async def test_failures_of_the_embedder_have_their_code(spans: Spans, tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    async with all_tools(tmp_path / "memory.db", embedder=embedder) as tools:
        with spans.step("turn"):
            await tools.ok("memory_save", content="Tea")
        assert not [span for span in taken(spans, "memory") if span.failed]
        embedder.error = away()
        with spans.step("turn"):
            await tools.ok("memory_search", query="tea")
    (failed,) = [span for span in taken(spans, "memory") if span.failed]
    assert (failed.words["operation"], failed.words["outcome"]) == ("embed", "unavailable")


async def test_each_operation_is_logged_with_who_and_how_and_never_what(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    async with all_tools(tmp_path / "memory.db") as tools:
        for name, arguments in RIGHT.items():
            with_words = {
                field: "walrus" if field in ("content", "query") else value
                for field, value in arguments.items()
            }
            await tools.pipeline.call(ALICE, name, with_words)
        await tools.ok(
            "forget", memory_id=(await tools.ok("recall"))["memories"][0]["id"], reason="walrus"
        )
    calls = [record for record in caplog.records if record.message == "tool call"]
    found = {record.__dict__["tool"]: record for record in calls}
    assert set(found) == set(RIGHT)
    for record in calls:
        said = record.__dict__
        assert (said["session"], said["turn"]) == ("session-1", "turn-1")
        assert said["duration_ms"] >= 0
        assert said["outcome"] in ("ok", "refused")
    searches = ("memory_search", "memory_context", "search_memory", "recall")
    for name in searches:
        assert found[name].levelno == logging.DEBUG
        assert found[name].__dict__["count"] > 0
    assert found["remember"].__dict__["note_id"].startswith("note-")
    assert found["remember"].levelno == found["write_memory"].levelno == logging.INFO
    assert not [record for record in caplog.records if "walrus" in str(record.__dict__)]
