"""Brings a backup that the agent guest has made out of its workspace, or out of its pod."""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Final

from wire.errors import Code
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient
from runner.errors import HostError
from runner.workspace.directories import descriptor, whole_file
from runner.workspace.workspace import VolumeWorkspace, Workspace

DIRECTORY: Final = "backups"
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1024 * 1024


def path_of(workspace: Workspace, name: str) -> Path:
    """Where the guest has written the backup `name`; on a volume, as the guest sees it."""
    if isinstance(workspace, VolumeWorkspace):
        return workspace.inside("internal") / DIRECTORY / name
    return workspace.internal / DIRECTORY / name


def take_out(workspace: Workspace, name: str, sha256: str, target: Path) -> None:
    """Copy the backup `name` to `target`, completely or not at all, readable only for us.

    The guest could have put anything in its place. So links are not followed, and the content must
    match the announced `sha256`. Raises `HostError`.
    """
    try:
        with _open(workspace, name) as source, whole_file(target) as copy:
            digest = hashlib.sha256()
            while block := source.read(_BLOCK):
                digest.update(block)
                copy.write(block)
            if digest.hexdigest() != sha256:
                raise _failed(target, "its content differs from what the agent has announced")
    except OSError as error:
        raise _failed(target, f"{error.filename or target}: {error.strerror or error}") from None


async def fetch(agent: GatewayClient, made: gateway_pb2.BackupMemoryReply, target: Path) -> None:
    """The same for an agent whose files are on another machine, over its gateway. Raises
    `WireError`."""
    try:
        with whole_file(target) as copy:
            digest, left = hashlib.sha256(), made.bytes
            async for block in agent.read_backup(made.name):
                left -= len(block)
                if left < 0:
                    break
                digest.update(block)
                copy.write(block)
            if left or digest.hexdigest() != made.sha256:
                raise _failed(target, "its content differs from what the agent has announced")
    except OSError as error:
        raise _failed(target, f"{error.filename or target}: {error.strerror or error}") from None


def _open(workspace: Workspace, name: str) -> BinaryIO:
    directory = os.O_RDONLY | os.O_DIRECTORY
    with (
        descriptor(workspace.internal, directory) as internal,
        descriptor(DIRECTORY, directory, internal) as inside,
    ):
        file = os.open(os.path.basename(name), os.O_RDONLY | os.O_NONBLOCK | _SAFE, dir_fd=inside)  # noqa: PTH119 - a name, not a path
    return os.fdopen(file, "rb")


def _failed(target: Path, why: str) -> HostError:
    return HostError(
        Code.FAILED_PRECONDITION,
        f"cannot copy the backup to {target}",
        details=why,
        resolution=f"ls -ld {target.parent}; df -h {target.parent}; then try again",
    )
