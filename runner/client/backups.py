"""Brings a backup that the agent guest has made out of its workspace, or out of its pod."""

import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Final

from wire.disk import whole_file
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient
from runner.errors import HostError
from runner.workspace.directories import descriptor
from runner.workspace.workspace import BACKUPS, Workspace

_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1024 * 1024


async def take(
    agent: GatewayClient,
    workspace: Workspace,
    made: gateway_pb2.BackupMemoryReply,
    target: Path,
) -> None:
    """Move the backup that was `made` to `target`, completely or not at all, readable only for us.

    Raises `WireError`; once `target` is there, with its name.
    """
    try:
        with whole_file(target) as copy:
            digest, left = hashlib.sha256(), made.bytes
            async with aclosing(_content(agent, workspace, made.name)) as blocks:
                async for block in blocks:
                    left -= len(block)
                    if left < 0:
                        break
                    digest.update(block)
                    copy.write(block)
            if left or digest.hexdigest() != made.sha256:
                raise _failed(target, "its content differs from what the agent has announced")
    except OSError as error:
        raise _failed(target, f"{error.filename or target}: {error.strerror or error}") from None
    try:
        await agent.remove_backup(made.name)
    except WireError as error:
        place = workspace.backups / made.name
        raise HostError(
            error.code,
            f"{target} has the backup, and its copy stays in the workspace",
            details=f"{place}: {error.brief}",
            resolution=f"remove {place}",
        ) from None


async def _content(
    agent: GatewayClient, workspace: Workspace, name: str
) -> AsyncGenerator[bytes, None]:
    """From the file, or from an agent on another machine. Either could send anything."""
    if not workspace.here:
        async for block in agent.read_backup(name):
            yield block
        return
    with _open(workspace, name) as source:
        while block := source.read(_BLOCK):
            yield block


def _open(workspace: Workspace, name: str) -> BinaryIO:
    """The guest could have put anything in its place, so links are not followed."""
    directory = os.O_RDONLY | os.O_DIRECTORY
    with (
        descriptor(workspace.internal, directory) as internal,
        descriptor(BACKUPS, directory, internal) as inside,
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
