"""The HTTP server as pages and programs use it, on real sockets, before fake agents."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import pytest_asyncio
from wire.v1 import gateway_pb2 as pb

from runner.access.scopes import Scope
from runner.serve.server import HttpServer
from tests.support.gateway.fake_gateway import LIVE, Event, FakeGateway, echo, text
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import ask, open_http, operator, page

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"Content-Type": "application/json"}
TURN = {"turn_id": LIVE}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def front() -> AsyncIterator[Front]:
    async with open_front() as made:
        made.alice.sessions["s"] = pb.Session(session_id="s")
        (made.config.workspace_root / "carol").mkdir(mode=0o700)
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(front: Front) -> AsyncIterator[HttpServer]:
    async with open_http(front) as made:
        yield made


@pytest.fixture(autouse=True)
def fresh(front: Front) -> None:
    front.tokens.revoke("alice")
    front.alice.script = echo


async def waits(gateway: FakeGateway, request: pb.StartTurnRequest) -> AsyncIterator[Event]:
    yield text("begun")
    await asyncio.Event().wait()


async def breaks(gateway: FakeGateway, request: pb.StartTurnRequest) -> AsyncIterator[Event]:
    yield text("begun")
    raise RuntimeError("a bug")


async def lines(reply: httpx.Response) -> list[Any]:
    return [json.loads(line) async for line in reply.aiter_lines()]


async def test_a_link_lets_the_operator_in_for_every_user(front: Front, server: HttpServer) -> None:
    async with operator(front, server) as client:
        me = (await client.get("/api/me")).json()
        assert me["operator"]
        assert me["user_id"] == "alice"
        await client.post("/api/users/bob/SaveNote", json={"text": "for bob", "channel": "cli"})
    assert (front.bob.seen[-1].text, front.bob.seen[-1].channel) == ("for bob", "console")


async def test_a_token_lets_its_user_in_by_login_or_as_a_header(
    front: Front, server: HttpServer
) -> None:
    token = front.access("alice", "tablet", Scope.CHAT).token
    async with page(server) as client:
        me = (await client.post("/api/login", json={"token": token})).json()
        assert (me["user_id"], me["users"], me["scopes"]) == ("alice", ["alice"], ["chat"])
        assert not me["operator"]
        refused = await client.post("/api/users/alice/ListNotes", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "permission_denied")
    async with httpx.AsyncClient(base_url=server.url) as program:
        program.headers["Authorization"] = f"Bearer {token}"
        reply = await program.post("/api/users/alice/Hello", json={})
        assert reply.json()["user_id"] == "alice"
        assert (await program.post("/api/users/bob/Hello", json={})).status_code == 403


async def test_a_file_of_the_console_says_how_long_it_is_and_is_sent_once(
    server: HttpServer,
) -> None:
    async with page(server) as client:
        whole = await client.get("/")
        assert whole.headers["Content-Length"] == str(len(whole.content))
        again = await client.get("/", headers={"If-None-Match": whole.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_a_stream_answers_line_by_line_and_ends_with_its_error(
    front: Front, server: HttpServer
) -> None:
    async with operator(front, server) as client:
        async with client.stream("POST", "/api/users/alice/FollowTurn", json=TURN) as reply:
            assert reply.headers["content-type"] == "application/x-ndjson"
            events = await lines(reply)
        assert [next(iter(event)) for event in events] == ["text", "text", "completed"]
        front.alice.script = breaks
        async with client.stream("POST", "/api/users/alice/FollowTurn", json=TURN) as reply:
            begun, last = await lines(reply)
        assert "text" in begun
        assert last["error"]["code"] == "internal"


async def test_who_leaves_ends_the_call(front: Front, server: HttpServer) -> None:
    front.alice.script = waits
    left = len(front.alice.left)
    async with operator(front, server) as client:
        async with client.stream("POST", "/api/users/alice/FollowTurn", json=TURN) as reply:
            assert "begun" in await anext(reply.aiter_lines())
        async with asyncio.timeout(60):
            while len(front.alice.left) == left:
                await asyncio.sleep(0.01)


async def test_what_is_no_message_of_the_contract_is_refused_by_its_field(
    front: Front, server: HttpServer
) -> None:
    async with operator(front, server) as client:
        reply = await client.post("/api/users/alice/SaveNote", json={"text": 5})
        assert (reply.status_code, "text" in reply.text) == (400, True)
        for path in ("/api/users/alice/Nothing", "/wire.v1.RunnerControl/Stop", "/x"):
            assert (await client.post(path, json={})).status_code in (404, 405)
        reply = await client.post("/api/users/alice/Hello", content="{", headers=JSON)
        assert reply.status_code == 400
        deep = "[" * 100_000
        reply = await client.post("/api/users/alice/Hello", content=deep, headers=JSON)
        assert reply.status_code == 400


async def test_fields_of_a_newer_client_are_ignored_and_named(
    front: Front, server: HttpServer
) -> None:
    asked = {"text": "x", "tagz": [], "bad\r\nname": 1}
    async with operator(front, server) as client:
        reply = await client.post("/api/users/alice/SaveNote", json=asked)
        assert (reply.status_code, reply.headers["X-Oxydra-Ignored"]) == (200, "tagz, bad??name")
        assert front.alice.seen[-1].text == "x"
        reply = await client.post("/api/users/alice/Hello", json={})
        assert "X-Oxydra-Ignored" not in reply.headers


async def test_the_operator_sees_all_users(front: Front, server: HttpServer) -> None:
    async with operator(front, server) as client:
        users = (await ask(client, "ListUsers"))["users"]
        states = {user["user_id"]: (user["state"], user["tier"]) for user in users}
        assert states == {"carol": ("stopped", "container")}
        assert (await ask(client, "Status", user_id="carol"))["samples"] == {}
        reply = await client.post("/api/host/Stop", json={"user_id": "nobody"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
        reply = await client.post("/api/host/Restart", json={"user_id": "carol"})
        assert "start --detach" in reply.json()["error"]["resolution"]
        findings = (await ask(client, "Doctor", user_id="carol"))["findings"]
        assert {"name", "state", "what", "fix"} == set(findings[0])
        asked = {"user_id": "carol", "outcome": "ok", "limit": 5}
        assert (await ask(client, "ListCalls", **asked))["calls"] == []
        for wrong in ({"outcome": "nice"}, {"limit": 0}, {"cursor": "x"}, {"since": "noon"}):
            reply = await client.post("/api/host/ListCalls", json=asked | wrong)
            assert (reply.status_code, *wrong) == (400, *wrong)


async def test_tokens_are_made_and_revoked_and_end_what_they_began(
    front: Front, server: HttpServer
) -> None:
    asked = {"user_id": "carol", "name": "phone", "scopes": ["memory"], "expires": "1d"}
    async with operator(front, server) as client, page(server) as phone:
        reply = await client.post("/api/host/CreateToken", json=asked | {"scopes": ["root"]})
        assert (reply.status_code, "memory" in reply.text) == (400, True)
        made = (await client.post("/api/host/CreateToken", json=asked)).json()
        assert made["token"]["scopes"] == ["memory"]
        assert (await phone.post("/api/login", json={"token": made["secret"]})).status_code == 200
        listed = await client.post("/api/host/ListTokens", json={})
        assert made["secret"] not in listed.text
        assert [token["name"] for token in listed.json()["tokens"]] == ["phone"]
        await client.post("/api/host/RevokeToken", json={"user_id": "carol", "name": "phone"})
        gone = await phone.get("/api/me")
        assert (gone.status_code, "revoked" in gone.text) == (401, True)


async def test_a_server_that_ends_tells_its_streams_and_does_not_wait_for_them() -> None:
    async with open_front() as front, AsyncExitStack() as stack:
        front.alice.sessions["s"] = pb.Session(session_id="s")
        front.alice.script = waits
        server = await stack.enter_async_context(open_http(front))
        async with (
            operator(front, server) as client,
            client.stream("POST", "/api/users/alice/FollowTurn", json=TURN) as reply,
        ):
            stream = reply.aiter_lines()
            assert "begun" in await anext(stream)
            async with asyncio.timeout(60):
                await stack.aclose()
            assert json.loads(await anext(stream))["error"]["code"] == "unavailable"
