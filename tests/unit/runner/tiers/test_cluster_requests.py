"""Requests and watches against an API server that says what a test has it say."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from wire.errors import Code

from runner.errors import TierError
from runner.tiers.kubernetes import cluster as cluster_module
from runner.tiers.kubernetes import watching
from runner.tiers.kubernetes.cluster import Cluster, RefusedError
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.tiers.kubernetes.watching import Pods

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str, version: str, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version},
        "status": {"phase": phase},
    }


def failure(status: int, reason: str) -> web.Response:
    return web.json_response({"kind": "Status", "reason": reason, "message": "no"}, status=status)


class Server:
    """Answers each request by the next of `script`, and the last one for ever."""

    def __init__(self, *script: Answer) -> None:
        self.script = [*script]
        self.asked: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await step(request)

    @property
    def queries(self) -> list[dict[str, str]]:
        return [dict(request.query) for request in self.asked]


@asynccontextmanager
async def serving(place: Path, *script: Answer) -> AsyncIterator[tuple[Server, Cluster]]:
    server = Server(*script)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (address,) = runner.addresses
    config = place / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{address[1]}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ox"}}],
        "current-context": "x",
    }
    config.write_text(json.dumps(content))
    cluster = Cluster(KubernetesSettings(kubeconfig=config))
    await cluster.open()
    try:
        yield server, cluster
    finally:
        await cluster.close()
        await runner.cleanup()


def says(status: int, reason: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return failure(status, reason)

    return answer


def lists(version: str, *pods: dict[str, Any]) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": version}, "items": [*pods]})

    return answer


def tells(*events: dict[str, Any]) -> Answer:
    """A watch that tells these events and ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    return answer


async def breaks_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"type": "MOD')
    assert request.transport is not None
    request.transport.abort()
    return response


async def hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "PAUSE_S", 0.01)
    monkeypatch.setattr(watching, "PAUSE_S", 0.01)


async def ask(cluster: Cluster) -> dict[str, Any]:
    return await cluster.ask("list pods", cluster.core.list_namespaced_pod, "ox")


@pytest.mark.parametrize("status", [429, 500, 503, 504])
async def test_what_a_busy_api_server_refuses_is_asked_again(tmp_path: Path, status: int) -> None:
    busy = says(status, "TooManyRequests")
    async with serving(tmp_path, busy, busy, lists("7")) as (server, cluster):
        assert (await ask(cluster))["metadata"] == {"resourceVersion": "7"}
        assert len(server.asked) == 3


async def test_an_api_server_that_stays_busy_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "PATIENCE_S", 0.1)
    async with serving(tmp_path, says(429, "TooManyRequests")) as (_, cluster):
        with pytest.raises(RefusedError) as refused:
            await ask(cluster)
    assert refused.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize(("status", "code"), [(403, Code.PERMISSION_DENIED), (404, Code.NOT_FOUND)])
async def test_a_refusal_is_final_and_says_what_was_asked(
    tmp_path: Path, status: int, code: Code
) -> None:
    async with serving(tmp_path, says(status, "Forbidden")) as (server, cluster):
        with pytest.raises(RefusedError) as refused:
            await ask(cluster)
        assert len(server.asked) == 1
    assert refused.value.code is code
    assert refused.value.brief == "the cluster refuses to list pods"
    assert "kubectl apply" in refused.value.resolution or status != 403


async def test_nobody_there_is_an_error_with_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "PATIENCE_S", 0.1)
    async with serving(tmp_path, breaks_off) as (_, cluster):
        with pytest.raises(TierError) as error:
            await ask(cluster)
    assert error.value.code is Code.UNAVAILABLE
    assert "http://127.0.0.1:" in error.value.details


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not found():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(tmp_path: Path, *script: Answer) -> AsyncIterator[tuple[Server, Pods]]:
    async with serving(tmp_path, *script) as (server, cluster):
        pods = Pods(cluster, "a=b")
        try:
            await pods.open()
            yield server, pods
        finally:
            await pods.close()


async def test_a_watch_goes_on_where_the_last_one_has_ended(tmp_path: Path) -> None:
    one = {"type": "ADDED", "object": pod("one", "8")}
    gone = {"type": "DELETED", "object": pod("zero", "9")}
    script = lists("7", pod("zero", "5")), tells(one), tells(gone), hangs
    async with watched(tmp_path, *script) as (server, pods):
        await until(lambda: len(server.asked) == 4)
        assert [each["metadata"]["name"] for each in pods.all()] == ["one"]
        versions = [query.get("resourceVersion") for query in server.queries]
        assert versions == [None, "7", "8", "9"]
        assert {query["labelSelector"] for query in server.queries} == {"a=b"}


@pytest.mark.parametrize(
    "lost",
    [
        says(410, "Expired"),
        tells({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}),
        says(429, "TooManyRequests"),
        breaks_off,
    ],
    ids=["410", "410 in the watch", "429", "a broken connection"],
)
async def test_after_a_watch_that_is_lost_all_is_listed_again(tmp_path: Path, lost: Answer) -> None:
    script = lists("7", pod("zero", "5")), lost, lists("20", pod("two", "19")), hangs
    async with watched(tmp_path, *script) as (server, pods):
        await until(lambda: len(server.asked) == 4)
        assert [each["metadata"]["name"] for each in pods.all()] == ["two"]
        assert server.queries[3]["resourceVersion"] == "20"


async def test_while_nobody_answers_pods_stay_as_they_were(tmp_path: Path) -> None:
    away = says(503, "ServiceUnavailable")
    script = lists("7", pod("zero", "5")), breaks_off, away
    async with watched(tmp_path, *script) as (server, pods):
        await until(lambda: len(server.asked) > 4)
        assert [each["metadata"]["name"] for each in pods.all()] == ["zero"]
