"""A server of the official SDK, of the protocol's newest version, as tools of the agent."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.guests.shell_backends import Daemon, ready_daemon
from tests.support.servers.mcp_servers import SCRIPT, served


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    async with ready_daemon() as running:
        yield running
        running.stop()


async def test_its_tools_are_offered_checked_and_called(daemon: Daemon, tmp_path: Path) -> None:
    official = {"command": sys.executable, "args": (str(SCRIPT.with_name("mcp_official.py")),)}
    async with served(daemon, tmp_path, sdk=official) as servers:
        await servers.until("sdk_distance")
        assert servers.servers.notices() == []
        point = {"x": 0, "y": 0}
        assert await servers.said("sdk_distance", start=point, end={"x": 3, "y": 4}) == "5.0"
        assert await servers.said("sdk_slowly", steps=5) == "counted"
        refused = await servers.call("sdk_distance", start={"x": "a", "y": 0}, end=point)
        assert refused.text == "start.x: 'a' is not of type 'number'"
        assert "one" in (await servers.call("sdk_slowly", steps="one")).text
