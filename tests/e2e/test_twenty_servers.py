"""Twenty servers of others, from npm and PyPI, unchanged: added by `runner tools add --json`, and
each started in a guest of its own. What came of it is written to docs/mcp-servers-tried.md."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.config.loading import load_settings
from runner.config.models import Config
from runner.host.host import Host
from tests.integration.test_published_servers import MACHINES, networks
from tests.support.internet.images import images_of_this_checkout
from tests.support.scratch import SCRATCH

pytestmark = [
    pytest.mark.long,
    pytest.mark.docker,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]

PAGE: Final = Path(__file__).parents[2] / "docs" / "mcp-servers-tried.md"
HEAD: Final = """\
# MCP servers that were tried

Made by `tests/e2e/test_twenty_servers.py`, which `make test-long` runs: twenty servers that others
have published, at exact versions, unchanged. Each was added with `runner tools add --json`, ran in
a guest of its own in the container tier, was listed and called. Its tools were there so many
seconds after the agent, with nothing in any cache; eight are started at a time.

| server | way | tools | call | result | seconds | may reach |
|---|---|---|---|---|---|---|
"""
GUARD_S: Final = 240.0
GIVEN_S: Final = 120.0


@dataclass(frozen=True)
class Tried:
    """A server: its command, a call of it, and a word of the result."""

    words: str
    tool: str
    said: str
    arguments: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


THOUGHT: Final = {
    "thought": "a",
    "thoughtNumber": 1,
    "totalThoughts": 1,
    "nextThoughtNeeded": False,
}
OLDER: Final = {"UV_EXCLUDE_NEWER": "2025-10-01"}
"""For a server whose author has not met the newer versions of its libraries."""
SERVERS: Final = {
    "everything": Tried(
        "npx -y @modelcontextprotocol/server-everything@2026.8.31",
        "get-tiny-image",
        "pictures that follow, in this turn alone: 1",
    ),
    "graph": Tried(
        "npx -y @modelcontextprotocol/server-memory@2026.8.31", "read_graph", "entities"
    ),
    "disk": Tried(
        "npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /shared",
        "write_file",
        "Successfully wrote",
        {"path": "/shared/disk.txt", "content": "x"},
    ),
    "thinking": Tried(
        "npx -y @modelcontextprotocol/server-sequential-thinking@2026.8.31",
        "sequentialthinking",
        "thoughtHistoryLength",
        THOUGHT,
    ),
    "repository": Tried(
        "npx -y @cyanheads/git-mcp-server@2.15.3 /shared",
        "git_status",
        "currentBranch",
        {"path": "/shared"},
    ),
    "dbhub": Tried(
        "npx -y @bytebase/dbhub@1.4.0 --dsn sqlite:///shared/data.sqlite",
        "execute_sql",
        "42",
        {"sql": "select 40 + 2 as answer"},
    ),
    "folders": Tried(
        "npx -y @agent-infra/mcp-server-filesystem@1.2.29 --allowed-directories /shared",
        "list_directory",
        "page.html",
        {"path": "/shared"},
    ),
    "primeng": Tried("npx -y @primeng/mcp@22.1.1", "version", "22.1.1"),
    "time": Tried(
        "uvx mcp-server-time==2026.10.19",
        "get_current_time",
        "+05:45",
        {"timezone": "Asia/Kathmandu"},
    ),
    "git": Tried(
        "uvx mcp-server-git==2026.10.19 --repository /shared",
        "git_status",
        "On branch",
        {"repo_path": "/shared"},
    ),
    "sqlite": Tried(
        "uvx mcp-server-sqlite==2025.4.25 --db-path /shared/other.sqlite",
        "create_table",
        "created",
        {"query": "CREATE TABLE t (a)"},
        OLDER,
    ),
    "calculator": Tried(
        "uvx mcp-server-calculator==0.2.1", "calculate", "42", {"expression": "6*7"}
    ),
    "excel": Tried(
        "uvx excel-mcp-server==2.2.2 stdio",
        "create_workbook",
        "book.xlsx",
        {"path": "/shared/book.xlsx"},
    ),
    "maths": Tried("uvx chuk-mcp-math-server==0.3.3", "add", "42", {"a": 40, "b": 2}),
    "safe-files": Tried(
        "uvx filesystem-mcp==1.0.2 /shared", "list_directory", "page.html", {"path": "/shared"}
    ),
    "clock": Tried("uvx mcp-simple-timeserver==3.3.2", "get_utc", "UTC Time"),
    "markitdown": Tried(
        "uvx markitdown-mcp==0.0.1a8",
        "convert_to_markdown",
        "# Heading",
        {"uri": "file:///shared/page.html"},
    ),
    "duckdb": Tried(
        "uvx mcp-server-duckdb==1.1.0 --db-path /shared/data.duckdb",
        "query",
        "42",
        {"query": "select 40 + 2 as answer"},
        OLDER,
    ),
    "hashes": Tried(
        "uvx --from hash-utils-ai-mcp==1.0.11 hash_utils_ai_mcp",
        "hash_text",
        "ca978112ca1b",
        {"text": "a"},
        {"UV_EXCLUDE_NEWER": "2026-06-30"},
    ),
    "colors": Tried(
        "uvx color-mcp-server==0.1.0",
        "tool_get_color_info_local",
        "255",
        {"color_hex": "#ff0000"},
        {"UV_EXCLUDE_NEWER": "2026-06-30"},
    ),
}


SEES_FILES: Final = ("excel", "markitdown")
"""Those that are told of files only when they are called."""


def added(directory: Path) -> Config:
    """The settings, as `runner tools add --json` writes them."""
    file = directory / "runner.toml"
    file.touch()
    servers = {}
    for name, tried in SERVERS.items():
        command, *args = tried.words.split()
        given = {"command": command, "args": args, "env": tried.env}
        servers[name] = given | ({"shared": "rw"} if name in SEES_FILES else {})
    words = (sys.executable, "-m", "runner.cli", "--config", str(file), "tools", "add")
    done = subprocess.run(
        [*words, "--json", "-", "--yes"],
        input=json.dumps({"mcpServers": servers}),
        env={**os.environ, "XDG_CONFIG_HOME": str(directory)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return load_settings(file, environ={}).config


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[Host]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxt-") as root:
        found = added(Path(root))
        config = Config.model_validate(
            {
                "workspace_root": Path(root) / "ws",
                "runtime_dir": Path(root) / "rt",
                "tier": "container",
                "embedder": {"backend": "none"},
                "container": {"images": images_of_this_checkout()},
                "egress": {
                    "ca_file": MACHINES,
                    "private_networks": tuple(sorted(set(networks()))),
                },
                "mcp": found.mcp,
            }
        )
        async with Host(config, "alice") as running:
            shared = running.workspace.path / "shared"
            (shared / "page.html").write_text("<h1>Heading</h1>")
            (shared / "data.sqlite").touch()
            yield running


async def offered(
    gateway: "gateway_pb2_grpc.GatewayAsyncStub", name: str, since: float
) -> tuple[int, float]:
    """How many tools a server has, as soon as it has some, and how long that took."""
    async with asyncio.timeout(GUARD_S):
        while True:
            listed = (await gateway.ListTools(pb.ListToolsRequest())).tools
            if count := sum(tool.name.startswith(f"{name}_") for tool in listed):
                return count, time.monotonic() - since
            await asyncio.sleep(0.5)


async def test_twenty_published_servers_are_added_started_listed_and_called(host: Host) -> None:
    rows: dict[str, str] = {}
    wrong: dict[str, str] = {}
    async with open_channel(await host.gateway()) as channel:
        gateway: Any = gateway_pb2_grpc.GatewayStub(channel)
        began = time.monotonic()
        listing = {name: asyncio.create_task(offered(gateway, name, began)) for name in SERVERS}
        request = pb.CallToolRequest(
            name="shell_exec", arguments_json=json.dumps({"command": "git init -q /shared"})
        )
        await gateway.CallTool(request)
        for name, tried in SERVERS.items():
            try:
                count, took = await listing[name]
                call = pb.CallToolRequest(
                    name=f"{name}_{tried.tool}", arguments_json=json.dumps(tried.arguments)
                )
                reply = await gateway.CallTool(call, timeout=GIVEN_S)
            except TimeoutError:
                wrong[name] = "\n".join((await gateway.Hello(pb.HelloRequest())).notices)
                continue
            if reply.is_error or tried.said not in reply.text:
                wrong[name] = reply.text[:500]
            way, package = re.split(r" (?:-y |--from )?", tried.words, maxsplit=1)
            reach = "npm" if way == "npx" else "PyPI"
            rows[name] = (
                f"| {package.split()[0]} | {way} | {count} | `{tried.tool}` | …{tried.said}… "
                f"| {took:.0f} | {reach} |"
            )
    assert wrong == {}
    assert len(rows) == 20
    PAGE.write_text(HEAD + "\n".join(rows.values()) + "\n")
