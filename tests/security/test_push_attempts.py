"""What nobody reaches by the host's way to push services: a browser says where they are, and the
host sends there."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from wire.v1 import gateway_pb2 as pb

from tests.support.attempts import attempt
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import open_http, operator
from tests.support.servers.push_service import Browser, PushService, push_service

CHECKED = "only public addresses are sent to, by HTTPS; looked up and checked for each message"
HERE = "/api/users/alice/push"
PUBLIC, INSIDE = "93.184.215.14", "127.0.0.1"


@pytest_asyncio.fixture
async def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[PushService]:
    async with push_service(monkeypatch, tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def front(service: PushService) -> AsyncIterator[Front]:
    async with open_front() as made:
        (made.config.workspace_root / "alice").mkdir(mode=0o700)
        yield made


async def tell(front: Front, count: int) -> None:
    """Have so many notices told."""
    for number in range(1, count + 1):
        notice = pb.StoredNotice(number=number, kind="guest", text=f"t{number}", key=f"t{number}")
        front.alice.stored.append(notice)
    async with asyncio.timeout(60):
        while front.alice.told.total() < count:
            await asyncio.sleep(0.01)


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let `rebound.example` have one of these addresses after the other, the last one for good."""
    left, known = list(addresses), socket.getaddrinfo

    def found(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        if host != "rebound.example":
            return known(host, port, *more, **options)
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.parametrize(
    "endpoint",
    [
        attempt(f"a push service at {what}", endpoint, stopped_by=CHECKED)
        for what, endpoint in {
            "this machine": "https://127.0.0.1/",
            "a name of this machine": "https://localhost/",
            "this machine in another spelling": "https://[::ffff:127.0.0.1]/",
            "a private network": "https://192.168.0.1/",
            "a cloud's metadata": "https://169.254.169.254/latest",
            "another port": "https://push.example.com:22/",
            "a name that leads inside": "https://rebound.example/",
            "an address without TLS": "http://push.example.com/",
        }.items()
    ],
)
async def test_a_push_service_is_on_the_internet(
    front: Front, service: PushService, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    resolving(monkeypatch, INSIDE)
    asked = {**Browser().subscription(), "endpoint": endpoint}
    async with open_http(front) as server, operator(front, server) as client:
        reply = await client.put(HERE, json=asked)
        assert reply.status_code == 400, reply.text
        assert not (await client.post(HERE, json=asked)).json()["told"]


@pytest.mark.attempt(
    "a push service whose name leads inside once it was accepted", stopped_by=CHECKED
)
async def test_a_name_that_leads_elsewhere_later_is_not_connected_to(
    front: Front, service: PushService, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, PUBLIC, INSIDE)
    asked = Browser(host="rebound.example").subscription()
    async with open_http(front) as server, operator(front, server) as client:
        assert (await client.put(HERE, json=asked)).status_code == 200
        front.alice.stored.append(pb.StoredNotice(number=1, kind="guest", text="t", key="k"))
        await asyncio.sleep(0.5)
    assert service.connected == []
    assert front.alice.told.total() == 0


@pytest.mark.attempt("a push service that leads inside by a redirect", stopped_by=CHECKED)
async def test_a_redirect_is_not_followed(front: Front, service: PushService) -> None:
    there = {"Location": "https://localhost/"}
    service.answers = [web.Response(status=status, headers=there) for status in (301, 307)]
    browser = Browser()
    async with open_http(front) as server, operator(front, server) as client:
        assert (await client.put(HERE, json=browser.subscription())).status_code == 200
        await tell(front, 1)
    assert len(service.sent) == 3
    assert set(service.connected) == {"push.example.com"}


@pytest.mark.attempt("a push service whose answer has no end", stopped_by="no answer is read")
async def test_an_answer_without_end_holds_nothing_up(front: Front, service: PushService) -> None:
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=201)
        await response.prepare(request)
        while True:
            await response.write(bytes(65_536))

    service.take = endless  # type: ignore[method-assign, assignment]
    async with open_http(front) as server, operator(front, server) as client:
        assert (await client.put(HERE, json=Browser().subscription())).status_code == 200
        await tell(front, 2)


@pytest.mark.attempt(
    "a push service at the address of another one, for the connection that is open to it",
    stopped_by="each message has a connection of its own: no answer is read",
)
async def test_no_connection_is_used_twice(front: Front, service: PushService) -> None:
    callers, take = [], service.take

    async def noted(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        callers.append(request.transport.get_extra_info("peername"))
        return await take(request)

    service.take = noted  # type: ignore[method-assign]
    async with open_http(front) as server, operator(front, server) as client:
        assert (await client.put(HERE, json=Browser().subscription())).status_code == 200
        await tell(front, 2)
    assert len(set(callers)) == len(callers) == 2
