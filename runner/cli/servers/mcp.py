"""`runner mcp`: the agent for programs that speak the Model Context Protocol, over standard input
and output."""

import signal
from typing import Final

from mcp.server.stdio import stdio_server

from runner.cli.agent import lasting_agent, running_agent
from runner.cli.options import Options
from runner.mcp.server import build

CHANNEL: Final = "mcp"
"""The channel that notes of this account's own clients record."""


async def serve(options: Options) -> None:
    """Serve one client until it leaves. Raises `WireError` if there is no agent to begin with.

    Ctrl-C ends the process at once, because a read of standard input cannot be given up; the agent
    ends what it does for a client that is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with running_agent(options):
        pass
    async with lasting_agent(options, CHANNEL) as agent:
        server = build(lambda _: agent)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
