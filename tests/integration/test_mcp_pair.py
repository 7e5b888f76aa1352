"""The guide's MCP server in the shell of a real pair: found, called, killed and started again."""

import asyncio
import json
import re
import tempfile
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from wire.settings import EmbedderSettings
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.config.models import Config
from runner.host.host import Host
from tests.support.scratch import SCRATCH

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUIDE: Final = Path(__file__).parents[2] / "docs" / "guide" / "mcp-servers.md"
GUARD_S: Final = 300
TIERS = [
    pytest.param("process", marks=[pytest.mark.bubblewrap, pytest.mark.xdist_group("mcp-process")]),
    pytest.param("container", marks=[pytest.mark.docker, pytest.mark.xdist_group("mcp-container")]),
]


def block(language: str) -> str:
    """The guide's first block of code in a language."""
    found = re.search(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    assert found is not None
    return found[1]


class Pair:
    """A host with the guide's configuration, and its agent."""

    def __init__(self, host: Host, gateway: Any) -> None:
        self.host = host
        self.gateway = gateway

    @property
    def script(self) -> Path:
        return self.host.workspace.path / "shared" / "dice.py"

    async def notices(self) -> str:
        return "\n".join((await self.gateway.Hello(pb.HelloRequest())).notices)

    async def tool(self, name: str) -> pb.ToolDescription:
        """The tool, as soon as it is offered; the server's program is there from now on."""
        self.script.write_text(block("python"))
        async with asyncio.timeout(GUARD_S):
            while True:
                listed: pb.ListToolsReply = await self.gateway.ListTools(pb.ListToolsRequest())
                for tool in listed.tools:
                    if tool.name == name:
                        return tool
                await asyncio.sleep(0.05)

    async def call(self, name: str, **arguments: Any) -> pb.CallToolReply:
        request = pb.CallToolRequest(name=name, arguments_json=json.dumps(arguments))
        reply: pb.CallToolReply = await self.gateway.CallTool(request)
        return reply

    async def answers(self) -> None:
        """Wait until the server answers."""
        async with asyncio.timeout(GUARD_S):
            while (await self.call("dice_roll", dice=1)).is_error:
                await asyncio.sleep(0.05)

    async def program(self) -> str:
        """The server's process, as commands see it."""
        look = "grep -al '[d]ice.py' /proc/[0-9]*/cmdline; true"
        return str(json.loads((await self.call("shell_exec", command=look)).text)["stdout"])


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=TIERS)
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    mcp = tomllib.loads(block("toml"))["mcp"]
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxm-") as root:
        config = Config(
            workspace_root=Path(root) / "ws",
            runtime_dir=Path(root) / "rt",
            tier=request.param,
            embedder=EmbedderSettings(backend="none"),
            mcp=mcp,
        )
        async with (
            Host(config, "alice", environ={"TZ": "Asia/Kathmandu"}) as host,
            open_channel(await host.gateway()) as channel,
        ):
            yield Pair(host, gateway_pb2_grpc.GatewayStub(channel))


async def test_it_is_found_once_it_is_there_and_called(pair: Pair) -> None:
    async with asyncio.timeout(GUARD_S):
        while "the MCP server dice is away: it ended with exit code" not in await pair.notices():
            await asyncio.sleep(0.05)
    assert "dice.py" in await pair.notices()
    assert "the MCP server dice is away" in "\n".join((await pair.host.status()).notices)
    found = await pair.tool("dice_roll")
    assert found.safety == "read_only"
    assert json.loads(found.arguments_schema_json)["properties"]["dice"]["maximum"] == 20
    rolled = await pair.call("dice_roll", dice=3)
    assert re.fullmatch(r"the dice show \[\d, \d, \d\]", json.loads(rolled.text)["content"])
    refused = await pair.call("dice_roll", dice=21)
    assert (refused.is_error, refused.text) == (True, "dice: 21 is greater than the maximum of 20")
    assert "MCP server" not in await pair.notices()


async def test_it_has_the_zone_of_the_agent(pair: Pair) -> None:
    await pair.tool("dice_roll")
    its = "grep -al '[d]ice.py' /proc/[0-9]*/cmdline | sed s/cmdline/environ/ | xargs cat"
    zone = await pair.call("shell_exec", command=f"{its} | tr '\\0' '\\n' | grep TZ=")
    assert json.loads(zone.text)["stdout"] == "TZ=<+0545>-5:45\n"


async def test_it_comes_back_when_it_was_killed_and_with_its_shell(pair: Pair) -> None:
    await pair.tool("dice_roll")
    before = await pair.program()
    await pair.call("shell_exec", command=f"kill {before.split('/')[2]}")
    await pair.answers()
    assert await pair.program() not in ("", before)
    await pair.host.restart("shell")
    await pair.answers()
