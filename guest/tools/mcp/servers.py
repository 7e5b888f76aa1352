"""All servers of the configuration."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from wire.settings import McpSettings

from guest.tools.base import Tool
from guest.tools.mcp.approved import ApprovedTools
from guest.tools.mcp.server import McpServer
from guest.tools.shell.client import ShellClient


class McpServers:
    """Starts the servers in the background, and keeps them running until it is closed.

    Args:
        settings: Which there are.
        shell: Where they run; the caller closes it afterwards.
        directory: Where the digests of approved tools are kept; no command can reach it.
        secrets: Values of variables, by server and name of the variable as `server/NAME`.
    """

    def __init__(
        self,
        settings: McpSettings,
        shell: ShellClient,
        directory: Path,
        secrets: Mapping[str, str],
    ) -> None:
        approved = ApprovedTools(directory / "mcp.json")
        self._servers = [
            McpServer(name, server, shell, approved, settings.secrets_of(name, secrets))
            for name, server in settings.servers.items()
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Returns at once."""
        self._tasks = [asyncio.create_task(server.serve()) for server in self._servers]

    async def close(self) -> None:
        """End all servers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tools(self) -> Mapping[str, Tool]:
        """What the servers offer at the moment."""
        return {name: tool for server in self._servers for name, tool in server.tools.items()}

    def notices(self) -> list[str]:
        """What a person should know about them."""
        return [notice for server in self._servers for notice in server.notices()]
