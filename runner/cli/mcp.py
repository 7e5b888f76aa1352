"""`runner mcp`: the agent for programs that speak the Model Context Protocol, over standard input
and output."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mcp.server.stdio import stdio_server

from runner.access.callers import Caller, Callers
from runner.cli.agent import running_agent
from runner.cli.options import Options
from runner.client.access import AccessFile
from runner.client.gateway import GatewayClient
from runner.mcp.server import build

CHANNEL: Final = "mcp"
"""The channel that notes of this account's own clients record."""


async def serve(options: Options) -> None:
    """Serve one client until it leaves. Raises `WireError` if there is no agent to begin with."""
    async with running_agent(options):
        pass
    async with _lasting(options) as agent:
        server = build(lambda _: agent)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def _lasting(options: Options) -> AsyncIterator[GatewayClient]:
    """The agent, also after it was started again."""
    if options.connect is not None:
        channel = AccessFile.read(options.connect).open_channel()
        async with GatewayClient(channel, CHANNEL) as agent:
            yield agent
        return
    async with Callers.locate(options.load()) as callers:
        yield GatewayClient(callers.agent(Caller.at_terminal(options.user_id, CHANNEL)), CHANNEL)
