"""What a person who was let in, a stranger, and another site's page can not do with the operator's
pages: adding and removing people, links, settings.

Fake agents stand behind the real server.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runner.access.callers import REFUSALS_MAX
from runner.access.scopes import Scope
from runner.serve.login import links
from runner.serve.login.links import Links
from runner.serve.server import HttpServer
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import METHODS, open_http, operator, page

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINK = "a link lets one person in, once, and for a day; its secret has 256 random bits"
SCOPE = "all that is the operator's is refused before its request is read, to whomever else"
PAGE = "a session needs its page's secret besides the cookie, and requests a page of the server"


@pytest_asyncio.fixture(loop_scope="module")
async def front() -> AsyncIterator[Front]:
    async with open_front() as made:
        for user in ("alice", "bob"):
            (made.config.workspace_root / user).mkdir(mode=0o700)
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def server(front: Front) -> AsyncIterator[HttpServer]:
    async with open_http(front) as made:  # fails the test if anything is started or changed
        yield made


async def login(client: httpx.AsyncClient, link: str) -> int:
    return (await client.post("/api/login", json={"link": link})).status_code


@pytest.mark.attempt(
    "opening somebody's invitation a second time, or at the same time", stopped_by=LINK
)
async def test_an_invitation_works_once(front: Front, server: HttpServer) -> None:
    link, _ = Links.locate(front.config).invite("bob")
    async with page(server) as first, page(server) as second:
        clients = (first, second, first, second)
        statuses = await asyncio.gather(*(login(client, link) for client in clients))
        assert sorted(statuses) == [200, 401, 401, 401]
    assert len([each for each in front.tokens.all() if each.user_id == "bob"]) == 1


@pytest.mark.attempt(
    "opening an invitation that was left lying about, or was replaced", stopped_by=LINK
)
async def test_an_old_or_replaced_invitation_is_no_good(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Links.locate(front.config)
    replaced, _ = found.invite("bob")
    last, _ = found.invite("bob")
    async with page(server) as client:
        assert await login(client, replaced) == 401
        assert await login(client, last) == 200
        monkeypatch.setattr(links, "INVITATION_S", -1.0)
        old, _ = found.invite("bob")
        assert await login(client, old) == 401


@pytest.mark.attempt("guessing an invitation", stopped_by=LINK)
async def test_an_invitation_is_not_guessed(front: Front, server: HttpServer) -> None:
    link, _ = Links.locate(front.config).invite("bob")
    near = [f"{link[:-1]}{last}" for last in "AEIMQUYcgkosw048" if last != link[-1]]
    async with page(server) as client:
        statuses = {await login(client, each) for each in ("", "bob", link[:-1], *near, *near)}
        assert statuses <= {400, 401, 429}
        assert len(near) * 2 > REFUSALS_MAX
        assert await login(client, link) == 200


@pytest.mark.attempt("becoming the operator, or another user, by an invitation", stopped_by=LINK)
async def test_an_invitation_lets_in_its_own_person_alone(front: Front, server: HttpServer) -> None:
    link, _ = Links.locate(front.config).invite("bob")
    async with page(server) as client:
        me = (await client.post("/api/login", json={"link": link})).json()
        assert (me["user_id"], me["users"], me["operator"]) == ("bob", ["bob"], False)
        assert (await client.post("/api/users/bob/ListNotes", json={})).status_code == 200
        assert (await client.post("/api/users/alice/ListNotes", json={})).status_code == 403
        await refused_everything(client)


@pytest.mark.attempt(
    "reading or writing what is the operator's with a person's token", stopped_by=SCOPE
)
async def test_no_token_opens_what_is_the_operators(front: Front, server: HttpServer) -> None:
    token = front.access("alice", "all", *Scope).token
    async with httpx.AsyncClient(base_url=server.url) as program, page(server) as client:
        program.headers["Authorization"] = f"Bearer {token}"
        await refused_everything(program)
        await client.post("/api/login", json={"token": token})
        await refused_everything(client)


async def refused_everything(client: httpx.AsyncClient) -> None:
    asked: dict[str, Any] = {"user_id": "alice", "confirm": "alice", "name": "x"}
    for method in METHODS:
        reply = await client.post(f"/api/host/{method}", json=asked)
        assert (reply.status_code, method) == (403, method)


@pytest.mark.attempt(
    "acting as the operator by their cookie, or from another site's page", stopped_by=PAGE
)
async def test_the_operators_cookie_alone_does_nothing(front: Front, server: HttpServer) -> None:
    asked = {"user_id": "alice", "confirm": "alice"}
    async with operator(front, server) as client:
        for headers in (
            {"X-Oxydra": "1"},
            {"X-Oxydra": ""},
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            for method in METHODS:
                reply = await client.post(f"/api/host/{method}", json=asked, headers=headers)
                assert reply.status_code in (401, 403), (method, headers)
    assert (front.config.workspace_root / "alice").is_dir()


@pytest.mark.attempt(
    "acting as the operator by a request whose end comes after the logout",
    stopped_by="who is let in is looked at again once the request has arrived",
)
async def test_a_request_that_arrives_after_the_logout_does_nothing(
    front: Front, server: HttpServer
) -> None:
    over = asyncio.Event()
    async with operator(front, server) as client:
        began = asyncio.Semaphore(0)

        async def body() -> AsyncIterator[bytes]:
            yield b"{"
            began.release()
            await over.wait()
            yield b'"user_id": "alice"}'

        async def asked(method: str) -> int:
            headers = {"Content-Type": "application/json"}
            url = f"/api/host/{method}"
            return (await client.post(url, content=body(), headers=headers)).status_code

        going = [asyncio.create_task(asked(method)) for method in METHODS]
        for _ in going:
            await began.acquire()
        await client.get("/healthz")
        assert (await client.post("/api/logout", json={"everywhere": True})).status_code == 200
        over.set()
        assert set(await asyncio.gather(*going)) == {401}
