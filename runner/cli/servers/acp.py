"""`runner acp`: the agent for editors that speak the Agent Client Protocol, over standard input and
output."""

from typing import Final, cast

import acp

from runner.acp.agent import EditorAgent
from runner.cli.agent import lasting_agent, running_agent
from runner.cli.options import Options

CHANNEL: Final = "acp"
"""The channel that sessions and notes of this account's own editors record."""


async def serve(options: Options) -> None:
    """Serve one editor until it leaves. Raises `WireError` if there is no agent to begin with."""
    async with running_agent(options):
        pass
    async with lasting_agent(options, CHANNEL) as gateway:
        agent = EditorAgent(gateway)
        try:
            await acp.run_agent(cast("acp.Agent", agent))
        finally:
            await agent.close()
