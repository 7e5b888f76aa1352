"""MCP servers with an address: the official SDK's server, reached by the egress_listener."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from wire.settings import McpSettings

from guest.tools.mcp.connection import MESSAGE_MAX_BYTES
from guest.tools.mcp.server import McpServers
from tests.support.ports import free_port
from tests.support.servers import egress_listener
from tests.support.servers.mcp_servers import GUARD_S, Served
from tests.support.settings import EGRESS_TOKEN

_PROGRAM = """
import sys
from tests.support.servers.mcp_official import server

@server.tool()
def long(length: int) -> str:
    return "x" * length

server.run("streamable-http", port=int(sys.argv[1]))
"""


@contextmanager
def program(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The server, in a process of its own."""
    running = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(port)])
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@asynccontextmanager
async def served(
    directory: Path, handler: egress_listener.Handler, **settings: Any
) -> AsyncIterator[Served]:
    """The tools of the server `docs` as an agent without a shell has them."""
    docs = {"url": "http://mcp.example/mcp", "timeout_s": GUARD_S, **settings}
    configured = McpSettings.model_validate({"servers": {"docs": docs}})
    async with egress_listener.served(directory / "egress_listener", handler) as opened:
        running = McpServers(configured, None, directory, {}, opened)
        running.start()
        try:
            yield Served(running, None)  # type: ignore[arg-type]
        finally:
            await running.close()


async def test_its_tools_are_called_like_those_of_a_command(tmp_path: Path) -> None:
    port = free_port()
    seen: list[web.BaseRequest] = []
    inner = egress_listener.forwarding({"mcp-docs": f"http://127.0.0.1:{port}/mcp"})

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        return await inner(request)

    with program(port):
        async with served(tmp_path, handler) as agent:
            await agent.until("docs_distance")
            assert {"docs_distance", "docs_slowly"} <= agent.names
            start, end = {"x": 0, "y": 0}, {"x": 3, "y": 4}
            result = await agent.call("docs_distance", start=start, end=end)
            assert "5" in result.text
            counted = await agent.call("docs_slowly", steps=3)
            assert "counted" in counted.text
    assert {each.headers["oxydra-token"] for each in seen} == {EGRESS_TOKEN}


async def test_a_server_that_has_gone_and_comes_back_is_found_again(tmp_path: Path) -> None:
    port = free_port()
    handler = egress_listener.forwarding({"mcp-docs": f"http://127.0.0.1:{port}/mcp"})
    async with served(tmp_path, handler) as agent:
        with program(port) as first:
            await agent.until("docs_distance")
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
        result = await agent.call("docs_distance", start={"x": 0, "y": 0}, end={"x": 3, "y": 4})
        assert result.is_error
        await agent.notice("the MCP server docs is away")
        with program(port):
            async with asyncio.timeout(GUARD_S):
                while agent.servers.notices():
                    await asyncio.sleep(0.05)
            start, end = {"x": 0, "y": 0}, {"x": 3, "y": 4}
            assert "5" in (await agent.call("docs_distance", start=start, end=end)).text


async def test_an_answer_that_is_too_long_is_broken_off(tmp_path: Path) -> None:
    port = free_port()
    handler = egress_listener.forwarding({"mcp-docs": f"http://127.0.0.1:{port}/mcp"})
    with program(port):
        async with served(tmp_path, handler) as agent:
            await agent.until("docs_long")
            result = await agent.call("docs_long", length=MESSAGE_MAX_BYTES + 1)
            assert result.is_error
            assert (
                "5"
                in (
                    await agent.call("docs_distance", start={"x": 0, "y": 0}, end={"x": 3, "y": 4})
                ).text
            )


@pytest.mark.parametrize(
    ("status", "kind", "why"), [(503, "not-ready", "it is starting"), (403, "rule", "deny *")]
)
async def test_a_listener_that_does_not_let_it_out_is_named(
    tmp_path: Path, status: int, kind: str, why: str
) -> None:
    async with served(tmp_path, egress_listener.refusing(status, kind, why)) as agent:
        assert why in await agent.notice("egress guest")


async def test_a_listener_that_nobody_serves_is_named(tmp_path: Path) -> None:
    configured = McpSettings.model_validate({"servers": {"docs": {"url": "http://mcp.example"}}})
    running = McpServers(
        configured, None, tmp_path, {}, egress_listener.egress_at(tmp_path / "nobody")
    )
    running.start()
    notice = await Served(running, None).notice("egress guest")  # type: ignore[arg-type]
    await running.close()
    assert "does not answer" in notice
