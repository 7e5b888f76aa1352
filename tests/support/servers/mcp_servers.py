"""MCP servers of `mcp_server.py` in a real shell daemon, behind a pipeline."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from wire.settings import McpSettings

from guest.tools.base import Approve, ToolResult
from guest.tools.mcp.server import McpServers
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.shell.client import ShellClient
from tests.support import parties
from tests.support.guests.shell_backends import TOKEN, Daemon
from tests.support.tools.pipelines import ALICE, SECRET

SCRIPT = Path(__file__).with_name("mcp_server.py")
GUARD_S = 60


class Served:
    """The servers, and a pipeline with their tools and no others."""

    def __init__(self, servers: McpServers, daemon: Daemon) -> None:
        self.servers = servers
        self.daemon = daemon
        self.pipeline = ToolPipeline(
            Registry([], foreign=servers.tools), scrubber=Scrubber([SECRET])
        )

    @property
    def names(self) -> set[str]:
        return {tool.name for tool in self.pipeline.tools()}

    async def call(self, name: str, approve: Approve | None = None, **arguments: Any) -> ToolResult:
        return await self.pipeline.call(ALICE, name, arguments, approve)

    async def said(self, name: str, **arguments: Any) -> str:
        """The content of an answer."""
        result = await self.call(name, **arguments)
        assert not result.is_error, result.text
        return str(json.loads(result.text.split("\nNote: ")[0])["content"])

    async def until(self, name: str, *, offered: bool = True) -> None:
        async with asyncio.timeout(GUARD_S):
            while (name in self.names) is not offered:
                await asyncio.sleep(0.01)

    async def notice(self, words: str) -> str:
        """The first notice with these words, as soon as there is one."""
        async with asyncio.timeout(GUARD_S):
            while True:
                for notice in self.servers.notices():
                    if words in notice:
                        return notice
                await asyncio.sleep(0.01)

    async def took(self, name: str, **arguments: Any) -> tuple[ToolResult, float]:
        """A call's result, and its duration in seconds."""
        began = time.monotonic()
        result = await self.call(name, **arguments)
        return result, time.monotonic() - began


def settings(way: str, *more: str, **fields: Any) -> dict[str, Any]:
    """The settings of a server of that way."""
    return {
        "command": sys.executable,
        "args": (str(SCRIPT), way, *more),
        "timeout_s": GUARD_S,
        **fields,
    }


@asynccontextmanager
async def served(
    daemon: Daemon, directory: Path, secrets: dict[str, str] | None = None, **servers: Any
) -> AsyncIterator[Served]:
    """`servers` are settings by name. Approved tools are kept in `directory`."""
    client = ShellClient(parties.shell(daemon.endpoint, TOKEN))
    configured = McpSettings.model_validate({"servers": servers})
    running = McpServers(configured, client, directory, secrets or {})
    running.start()
    try:
        yield Served(running, daemon)
    finally:
        await running.close()
        await client.close()
