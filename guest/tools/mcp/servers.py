"""All servers of the configuration."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from wire.settings import McpSettings

from guest.door import Door
from guest.tools.base import Tool
from guest.tools.mcp.approved import ApprovedTools
from guest.tools.mcp.server import TOOLS_MAX, McpServer, by_door, in_shell, named
from guest.tools.shell.client import ShellClient


class McpServers:
    """Starts the servers in the background, and keeps them running until it is closed.

    Args:
        settings: Which there are.
        shell: Where those with a command run; the caller closes it afterwards. Without it there are
            none of these.
        directory: Where the digests of approved tools are kept; no command can reach it.
        secrets: Values of variables, by server and name of the variable as `server/NAME`.
        door: By which those with an address are reached.
    """

    def __init__(
        self,
        settings: McpSettings,
        shell: ShellClient | None,
        directory: Path,
        secrets: Mapping[str, str],
        door: Door | None = None,
    ) -> None:
        approved = ApprovedTools(directory / "mcp.json")
        self._servers: list[McpServer] = []
        for name, server in settings.servers.items():
            if server.url and door is not None:
                connect = by_door(name, server, door)
            elif server.command and shell is not None:
                connect = in_shell(server, shell, settings.secrets_of(name, secrets))
            else:
                continue
            self._servers.append(McpServer(name, server, connect, approved))
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
        return dict([*self._all().items()][:TOOLS_MAX])

    def notices(self) -> list[str]:
        """What a person should know about them."""
        notices = [notice for server in self._servers for notice in server.notices()]
        if more := [*self._all()][TOOLS_MAX:]:
            notices.append(
                f"the MCP servers have over {TOOLS_MAX} tools together, more than a provider "
                f"takes; {named(more)} not offered: choose with mcp.servers.NAME.tools"
            )
        return notices

    def _all(self) -> dict[str, Tool]:
        return {name: tool for server in self._servers for name, tool in server.tools.items()}
