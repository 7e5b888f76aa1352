"""What a server over HTTP answers besides messages: what is done about it, and what a person and
the model are told."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.integration.test_mcp_http import served
from tests.support.ports import free_port
from tests.support.servers import egress_listener
from tests.support.servers.mcp_servers import Served

ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {}}}}
LOST_WITH_JSON = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "no session"}}


class Server:
    """A server with sessions, as most are. `answers` are given instead of calls' results, in order.

    Attributes:
        called: The texts of calls that were run.
        sessions: Those that it knows.
        lost: What it says of a session that it does not know.
    """

    def __init__(self) -> None:
        self.called: list[str] = []
        self.sessions: set[str] = set()
        self.answers: list[web.Response] = []
        self.lost: dict[str, Any] = {"text": "Not Found"}
        self.begun = 0
        self.always: dict[str, Any] | None = None
        self.path = "/mcp"

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.always is not None:
            return web.Response(**self.always)
        if request.path != self.path:
            return web.Response(status=307, headers={"location": self.path})
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        asked = message.get("id")
        match message["method"]:
            case "initialize":
                self.begun += 1
                session = uuid.uuid4().hex
                self.sessions.add(session)
                result = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "test", "version": "1"},
                }
                return _result(asked, result, {"mcp-session-id": session})
            case "server/discover":
                return web.Response(status=400, text="what?")
        if request.headers.get("mcp-session-id") not in self.sessions:
            return web.Response(status=404, **self.lost)
        match message["method"]:
            case "tools/list":
                return _result(asked, {"tools": [ECHO]})
            case "tools/call":
                if self.answers:
                    return self.answers.pop(0)
                self.called.append(message["params"]["arguments"]["text"])
                return _result(asked, {"content": [{"type": "text", "text": "done"}]})
        return web.Response(status=202)


def _result(asked: Any, result: Any, headers: dict[str, str] | None = None) -> web.Response:
    body = {"jsonrpc": "2.0", "id": asked, "result": result}
    return web.json_response(body, headers=headers)


@asynccontextmanager
async def agent_of(server: Server, directory: Path, **settings: Any) -> AsyncIterator[Served]:
    """An agent that reaches the server by the egress_listener."""
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    handler = egress_listener.forwarding({"mcp-docs": f"http://127.0.0.1:{port}/mcp"})
    try:
        async with served(directory, handler, **settings) as agent:
            yield agent
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("lost", [{"text": "Not Found"}, {"body": json.dumps(LOST_WITH_JSON)}])
async def test_a_forgotten_session_is_begun_anew_and_what_was_asked_is_done_once(
    tmp_path: Path, lost: dict[str, Any]
) -> None:
    server = Server()
    server.lost = lost | ({"content_type": "application/json"} if "body" in lost else {})
    async with agent_of(server, tmp_path) as agent:
        await agent.until("docs_echo")
        server.sessions.clear()
        results = await asyncio.gather(
            *(agent.call("docs_echo", text=text) for text in ("a", "b", "c"))
        )
        assert [each.is_error for each in results] == [False] * 3
        assert sorted(server.called) == ["a", "b", "c"]
        assert server.begun == 2


async def test_a_server_that_forgets_at_once_is_not_asked_for_ever(tmp_path: Path) -> None:
    server = Server()
    async with agent_of(server, tmp_path) as agent:
        await agent.until("docs_echo")
        server.answers = [web.Response(status=404) for _ in range(3)]
        result = await agent.call("docs_echo", text="x")
        assert "forgets its sessions at once; nothing was done" in result.text
        assert len(server.answers) == 1


@pytest.mark.parametrize(
    ("status", "said", "unsure"),
    [
        (503, "it fails (HTTP 503): see its own log", True),
        (500, "it fails (HTTP 500): see its own log", True),
        (429, "it limits how often it is asked (429): wait a little", False),
        (401, "it wants a login (401): runner tools login docs; or name a variable", False),
        (302, "it redirects to http://mcp.example/login: correct mcp.servers.docs.url", False),
    ],
)
async def test_another_answer_is_told_and_the_call_not_repeated(
    tmp_path: Path, status: int, said: str, unsure: bool
) -> None:
    server = Server()
    async with agent_of(server, tmp_path) as agent:
        await agent.until("docs_echo")
        headers = {"location": "http://mcp.example/login?secret=1"} if status == 302 else None
        server.answers = [web.Response(status=status, text="<html>", headers=headers)]
        result = await agent.call("docs_echo", text="x")
        assert result.is_error
        assert said in result.text
        assert ("check before trying again" in result.text) == unsure
        assert server.called == []
        assert not (await agent.call("docs_echo", text="y")).is_error
        assert server.begun == 1


@pytest.mark.parametrize("code", [-32000, -32001])
async def test_an_error_of_the_server_is_told_in_its_words_whatever_its_code(
    tmp_path: Path, code: int
) -> None:
    server = Server()
    async with agent_of(server, tmp_path) as agent:
        await agent.until("docs_echo")
        body = {**LOST_WITH_JSON, "error": {"code": code, "message": "no such page"}}
        server.answers = [web.json_response(body, status=400)]
        result = await agent.call("docs_echo", text="x")
        assert "no such page" in result.text
        assert "within" not in result.text
        assert result.material == ("mcp: docs_echo",)


@pytest.mark.parametrize("location", ["/mcp/", "http://mcp.example/mcp/", "mcp/"])
async def test_a_redirect_below_the_address_is_followed(tmp_path: Path, location: str) -> None:
    server = Server()
    server.path = "/mcp/"
    inner = server.handle

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/mcp":
            return web.Response(status=308, headers={"location": location})
        return await inner(request)

    server.handle = handle  # type: ignore[method-assign]
    async with agent_of(server, tmp_path) as agent:
        await agent.until("docs_echo")
        assert not (await agent.call("docs_echo", text="x")).is_error


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            {"status": 307, "headers": {"location": "https://other.example/mcp/?k=1"}},
            "it redirects to https://other.example/mcp/: correct mcp.servers.docs.url",
        ),
        (
            {"status": 308, "headers": {"location": "/mcp2"}},
            "it redirects to http://mcp.example/mcp2: correct mcp.servers.docs.url",
        ),
        (
            {"status": 302, "headers": {"location": "/{0}/{setting.x}"}},
            "it redirects to http://mcp.example/{0}/{setting.x}: correct mcp.servers.docs.url",
        ),
        (
            {"status": 307, "headers": {"location": "/mcp/../admin"}},
            "it redirects to http://mcp.example/admin: correct mcp.servers.docs.url",
        ),
        (
            {"status": 307, "headers": {"location": "http://mcp.example/mcp/../../mcp-other/"}},
            "it redirects to http://mcp.example/mcp/../../mcp-other/: correct mcp.servers.docs.url",
        ),
        ({"status": 401}, "it wants a login (401): runner tools login docs; or name a variable"),
        ({"status": 403}, "it refuses that login (403): correct the variable in mcp.servers.docs."),
        ({"status": 404}, "there is no MCP server at this address: correct mcp.servers.docs.url"),
        ({"status": 405}, "there is no MCP server at this address: correct mcp.servers.docs.url"),
        ({"status": 502, "text": "<html>"}, "it fails (HTTP 502): see its own log"),
        ({"status": 200, "text": "<html>"}, "its answer is not an MCP message (text/plain"),
        ({"status": 307, "headers": {"location": "http://[::1/"}}, "it fails (HTTP 307): see its"),
    ],
)
async def test_a_server_that_cannot_be_used_says_why(
    tmp_path: Path, answer: dict[str, Any], told: str
) -> None:
    server = Server()
    server.always = answer
    async with agent_of(server, tmp_path) as agent:
        notice = await agent.notice(told)
        assert notice.startswith("the MCP server docs is away: ")
        assert "has closed the connection" not in notice
