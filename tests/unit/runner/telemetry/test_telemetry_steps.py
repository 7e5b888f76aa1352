"""What a guest tells of its steps is checked; what is counted is what the dashboard shows."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from wire.errors import WireError
from wire.settings import TelemetrySettings
from wire.v1 import gateway_pb2 as pb

from runner.access import scopes
from runner.access.callers import Caller
from runner.config.models import Config
from runner.serve.metrics import HttpMetrics, joined
from runner.telemetry import Telemetry, checked

ROOT = Path(__file__).parents[4]
DASHBOARD = ROOT / "deploy" / "grafana" / "oxydra.json"
PROMETHEUS = TelemetrySettings(prometheus="127.0.0.1:9464")


def span(name: str = "tool", **changed: Any) -> pb.Span:
    fields: dict[str, Any] = {
        "trace_id": b"t" * 16,
        "span_id": b"s" * 8,
        "start_unix_nano": time.time_ns() - 10**9,
        "end_unix_nano": time.time_ns(),
        "name": name,
    }
    return pb.Span(**(fields | changed))


def one_of_each() -> pb.SpanBatch:
    model = {"model": "openai:gpt-5-mini"}
    return pb.SpanBatch(
        spans=[
            span("turn", words={"outcome": "ok"}),
            span("model", words=model, counts={"input_tokens": 7, "output_tokens": 3}),
            span("tool", words={"tool": "memory_save", "outcome": "ok"}),
            span("memory", words={"operation": "save"}),
            span("shell"),
        ],
        lost=1,
    )


def counting(user_id: str = "alice") -> Telemetry:
    made = Telemetry(PROMETHEUS, user_id, "process", environ={})
    made.restarts = lambda: {"agent": 2}
    return made


def page_of(metrics: HttpMetrics) -> str:
    """What Prometheus reads after one request, where no host runs."""

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("the walrus", 404)(scope, receive, send)

    TestClient(metrics.counting(answers)).get("/v1/the/walrus?walrus=1")
    nowhere = Config(workspace_root=Path("/nonexistent"))
    prometheus = Caller("alice", frozenset({scopes.Scope.METRICS}), "access-prometheus")
    asked = metrics.page(nowhere, lambda _: prometheus)
    page = TestClient(asked, base_url="http://127.0.0.1").get("/metrics").text
    assert 'oxydra_http_request_duration_seconds_count{face="v1",status="404"} 1.0' in page
    assert "walrus" not in page
    return page


def names_in(page: str) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line[:1] != "#"}


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "the walrus"},
        {"trace_id": b"short"},
        {"trace_id": bytes(16)},
        {"span_id": bytes(8)},
        {"parent_span_id": b"x"},
        {"start_unix_nano": 0},
        {"end_unix_nano": 1},
        {"end_unix_nano": 2**62},
    ],
    ids=str,
)
def test_what_is_no_step_is_dropped(odd: dict[str, Any]) -> None:
    assert checked(span()) is not None
    assert checked(span(**odd)) is None


def test_attributes_are_those_that_are_known_and_hold_no_sentence() -> None:
    found = checked(
        span(
            words={
                "tool": "the walrus keeps its pearls",
                "outcome": "ok; the walrus",
                "session": "session-1",
                "note": "walrus",
                "operation": "walrus",
                "kind": "walrus",
                "note_id": "the walrus",
                "model": "openai:the walrus",
                "channel": "x" * 65,
            },
            counts={"input_tokens": 5, "pin": 1234, "output_tokens": 2**60},
        )
    )
    assert found is not None
    assert found.words == {"session": "session-1"}
    assert found.counts == {"input_tokens": 5}
    told = {"operation": "rerank", "kind": "typed_memory", "note_id": "note-7", "tool": "a_getX"}
    found = checked(span("memory", words=told))
    assert found is not None
    assert found.words == told


def test_every_metric_of_the_dashboard_exists_and_the_other_way_round() -> None:
    telemetry = counting()
    telemetry.take(one_of_each())
    telemetry.left("shell", "refused")
    telemetry.moved("shell", 1, 1)
    known = names_in(telemetry.exposition()) - {"target_info"}
    known |= names_in(page_of(HttpMetrics()))
    queries = [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
    ]
    shown = {name for query in queries for name in re.findall(r"oxydra_[a-z_]+(?=\{)", query)}
    assert shown <= known
    families = {re.sub(r"_(bucket|count|sum|total|created)$", "", name) for name in known}
    assert families == {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in shown}


def test_pages_of_several_hosts_are_one_page() -> None:
    pages = []
    for user in ("alice", "bob"):
        telemetry = counting(user)
        telemetry.take(one_of_each())
        pages.append(telemetry.exposition())
    page = joined([*pages, ""])
    assert page.count("# TYPE oxydra_turn_duration_seconds histogram") == 1
    count = 'oxydra_turn_duration_seconds_count{outcome="ok",oxydra_user="%s"} 1.0'
    for user in ("alice", "bob"):
        assert count % user in page


def test_a_guest_that_makes_up_tools_does_not_fill_the_memory() -> None:
    telemetry = counting()
    for number in range(50):
        telemetry.take(
            pb.SpanBatch(spans=[span(words={"tool": f"t-{number}-{i}"}) for i in range(100)])
        )
    assert telemetry.exposition().count("oxydra_tool_duration_seconds_count") <= 2_001


async def test_a_collector_that_is_not_there_keeps_nobody_waiting() -> None:
    settings = TelemetrySettings(otlp_endpoint="http://127.0.0.1:9")
    telemetry = Telemetry(settings, "alice", "process", environ={})
    began = time.monotonic()
    for _ in range(100):
        telemetry.take(one_of_each())
    assert time.monotonic() - began < 20
    await telemetry.close()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("given", [{}, {"COLLECTOR": "a secret without a name"}])
def test_headers_that_cannot_be_read_are_refused_without_showing_them(given: Any) -> None:
    settings = TelemetrySettings(otlp_endpoint="http://127.0.0.1:9", otlp_headers_env="COLLECTOR")
    with pytest.raises(WireError) as raised:
        Telemetry(settings, "alice", "process", environ=given)
    assert "COLLECTOR" in raised.value.details
    assert "a secret" not in str(raised.value)


def test_nothing_of_it_is_imported_while_it_is_off() -> None:
    program = (
        "import sys, runner.host.host, runner.cli.app, runner.audit.watcher\n"
        "found = {name.split('.')[0] for name in sys.modules}\n"
        "assert not found & {'opentelemetry', 'prometheus_client'}, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
