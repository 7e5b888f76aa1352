"""A turn of a real agent as a collector and Prometheus see it: whole, counted, and without a word
of what was said."""

import asyncio
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from wire import trace
from wire.settings import EmbedderSettings, ServeSettings, TelemetrySettings
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.access.scopes import Scope
from runner.access.tokens import Tokens
from runner.config.models import Config
from runner.host.control import connect_control
from runner.host.host import Host
from runner.serve.server import HttpServer
from tests.support.gateway.gateways import run_turn
from tests.support.gateway.http_front import looking
from tests.support.otlp import Collector, collector, words_of
from tests.support.ports import free_port

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
WORDS = "the walrus keeps its pearls under the third step"
HOUR = timedelta(hours=1)
HEADER = "Bearer of-the-collector-alone"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def collected() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=["process", pytest.param("container", marks=pytest.mark.docker)],
)
async def host(collected: Collector, request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    with tempfile.TemporaryDirectory(prefix="oxt", dir="/tmp") as root:
        config = Config(
            workspace_root=Path(root) / "w",
            runtime_dir=Path(root) / "r",
            tier=request.param,
            serve=ServeSettings(listen="127.0.0.1:0"),
            embedder=EmbedderSettings(backend="hashing"),
            telemetry=TelemetrySettings(
                otlp_endpoint=collected.url,
                otlp_headers_env="COLLECTOR",
                prometheus=f"127.0.0.1:{free_port()}",
            ),
        )
        environ = {**os.environ, "COLLECTOR": f"authorization={HEADER}"}
        async with Host(config, "alice", environ=environ) as made:
            yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def agent(host: Host) -> AsyncIterator[Any]:
    control = await connect_control(host.config, "alice")
    assert control is not None
    async with control, open_channel(await control.gateway()) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        deadline = time.monotonic() + 60
        while not collected_any(host):  # the guest is told a moment after the start
            await stub.CallTool(pb.CallToolRequest(name="file_list", arguments_json="{}"))
            assert time.monotonic() < deadline
            await asyncio.sleep(0.3)
        yield stub


def fetched(url: str, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(reply.read().decode())


def collected_any(host: Host) -> bool:
    return "oxydra_tool_duration" in host.metrics()


async def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.1)
    return found


async def turn(agent: Any, text: str) -> trace.SpanContext:
    """A turn below a step of the caller's, which is returned."""
    place = trace.SpanContext.below(None)
    session = await agent.CreateSession(pb.CreateSessionRequest(channel="chat"))
    trace.here.set(place)
    request = pb.StartTurnRequest(session_id=session.session_id, text=text, channel="chat")
    async for event in run_turn(agent, request):
        assert not event.HasField("failed")
    trace.here.set(None)
    return place


async def test_a_turn_is_one_trace_from_the_caller_to_the_shell(
    agent: Any, collected: Collector
) -> None:
    place = await turn(agent, "run echo hello")

    def of_the_turn() -> dict[str, Any]:
        spans = [span for span in collected.spans if span.trace_id == place.trace_id]
        return {span.name: span for span in spans}

    await until(lambda: {"turn", "model", "tool shell_exec", "shell"} <= of_the_turn().keys())
    spans = of_the_turn()
    assert spans["turn"].parent_span_id == place.span_id
    assert spans["model"].parent_span_id == spans["turn"].span_id
    assert spans["tool shell_exec"].parent_span_id == spans["turn"].span_id
    assert spans["shell"].parent_span_id == spans["tool shell_exec"].span_id
    assert words_of(spans["turn"])["outcome"] == "ok"
    assert words_of(spans["tool shell_exec"])["safety"] == "privileged"
    assert spans["turn"].start_time_unix_nano < spans["shell"].start_time_unix_nano
    assert spans["shell"].end_time_unix_nano < spans["turn"].end_time_unix_nano
    (resource,) = {
        (value.key, value.value.string_value)
        for request in collected.traces
        for each in request.resource_spans
        for value in each.resource.attributes
        if value.key == "oxydra.user"
    }
    assert resource == ("oxydra.user", "alice")


async def test_memory_is_in_the_trace_and_nothing_that_was_said_is_anywhere(
    agent: Any, host: Host, collected: Collector
) -> None:
    place = await turn(agent, f"remember {WORDS} {SECRET}")
    await turn(agent, f"what do you know about {WORDS}")
    await turn(agent, f"run echo {WORDS} {SECRET}")
    await agent.CallTool(
        pb.CallToolRequest(
            name="memory_save",
            arguments_json=json.dumps({"content": WORDS + "!", "tags": [WORDS.replace(" ", "-")]}),
        )
    )
    await agent.CallTool(pb.CallToolRequest(name=WORDS.replace(" ", "_"), arguments_json="{}"))
    saved = await until(
        lambda: [
            span
            for span in collected.spans
            if span.trace_id == place.trace_id and span.name == "memory save"
        ]
    )
    assert len(saved) == 1
    await until(lambda: "oxydra_shell_duration" in host.metrics())
    everything = collected.bytes.decode(errors="replace") + host.metrics()
    for planted in ("walrus", "pearls", "third step", SECRET, SECRET[8:40], HEADER):
        assert planted not in everything
    assert {headers["authorization"] for headers in collected.headers} == {HEADER}


async def test_a_clients_own_trace_goes_on_through_the_http_server(
    agent: Any, host: Host, collected: Collector
) -> None:
    place = trace.SpanContext.below(None)
    scopes = frozenset({Scope.CHAT, Scope.MEMORY})
    tokens = Tokens.locate(host.config)
    _, token = tokens.create("alice", f"sdk-{host.tier[:4]}", scopes, HOUR)
    request = {"model": "oxydra", "messages": [{"role": "user", "content": "run echo hi"}]}
    headers = {"Authorization": f"Bearer {token}", "traceparent": str(place)}
    async with (
        HttpServer(host.config, looking(host.config)) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client,
    ):
        reply = await client.post("/v1/chat/completions", json=request)
        assert reply.status_code == 200, reply.text
    turns = await until(
        lambda: [
            span
            for span in collected.spans
            if span.trace_id == place.trace_id and span.name == "turn"
        ]
    )
    assert turns[0].parent_span_id == place.span_id


@pytest.mark.attempt(
    "reading at /metrics who uses this machine, and how much",
    stopped_by="the numbers of all users are for a token with the scope metrics",
)
async def test_prometheus_reads_what_was_counted(agent: Any, host: Host) -> None:
    await turn(agent, "run echo again")
    wanted = ('tool="shell_exec"', "oxydra_turn_duration", "oxydra_model_duration")
    await until(lambda: all(each in host.metrics() for each in wanted))
    async with HttpServer(host.config, looking(host.config)):
        url = f"http://{host.config.telemetry.prometheus}/metrics"
        tokens = Tokens.locate(host.config)
        made = {
            scope: tokens.create("alice", f"{scope}-{host.tier[:4]}", frozenset({scope}), HOUR)[1]
            for scope in (Scope.METRICS, Scope.ADMIN)
        }
        numbers = {"Authorization": f"Bearer {made[Scope.METRICS]}"}
        page = ""
        async with asyncio.timeout(60):  # a host that takes long to answer is left out
            while "oxydra_turn_duration" not in page:
                page = await asyncio.to_thread(fetched, url, **numbers)
        for code, headers in (
            (421, {**numbers, "Host": "elsewhere.example"}),
            (401, {}),
            (401, {"Authorization": "Bearer oxa_guessed"}),
            (403, {"Authorization": f"Bearer {made[Scope.ADMIN]}"}),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(fetched, url, **headers)
            assert refused.value.code == code
    families = {each.name: each for each in text_string_to_metric_families(page)}
    assert {
        "oxydra_turn_duration_seconds",
        "oxydra_model_duration_seconds",
        "oxydra_tool_duration_seconds",
        "oxydra_shell_duration_seconds",
        "oxydra_guest_restarts",
    } <= families.keys()
    tools = families["oxydra_tool_duration_seconds"].samples
    assert {sample.labels["oxydra_user"] for sample in tools} == {"alice"}
    counted = [
        sample.value
        for sample in tools
        if sample.name.endswith("_count") and sample.labels["tool"] == "shell_exec"
    ]
    assert sum(counted) >= 1
