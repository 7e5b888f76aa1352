"""Browsers are told of notices by push services, before fake agents: real HTTP, TLS and keys."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from wire.v1 import gateway_pb2 as pb

from runner.access.scopes import Scope
from runner.serve.login.links import Links
from runner.serve.operator.people import remove_user
from runner.serve.push.subscriptions import SUBSCRIPTIONS_MAX
from runner.serve.server import HttpServer
from tests.support.gateway.fake_gateway import FakeGateway
from tests.support.gateway.front import DAY, Front, open_front
from tests.support.gateway.http_front import open_http, operator, page
from tests.support.servers.push_service import HOST, Browser, PushService, push_service, read

HERE = "/api/users/alice/push"
OVER = "This browser is told no more: its login has ended. Log in to the console again."


@pytest_asyncio.fixture
async def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[PushService]:
    async with push_service(monkeypatch, tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def front(service: PushService) -> AsyncIterator[Front]:
    async with open_front() as made:
        for user in ("alice", "bob"):
            (made.config.workspace_root / user).mkdir(mode=0o700)
        yield made


@pytest_asyncio.fixture
async def server(front: Front) -> AsyncIterator[HttpServer]:
    async with open_http(front) as made:
        yield made


def happens(agent: FakeGateway, text: str, kind: str = "schedule") -> None:
    number = len(agent.stored) + 1
    agent.stored.append(pb.StoredNotice(number=number, kind=kind, text=text, key=text))


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not there():
            await asyncio.sleep(0.01)


async def subscribe(client: httpx.AsyncClient, browser: Browser, path: str = HERE) -> None:
    reply = await client.put(path, json=browser.subscription())
    assert reply.status_code == 200, reply.text


async def is_told(client: httpx.AsyncClient, browser: Browser) -> bool:
    reply = await client.post(HERE, json={"endpoint": browser.endpoint})
    return bool(reply.json()["told"])


async def test_a_browser_is_told_what_happens_though_no_page_is_open(
    front: Front, server: HttpServer, service: PushService
) -> None:
    one, two = Browser("one"), Browser("two")
    happens(front.alice, "before")
    async with operator(front, server) as client:
        assert not await is_told(client, one)
        await subscribe(client, one)
        assert await is_told(client, one)
        assert not await is_told(client, two)
        await subscribe(client, two)
        public = (await client.post(HERE, json={})).json()["key"]
    happens(front.alice, "the backup is done")
    happens(front.alice, "é" * 2_000, "reminder")
    await until(lambda: len(service.sent) == 4)
    first, second = service.to(one)
    assert first == {"title": "Oxydra: alice", "body": "the backup is done", "tag": "alice 2"}
    assert second["body"].startswith("é" * 200)
    assert len(second["body"]) <= 301
    assert service.to(two) == [first, second]
    headers = {path: sent for path, sent, _ in service.sent}["/to/one"]
    assert headers["Content-Encoding"] == "aes128gcm"
    assert int(headers["TTL"]) > 0
    assert not any(b"backup" in body for _, _, body in service.sent)
    assert signed(headers["Authorization"], public) == {
        "aud": f"https://{HOST}",
        "sub": "https://localhost",
    }


def signed(authorization: str, public: str) -> dict[str, str]:
    """What a push service reads of who sends: RFC 8292."""
    scheme, _, rest = authorization.partition(" ")
    fields = dict(each.split("=", 1) for each in rest.split(","))
    assert (scheme, fields["k"]) == ("vapid", public)
    text, _, signature = fields["t"].rpartition(".")
    halves = read(signature)
    pair = utils.encode_dss_signature(
        *(int.from_bytes(each) for each in (halves[:32], halves[32:]))
    )
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), read(public))
    key.verify(pair, text.encode(), ec.ECDSA(SHA256()))
    claims = json.loads(read(text.partition(".")[2]))
    assert time.time() < claims.pop("exp") < time.time() + 86_400
    return dict(claims)


async def test_it_goes_on_after_a_restart_with_what_was_not_told_and_the_same_key(
    front: Front, service: PushService
) -> None:
    browser = Browser()
    async with open_http(front) as server, operator(front, server) as client:
        await subscribe(client, browser)
        key = (await client.post(HERE, json={})).json()["key"]
        happens(front.alice, "one")
        await until(lambda: front.alice.told.total() == 1)
        before = len(service.sent)  # more than one where an answer was lost
    happens(front.alice, "two")
    async with open_http(front) as server, operator(front, server) as client:
        await until(lambda: len(service.sent) > before)
        assert (await client.post(HERE, json={})).json()["key"] == key
    bodies = [each["body"] for each in service.to(browser)]
    assert bodies == ["one"] * before + ["two"]
    private = front.config.workspace_root / ".serve" / "push.pem"
    assert private.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("status", [500, 429, 403, 307])
async def test_what_a_push_service_does_not_take_is_sent_again(
    front: Front, server: HttpServer, service: PushService, status: int
) -> None:
    browser = Browser()
    there = {"Location": f"https://{HOST}/to/elsewhere"}
    service.answers = [web.Response(status=status, headers=there) for _ in range(2)]
    async with operator(front, server) as client:
        await subscribe(client, browser)
        happens(front.alice, "one")
        await until(lambda: len(service.sent) == 2)
        assert front.alice.told.total() == 0
        await until(lambda: front.alice.told.total() == 1)
        happens(front.alice, "two")
        await until(lambda: len(service.sent) == 4)
        assert await is_told(client, browser)
    assert [each["body"] for each in service.to(browser)] == ["one", "one", "one", "two"]


@pytest.mark.parametrize("status", [404, 410])
async def test_a_browser_that_its_push_service_has_forgotten_is_told_no_more(
    front: Front, server: HttpServer, service: PushService, status: int
) -> None:
    service.answers = [web.Response(status=status)]
    async with operator(front, server) as client:
        await subscribe(client, Browser())
        happens(front.alice, "one")
        await until(lambda: len(service.sent) == 1)
        happens(front.alice, "two")
        await asyncio.sleep(0.3)
        assert len(service.sent) == 1
        assert not await is_told(client, Browser())


async def test_a_browser_that_does_not_want_it_any_more_is_told_no_more(
    front: Front, server: HttpServer, service: PushService
) -> None:
    browser = Browser()
    async with operator(front, server) as client:
        await subscribe(client, browser)
        assert (
            await client.request("DELETE", HERE, json={"endpoint": browser.endpoint})
        ).is_success
        happens(front.alice, "one")
        await asyncio.sleep(0.3)
        assert not await is_told(client, browser)
    assert service.sent == []


def is_empty(front: Front) -> bool:
    return not list((front.config.workspace_root / ".serve" / "push").glob("*/*"))


@pytest.mark.parametrize("end", ["logout", "revoked"])
async def test_it_ends_with_the_login_which_is_told(
    front: Front, server: HttpServer, service: PushService, end: str
) -> None:
    browser = Browser()
    link, _ = Links.locate(front.config).invite("alice")
    async with page(server) as client:
        await client.post("/api/login", json={"link": link})
        await subscribe(client, browser)
        happens(front.alice, "one")
        await until(lambda: len(service.sent) == 1)
        if end == "logout":
            await client.post("/api/logout", json={})
        else:
            front.tokens.revoke("alice")
    await until(lambda: is_empty(front) and len(service.sent) == 2)
    happens(front.alice, "two")
    await asyncio.sleep(0.3)
    assert [each["body"] for each in service.to(browser)] == ["one", OVER]


async def test_it_ends_with_the_user_also_for_the_operator(
    front: Front, server: HttpServer, service: PushService
) -> None:
    async def stop(user: str) -> None:
        await front.hosts[user].stop()

    async with operator(front, server) as client:
        await subscribe(client, Browser())
        links = Links.locate(front.config)
        await remove_user(front.config, "alice", front.tokens, links, stop)
        assert is_empty(front)
        assert not await is_told(client, Browser())


async def test_a_user_has_no_more_open_than_browsers_that_are_told(
    front: Front, server: HttpServer, service: PushService
) -> None:
    following = front.alice.following
    async with operator(front, server) as client:
        for each in range(2 * SUBSCRIPTIONS_MAX):
            await subscribe(client, Browser(str(each)))
        await until(lambda: len(following) == SUBSCRIPTIONS_MAX)
        await asyncio.sleep(0.2)
        assert len(following) == SUBSCRIPTIONS_MAX


async def test_a_stopped_agent_is_not_asked_and_tells_once_it_runs(
    front: Front, server: HttpServer, service: PushService
) -> None:
    browser = Browser()
    async with operator(front, server) as client:
        await subscribe(client, browser)
        await front.hosts["alice"].stop()
        await front.alice.stop()
        await asyncio.sleep(0.3)
        happens(front.alice, "one")
        assert service.sent == []
        await front.alice.start()
        await front.hosts["alice"].start()
        await until(lambda: len(service.sent) == 1)
    assert service.to(browser)[0]["body"] == "one"


async def test_the_operator_is_told_whose_notice_it_is(
    front: Front, server: HttpServer, service: PushService
) -> None:
    browser = Browser()
    async with operator(front, server, "alice") as client:
        await subscribe(client, browser, "/api/users/bob/push")
        happens(front.bob, "one")
        await until(lambda: len(service.sent) == 1)
    assert service.to(browser) == [{"title": "Oxydra: bob", "body": "one", "tag": "bob 1"}]


async def test_only_a_browser_with_the_right_login_is_told(
    front: Front, server: HttpServer, service: PushService
) -> None:
    _, notes = front.tokens.create("alice", "n", frozenset({Scope.MEMORY}), DAY)
    _, chat = front.tokens.create("alice", "c", frozenset({Scope.CHAT}), DAY)
    async with page(server) as client:
        for token, path, status in ((notes, HERE, 403), (chat, HERE.replace("alice", "bob"), 403)):
            await client.post("/api/login", json={"token": token})
            for method in ("POST", "PUT", "DELETE"):
                reply = await client.request(method, path, json=Browser().subscription())
                assert reply.status_code == status, method
        bearer = {"Authorization": f"Bearer {chat}"}
        reply = await client.put(HERE, json=Browser().subscription(), headers=bearer)
        assert reply.status_code == 401
