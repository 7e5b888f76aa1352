"""Every operation on memory counts: calls, failures, duration, and failures of the embedder."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from wire.tools import FAMILIES

from tests.support.memory.store import FakeEmbedder, away
from tests.support.tools.memory_tools import ALICE, RIGHT, all_tools

OF_AN_UNKNOWN_NOTE = ("memory_update", "memory_delete", "forget")


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    yield reader
    provider.shutdown()


def points(reader: InMemoryMetricReader, metric: str) -> list[tuple[dict[str, Any], Any]]:
    """The attributes and values of one metric."""
    data = reader.get_metrics_data()
    return [
        (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for found in scope.metrics
        if found.name == metric
        for point in found.data.data_points
    ]


async def test_each_operation_counts_calls_failures_and_duration(
    reader: InMemoryMetricReader, tmp_path: Path
) -> None:
    families = ("memory", "typed_memory", "working_memory")
    assert set(RIGHT) == {name for family in families for name in FAMILIES[family]}
    async with all_tools(tmp_path / "memory.db") as tools:
        for name, arguments in RIGHT.items():
            await tools.pipeline.call(ALICE, name, arguments)
            await tools.refusal(name, nonsense=1)
    expected = dict.fromkeys(RIGHT, 2)
    assert {each["tool"]: count for each, count in points(reader, "oxydra.tool.calls")} == expected
    timed = {each["tool"]: count for each, count in points(reader, "oxydra.tool.duration")}
    assert timed == expected
    failed = points(reader, "oxydra.tool.failures")
    assert {each["outcome"] for each, _ in failed} == {"refused"}
    assert {each["tool"]: count for each, count in failed} == {
        name: 2 if name in OF_AN_UNKNOWN_NOTE else 1 for name in RIGHT
    }


async def test_failures_of_the_embedder_are_counted_by_their_code(
    reader: InMemoryMetricReader, tmp_path: Path
) -> None:
    embedder = FakeEmbedder()
    async with all_tools(tmp_path / "memory.db", embedder=embedder) as tools:
        await tools.ok("memory_save", content="Tea")
        assert points(reader, "oxydra.embedding.failures") == []
        embedder.error = away()
        await tools.ok("memory_search", query="tea")
    ((attributes, count),) = points(reader, "oxydra.embedding.failures")
    assert (attributes, count) == ({"code": "unavailable"}, 1)


async def test_a_memory_without_an_embedder_has_no_failures_of_one(
    reader: InMemoryMetricReader, tmp_path: Path
) -> None:
    async with all_tools(tmp_path / "memory.db", embedder=None) as tools:
        await tools.ok("memory_search", query="tea")
    assert points(reader, "oxydra.embedding.failures") == []


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
    assert found["remember"].levelno == found["write_memory"].levelno == logging.INFO
    assert not [record for record in caplog.records if "walrus" in str(record.__dict__)]
