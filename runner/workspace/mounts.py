"""Who sees which directory of a workspace: role -> mounts, as one piece of data.

Provisioning, the envelope's paths and every tier driver read this table; a
directory that is not in a role's rows does not exist for that role.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final


class Role(StrEnum):
    """The kinds of guest."""

    AGENT = "agent"
    SHELL = "shell"
    EMBEDDER = "embedder"
    """One per host and model, shared by all users; it sees no workspace."""


class Access(StrEnum):
    READ_WRITE = "rw"
    READ_ONLY = "ro"


@dataclass(frozen=True)
class Mount:
    """One directory of the workspace as one role sees it.

    `name` is what the envelope's `GuestPaths` calls it, `directory` where it
    lies in the workspace, `virtual` where the guest finds it under a tier that
    has a file system of its own. In the process tier guests see host paths and
    `access` is held by policy instead of the kernel.
    """

    name: str
    directory: str
    virtual: str
    access: Access


MOUNTS: Final[dict[Role, tuple[Mount, ...]]] = {
    Role.AGENT: (
        Mount("internal", ".oxydra", "/.oxydra", Access.READ_WRITE),
        Mount("shared", "shared", "/shared", Access.READ_WRITE),
        Mount("tmp", "tmp", "/tmp", Access.READ_WRITE),  # noqa: S108 - a virtual path
        Mount("vault", "vault", "/vault", Access.READ_ONLY),
        Mount("ipc", "ipc", "/ipc", Access.READ_WRITE),
        Mount("logs", "logs/agent", "/logs", Access.READ_WRITE),
    ),
    Role.SHELL: (
        Mount("shared", "shared", "/shared", Access.READ_WRITE),
        Mount("tmp", "tmp", "/tmp", Access.READ_WRITE),  # noqa: S108 - a virtual path
        Mount("ipc", "ipc/shell", "/ipc", Access.READ_WRITE),
        Mount("logs", "logs/shell", "/logs", Access.READ_WRITE),
    ),
}


def workspace_directories() -> tuple[str, ...]:
    """Every directory that some role mounts, parents before children."""
    found = {mount.directory for mounts in MOUNTS.values() for mount in mounts}
    parents = {str(parent) for path in found for parent in PurePosixPath(path).parents} - {"."}
    return tuple(sorted(found | parents))


@dataclass(frozen=True)
class BoundMount:
    """A row of the table for one user's workspace."""

    mount: Mount
    host_path: Path


def bind(role: Role, workspace: Path) -> tuple[BoundMount, ...]:
    """The rows of `role` with the directories of one workspace."""
    return tuple(BoundMount(mount, workspace / mount.directory) for mount in MOUNTS[role])
