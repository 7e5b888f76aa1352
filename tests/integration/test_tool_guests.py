"""MCP servers in guests of their own, in the process tier."""

import asyncio
import hashlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import pytest_asyncio
from wire.settings import EmbedderSettings, McpSettings
from wire.transport import open_channel
from wire.v1 import gateway_pb2_grpc

from runner.config.models import Config
from runner.host.host import Host
from tests.support.commands.household import Household
from tests.support.scratch import SCRATCH
from tests.support.tools.tool_guests import SERVER, Tools, server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.bubblewrap,
    pytest.mark.xdist_group("tool-guests"),
]

GUARD_S: Final = 300
SECRET: Final = "the-dice-are-loaded-0123456789"


SERVERS: Final = {
    "keyed": server(secret_env={"LOADED": "DICE_SECRET"}),
    "reads": server(isolated=True, shared="ro", cwd="/shared"),
    "fetches": server(isolated=True, shared="downloads", cwd="/shared/downloads"),
    "beside": server(),
}


def guests_of(home: Path, name: str) -> list[psutil.Process]:
    """The bubblewraps around the guest of a server."""
    ours = str(home / "tools" / name / "tmp")
    found = psutil.process_iter(["cmdline"])
    words = [(each, each.info["cmdline"] or ()) for each in found]
    return [each for each, line in words if ours in line and "--die-with-parent" in line]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tools() -> AsyncIterator[Tools]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxt-") as root:
        config = Config(
            workspace_root=Path(root) / "ws",
            runtime_dir=Path(root) / "rt",
            tier="process",
            embedder=EmbedderSettings(backend="none"),
            mcp=McpSettings.model_validate({"servers": SERVERS}),
        )
        async with (
            Host(config, "alice", environ={"DICE_SECRET": SECRET}) as host,
            open_channel(await host.gateway()) as channel,
        ):
            yield Tools(host, gateway_pb2_grpc.GatewayStub(channel))


async def test_each_has_a_guest_of_its_own(tools: Tools) -> None:
    home = tools.host.workspace.path
    (home / "shared" / "seen.txt").write_text("seen")
    assert await tools.run("beside", "cat seen.txt; pwd") == "seen/shared\n"
    reads = await tools.run("reads", "cat seen.txt; pwd; touch x; echo own > /tmp/own")
    assert reads.startswith("seen/shared\n")
    assert "Read-only file system" in reads
    keyed = await tools.run("keyed", "pwd; ls /shared /vault /tmp/own; ps -A -o args")
    assert keyed.startswith("/tmp\n")
    assert keyed.count("No such file") == 3
    assert "seen" not in keyed
    assert keyed.count("import json, subprocess") == 1
    assert (home / "tools" / "reads" / "tmp" / "own").read_text() == "own\n"
    assert {"tool-keyed", "tool-reads"} <= await tools.guests()


async def test_one_sees_of_shared_its_downloads_alone(tools: Tools) -> None:
    home = tools.host.workspace.path
    said = await tools.run("fetches", "pwd; ls -A /shared; echo here > file; touch /shared/x")
    assert said.startswith("/shared/downloads\ndownloads\n")
    assert "Read-only file system" in said
    assert (home / "shared/downloads/file").read_text() == "here\n"
    assert await tools.run("beside", "cat downloads/file") == "here\n"


async def test_nothing_else_takes_the_place_of_downloads(tools: Tools) -> None:
    await tools.run("fetches", "true")
    await tools.run("beside", "rm -rf downloads; ln -s ../vault downloads")
    (guest,) = guests_of(tools.host.workspace.path, "fetches")
    guest.kill()
    async with asyncio.timeout(GUARD_S):
        while (
            "/shared/downloads; it is a symbolic link"
            not in (await tools.call("fetches_run", command="true")).text
        ):
            await asyncio.sleep(0.05)
    await tools.run("beside", "rm downloads")
    assert await tools.run("fetches", "pwd") == "/shared/downloads\n"


async def test_a_secret_is_in_its_own_guest_alone(tools: Tools) -> None:
    look = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"
    look += " | grep -a ^LOADED= | sort -u | sha256sum"
    seen = {name: await tools.run(name, look) for name in ("keyed", "reads", "beside")}
    of_secret, nothing = (
        hashlib.sha256(content).hexdigest() for content in (f"LOADED={SECRET}\n".encode(), b"")
    )
    assert of_secret in seen.pop("keyed")
    assert all(nothing in each for each in seen.values())
    shown = await tools.run("keyed", "echo $LOADED")
    assert shown.strip()
    assert SECRET not in shown


async def test_one_that_dies_is_started_once_again(tools: Tools) -> None:
    await tools.run("keyed", "true")
    daemons = guests_of(tools.host.workspace.path, "keyed")
    assert len(daemons) == 1
    for each in daemons:
        each.kill()
    psutil.wait_procs(daemons, GUARD_S)
    assert await tools.run("keyed", "echo here") == "here\n"
    assert len(guests_of(tools.host.workspace.path, "keyed")) == 1


async def test_they_end_with_the_agent_and_come_back_with_it(tools: Tools) -> None:
    await tools.run("keyed", "echo kept > /tmp/kept")
    (before,) = guests_of(tools.host.workspace.path, "keyed")
    await tools.host.restart("agent")
    async with open_channel(await tools.host.gateway()) as channel:
        again = Tools(tools.host, gateway_pb2_grpc.GatewayStub(channel))
        assert await again.run("keyed", "cat /tmp/kept") == "kept\n"
    (after,) = guests_of(tools.host.workspace.path, "keyed")
    assert before != after
    assert not before.is_running()


async def test_a_killed_runner_leaves_none() -> None:
    await asyncio.to_thread(killed_runner_leaves_none)


def killed_runner_leaves_none() -> None:
    house = Household()
    house.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    settings = f"[mcp.servers.keyed]\ncommand = 'python3'\nargs = ['-c', {json.dumps(SERVER)}]\n"
    (house.working_directory / "runner.toml").write_text(settings + "isolated = true\n")

    def status() -> str:
        said = house.run("status", "--json").stdout
        return said if "tool-keyed" in said else ""

    try:
        runner = house.begin("start")
        home = Path(json.loads(until(status))["workspace"])
        running = until(lambda: guests_of(home, "keyed"))
        runner.kill()
        runner.wait(GUARD_S)
        assert psutil.wait_procs(running, GUARD_S)[1] == []
        assert guests_of(home, "keyed") == []
    finally:
        (house.working_directory / "runner.toml").unlink()
        house.stop()
        house.remove()


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + GUARD_S
    while not (what := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return what
