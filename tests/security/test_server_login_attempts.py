"""What does not become a login at an MCP server: an answer that comes to the console, and is not
that of the person who has begun it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from wire.settings import McpServerSettings, McpSettings

from runner.access.callers import CALLS_MAX
from runner.egress.login import Login
from runner.serve.server import HttpServer
from runner.workspace import logins
from tests.support.attempts import attempt
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import open_http, page
from tests.support.servers.login_world import SERVER, TOKEN, World

HERE = "/api/users/alice/logins"
BOUND = "an answer counts once, for the session that has begun the login"
PAGE = "only pages of this server act there, for a person who is logged in"


@dataclass
class Table:
    """Alice at the console, and a browser of somebody else."""

    front: Front
    server: HttpServer
    world: World
    alice: httpx.AsyncClient
    other: httpx.AsyncClient
    reloaded: AsyncMock

    async def begin(self) -> str:
        """What she is to open."""
        reply = await self.alice.post(HERE, json={"name": "docs"})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["url"])

    async def answer(self, query: str, by: httpx.AsyncClient | None = None) -> httpx.Response:
        return await (by or self.alice).put(HERE, json={"query": query})


@pytest_asyncio.fixture
async def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Table]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with AsyncExitStack() as stack:
        front = await stack.enter_async_context(open_front())
        for user in ("alice", "bob"):
            (front.config.workspace_root / user).mkdir(mode=0o700)
        reload: Any = AsyncMock(return_value=[])
        front.hosts["alice"].reload_egress = reload  # type: ignore[attr-defined]
        docs = McpSettings(servers={"docs": McpServerSettings(url=SERVER)})
        front = replace(front, config=front.config.model_copy(update={"mcp": docs}))
        server = await stack.enter_async_context(open_http(front))
        alice, other = [await stack.enter_async_context(page(server)) for _ in range(2)]
        await alice.post("/api/login", json={"token": front.access("alice", "a").token})
        world = World.entered(monkeypatch)
        yield Table(front, server, world, alice, other, reload)


async def test_the_answer_of_who_has_begun_it_is_a_login(table: Table) -> None:
    url = await table.begin()
    asked = parse_qs(urlsplit(url).query)
    assert asked["redirect_uri"] == [f"{table.server.url}/logins/callback"]
    reply = await table.answer(table.world.answer(url))
    assert (reply.status_code, reply.json()) == (200, {"name": "docs"}), reply.text
    found = logins.read("alice", "docs")
    assert found is not None
    assert found.access_token == TOKEN
    assert table.reloaded.await_count == 1
    assert (await table.alice.request("DELETE", HERE, json={"name": "docs"})).status_code == 200
    assert logins.read("alice", "docs") is None


async def test_a_proxys_address_is_where_the_browser_comes_back(table: Table) -> None:
    console = "https://agents.example.org"
    front, link = table.front, {"token": table.front.access("alice", "b").token}
    await table.server.__aexit__()
    headers = {"Host": "agents.example.org", "X-Oxydra": "1"}
    async with (
        open_http(front, url=console) as server,
        httpx.AsyncClient(base_url=server.urls[0], headers=headers) as client,
    ):
        entered = await client.post("/api/login", json=link)
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
        mine = {"Cookie": cookie, "X-Oxydra": entered.json()["page"]}
        url = (await client.post(HERE, json={"name": "docs"}, headers=mine)).json()["url"]
    assert parse_qs(urlsplit(url).query)["redirect_uri"] == [f"{console}/logins/callback"]


async def test_a_lie_is_told_and_is_no_login(table: Table) -> None:
    url = await table.begin()
    table.world.back["iss"] = "https://evil.example"
    reply = await table.answer(table.world.answer(url))
    assert reply.status_code == 412
    assert "iss mismatch" in reply.json()["error"]["details"]
    table.world.metadata["authorization_endpoint"] = "http://as.example.net/authorize"
    reply = await table.alice.post(HERE, json={"name": "docs"})
    assert "does not protect a login" in reply.json()["error"]["details"]
    assert logins.read("alice", "docs") is None


async def of_another_person(table: Table, url: str) -> httpx.Response:
    token = table.front.access("bob", "b").token
    await table.other.post("/api/login", json={"token": token})
    bobs = await table.other.put("/api/users/bob/logins", json={"query": table.world.answer(url)})
    assert bobs.status_code == 404
    return await table.answer(table.world.answer(url), table.other)


async def of_another_browser(table: Table, url: str) -> httpx.Response:
    token = table.front.access("alice", "second").token
    await table.other.post("/api/login", json={"token": token})
    return await table.answer(table.world.answer(url), table.other)


async def of_a_token(table: Table, url: str) -> httpx.Response:
    bearer = {"Authorization": f"Bearer {table.front.access('alice', 'program').token}"}
    return await table.other.put(HERE, json={"query": table.world.answer(url)}, headers=bearer)


async def after_a_later_one(table: Table, url: str) -> httpx.Response:
    await table.begin()
    return await table.answer(table.world.answer(url))


async def of_no_login(table: Table, url: str) -> httpx.Response:
    states = ("state=guessed&code=c", "code=c", "", "&".join(["a=b"] * 50))
    replies = [await table.answer(each) for each in states]
    assert {each.status_code for each in replies} == {404}
    return replies[0]


async def begun_elsewhere(table: Table, url: str) -> httpx.Response:
    del table.alice.headers["X-Oxydra"]
    assert (await table.alice.post(HERE, json={"name": "docs"})).status_code == 403
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    return await table.alice.post(HERE, json={"name": "docs"}, headers=evil)


async def for_another_user(table: Table, url: str) -> httpx.Response:
    return await table.alice.post("/api/users/bob/logins", json={"name": "docs"})


@pytest.mark.parametrize(
    ("deed", "status"),
    [
        attempt(f"a login at an MCP server by {what}", deed, status, stopped_by=why)
        for what, deed, status, why in (
            ("the answer in another person's browser", of_another_person, 403, BOUND),
            ("the answer in another browser of the same person", of_another_browser, 404, BOUND),
            ("the answer with an access token", of_a_token, 401, PAGE),
            ("the answer to an earlier login", after_a_later_one, 404, BOUND),
            ("an answer that nobody waits for", of_no_login, 404, BOUND),
            ("a page of another site", begun_elsewhere, 403, PAGE),
            ("another person", for_another_user, 403, PAGE),
        )
    ],
)
async def test_nobody_else_brings_the_answer(
    table: Table, deed: Callable[[Table, str], Awaitable[httpx.Response]], status: int
) -> None:
    url = await table.begin()
    reply = await deed(table, url)
    assert reply.status_code == status, reply.text
    assert not [each for each in table.world.requests if each.url.path == "/token"]
    assert logins.read("alice", "docs") is None
    assert logins.read("bob", "docs") is None


@pytest.mark.attempt("a login at an MCP server by the same answer twice", stopped_by=BOUND)
async def test_an_answer_counts_once(table: Table) -> None:
    query = table.world.answer(await table.begin())
    assert (await table.answer(query)).status_code == 200
    logins.forget("alice", "docs")
    assert (await table.answer(query)).status_code == 404
    assert logins.read("alice", "docs") is None


async def test_logins_that_no_server_answers_are_counted_as_calls(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person would hold connections of the host to a slow server without end."""
    never, too_many, running = asyncio.Event(), asyncio.Event(), list[None]()

    async def silent(*_: Any) -> str:
        running.append(None)
        if len(running) > CALLS_MAX:
            too_many.set()
        await never.wait()
        raise OSError("it was silent")

    monkeypatch.setattr(Login, "run", silent)
    posts = [
        table.alice.post(HERE, json={"name": "docs"}, timeout=60) for _ in range(CALLS_MAX + 1)
    ]
    begun = [asyncio.create_task(each) for each in posts]
    unbounded = asyncio.create_task(too_many.wait())
    done, _ = await asyncio.wait([*begun, unbounded], return_when=asyncio.FIRST_COMPLETED)
    never.set()
    unbounded.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
    assert not too_many.is_set()
    assert [each.result().status_code for each in begun if each in done] == [429]
