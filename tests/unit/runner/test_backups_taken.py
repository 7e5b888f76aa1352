"""A backup on its way to the operator: whole and as announced, or not at all."""

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.client import backups
from runner.client.gateway import GatewayClient
from runner.errors import HostError
from runner.tiers.kubernetes.volumes import VolumeWorkspace
from runner.workspace.workspace import Workspace

CONTENT = b"the memory of alice " * 100
MADE = gateway_pb2.BackupMemoryReply(
    name="memory-1.db", bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()
)


class Agent:
    """A guest that sends `sent`, and removes nothing if told so."""

    def __init__(self, sent: bytes = CONTENT, refuses: WireError | None = None) -> None:
        self.removed: list[str] = []
        self._sent = sent
        self._refuses = refuses

    async def read_backup(self, name: str) -> AsyncIterator[bytes]:
        assert name == MADE.name
        for at in range(0, len(self._sent), 64):
            yield self._sent[at : at + 64]

    async def remove_backup(self, name: str) -> None:
        if self._refuses is not None:
            raise self._refuses
        self.removed.append(name)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "alice.backup"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path, "alice")
    made.backups.mkdir(parents=True)
    (made.backups / MADE.name).write_bytes(CONTENT)
    return made


async def take(agent: Agent, workspace: Workspace, target: Path) -> None:
    await backups.take(cast(GatewayClient, agent), workspace, MADE, target)


async def test_what_is_taken_is_as_announced_and_leaves_the_workspace(
    workspace: Workspace, target: Path
) -> None:
    agent = Agent()
    await take(agent, workspace, target)
    assert target.read_bytes() == CONTENT
    assert target.stat().st_mode & 0o777 == 0o600
    assert agent.removed == [MADE.name]


async def test_so_it_is_from_another_machine(tmp_path: Path, target: Path) -> None:
    agent = Agent()
    await take(agent, VolumeWorkspace(tmp_path, "alice"), target)
    assert target.read_bytes() == CONTENT
    assert agent.removed == [MADE.name]


@pytest.mark.parametrize(
    "sent", [b"", CONTENT[:-1], CONTENT + b"x", CONTENT.replace(b"alice", b"malus")]
)
async def test_what_another_machine_sends_otherwise_is_refused(
    tmp_path: Path, target: Path, sent: bytes
) -> None:
    agent = Agent(sent)
    with pytest.raises(HostError, match="cannot copy the backup") as refused:
        await take(agent, VolumeWorkspace(tmp_path, "alice"), target)
    assert "differs from what the agent has announced" in refused.value.details
    assert agent.removed == []
    assert not target.exists()


@pytest.mark.parametrize(
    "plant",
    [
        lambda place, other: place.write_bytes(CONTENT[1:]),
        lambda place, other: place.symlink_to(other),
        lambda place, other: os.mkfifo(place),
        lambda place, other: None,
    ],
    ids=["other content", "a link", "a pipe", "nothing"],
)
async def test_what_the_guest_put_in_its_place_is_refused(
    workspace: Workspace, target: Path, tmp_path: Path, plant: Callable[[Path, Path], object]
) -> None:
    other = tmp_path / "other"
    other.write_bytes(CONTENT)
    place = workspace.backups / MADE.name
    place.unlink()
    plant(place, other)
    agent = Agent()
    with pytest.raises(HostError, match="cannot copy the backup"):
        await take(agent, workspace, target)
    assert agent.removed == []
    assert not target.exists()


async def test_a_copy_that_stays_behind_is_told(workspace: Workspace, target: Path) -> None:
    agent = Agent(refuses=WireError(Code.UNAVAILABLE, "the agent is away"))
    with pytest.raises(HostError, match="its copy stays in the workspace") as told:
        await take(agent, workspace, target)
    place = str(workspace.backups / MADE.name)
    assert place in told.value.resolution
    assert "the agent is away" in told.value.details
    assert target.read_bytes() == CONTENT
