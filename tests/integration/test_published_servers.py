"""MCP servers that others have published, started as their READMEs say: from npm by npx, from PyPI
by uvx, in the container tier, fetched through egress into the user's caches."""

import ipaddress
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from wire.egress.rules import PRESETS
from wire.transport import open_channel
from wire.v1 import gateway_pb2_grpc

from runner.config.models import Config
from runner.host.host import Host
from tests.integration.test_mcp_pair import Pair
from tests.support.internet.images import images_of_this_checkout
from tests.support.scratch import SCRATCH

pytestmark = [
    pytest.mark.docker,
    pytest.mark.xdist_group("mcp-container"),
    pytest.mark.asyncio(loop_scope="module"),
]

MACHINES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""What this machine trusts: a mirror of an index may have a certificate of its own."""
SERVERS: Final = {
    "graph": ("npx", "-y", "@modelcontextprotocol/server-memory@2026.8.31"),
    "thinking": ("npx", "-y", "@modelcontextprotocol/server-sequential-thinking@2026.8.31"),
    "time": ("uvx", "mcp-server-time==2026.8.18"),
}
CALLS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "graph_read_graph": ({}, "entities"),
    "thinking_sequentialthinking": (
        {"thought": "one", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False},
        "thoughtHistoryLength",
    ),
    "time_get_current_time": ({"timezone": "Asia/Kathmandu"}, "+05:45"),
}


def networks() -> Iterator[str]:
    """Those of the indexes that are not of the public internet, where this machine has mirrors."""
    for rule in (*PRESETS["npm"], *PRESETS["pypi"]):
        for *_, place in socket.getaddrinfo(rule.removeprefix("https://"), 443):
            if not ipaddress.ip_address(str(place[0])).is_global:
                yield f"{place[0]}/32"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxp-") as root:
        config = Config.model_validate(
            {
                "workspace_root": Path(root) / "ws",
                "runtime_dir": Path(root) / "rt",
                "tier": "container",
                "embedder": {"backend": "none"},
                "container": {"images": images_of_this_checkout()},
                "shell": {"git_identity": "Alice Example <alice@example.org>"},
                "egress": {
                    "ca_file": str(MACHINES),
                    "private_networks": sorted(set(networks())),
                    "shell": {"presets": ["npm", "pypi"]},
                },
                "mcp": {
                    "servers": {
                        name: {"command": words[0], "args": words[1:], "start_timeout_s": 300}
                        for name, words in SERVERS.items()
                    }
                },
            }
        )
        async with (
            Host(config, "alice") as host,
            open_channel(await host.gateway()) as channel,
        ):
            yield Pair(host, gateway_pb2_grpc.GatewayStub(channel))


@pytest.mark.parametrize("tool", CALLS)
async def test_a_published_server_is_fetched_started_listed_and_called(
    pair: Pair, tool: str
) -> None:
    arguments, said = CALLS[tool]
    await pair.tool(tool)
    reply = await pair.call(tool, **arguments)
    assert not reply.is_error, reply.text
    assert said in reply.text


async def _run(pair: Pair, command: str) -> Any:
    return json.loads((await pair.call("shell_exec", command=command)).text)


async def test_what_was_fetched_is_kept_and_commits_are_the_users(pair: Pair) -> None:
    await pair.tool("graph_read_graph")
    await pair.tool("time_get_current_time")
    found = await _run(pair, "ls /cache; ls -A /tmp")
    assert {"npm", "uv"} <= set(found["stdout"].split())
    assert ".npm" not in found["stdout"].split()
    commit = "cd $(mktemp -d) && git init -q && git commit -q --allow-empty -m a && git log -1"
    done = await _run(pair, f"{commit} --format='%an <%ae> %cn'")
    assert done["stdout"] == "Alice Example <alice@example.org> Alice Example\n"
