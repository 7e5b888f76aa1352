"""A host over real processes, with a guest that does as little as a guest can."""

import asyncio
import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from wire.settings import EmbedderSettings

from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.host.host import Host
from runner.host.supervisor import Policy
from runner.workspace.mounts import MOUNTS, Role
from runner.workspace.workspace import Workspace
from tests.support.guests.standin_guest import command
from tests.support.scratch import SCRATCH

GUARD_S = 60.0
QUICK = Policy(check_interval=0.1, check_timeout=20.0, backoff_first=0.05, stop_grace=1.0)
IMPATIENT = replace(QUICK, check_timeout=1.0, failed_checks=2)
"""For a guest that hangs; any other may be slow on a busy machine."""


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxp-") as path:
        yield Path(path)


def config(root: Path) -> Config:
    return Config(
        workspace_root=root / "ws",
        runtime_dir=root / "rt",
        tier="process",
        embedder=EmbedderSettings(backend="none"),
    )


def host(root: Path, behaviour: str = "serve", policy: Policy = QUICK, **more: Any) -> Host:
    return Host(
        config(root),
        "alice",
        policy=policy,
        working_directory=root,
        agent_command=command(behaviour),
        **more,
    )


async def agent(running: Host) -> Any:
    return (await running.status()).guests[0]


async def until_replaced(running: Host, pid: int) -> Any:
    async with asyncio.timeout(GUARD_S):
        while (found := await agent(running)).state != "ready" or found.pid == pid:
            await asyncio.sleep(0.02)
    return found


def living(root: Path) -> list[int]:
    """Processes whose arguments or working directory lie below `root`."""
    found = []
    for process in psutil.process_iter(["pid", "cwd", "status"]):
        seen = process.info
        if seen["status"] != psutil.STATUS_ZOMBIE and str(root) in (seen["cwd"] or ""):
            found.append(int(seen["pid"]))
    return found


async def test_a_guest_that_is_frozen_is_replaced(root: Path) -> None:
    async with host(root, policy=IMPATIENT) as running:
        first = await agent(running)
        os.kill(first.pid, signal.SIGSTOP)
        second = await until_replaced(running, first.pid)
        assert living(root) == [second.pid]
    assert living(root) == []


async def test_an_agent_that_was_killed_tells_it_when_it_is_back(root: Path) -> None:
    async with Host(config(root), "alice", policy=QUICK, working_directory=root) as running:
        first = await agent(running)
        os.kill(first.pid, signal.SIGKILL)
        await until_replaced(running, first.pid)
        async with await GatewayClient.open(await running.gateway(), channel_name="cli") as client:
            (notice,) = (await client.notices(9)).notices
    assert notice.kind == "guest"
    assert notice.text == "the agent guest was killed by SIGKILL; it is started again"


async def test_a_frozen_guest_does_not_hold_up_the_end(root: Path) -> None:
    async with host(root) as running:
        os.kill((await agent(running)).pid, signal.SIGSTOP)
        async with asyncio.timeout(GUARD_S):
            await running.stop()
    assert living(root) == []


@pytest.mark.parametrize("behaviour", ["serve", "family", "obstinate"])
async def test_nothing_is_left_of_any_guest(root: Path, behaviour: str) -> None:
    async with host(root, behaviour):
        assert living(root)
    assert living(root) == []
    assert not [path for path in root.rglob("*") if path.is_socket()]


@pytest.mark.parametrize("trap", ["link", "pipe", "directory"])
async def test_a_guest_can_plant_no_trap_for_the_next_start(root: Path, trap: str) -> None:
    """What a guest may write to is neither followed nor in the way."""
    workspace = Workspace(root / "ws", "alice")
    workspace.provision()
    victim = root / "victim"
    victim.write_text("precious")
    for role in MOUNTS:
        log = workspace.log(role)
        if trap == "link":
            log.symlink_to(victim)
        elif trap == "pipe":
            os.mkfifo(log)
        else:
            (log / "deep").mkdir(parents=True)
    async with host(root) as running:
        assert (await agent(running)).state == "ready"
        assert stat.S_ISREG(workspace.log(Role.AGENT).lstat().st_mode)
    assert victim.read_text() == "precious"
    assert living(root) == []
