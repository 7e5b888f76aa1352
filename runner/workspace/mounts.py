"""Which role sees which directory of a workspace: one table, role -> mounts.

Provisioning, the paths in the envelope and every tier driver read it. A directory that is not in a
role's rows does not exist for that role. None lies within another, so no guest can put something
else in the place of a directory that is mounted later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from wire.v1 import bootstrap_pb2


class Role(StrEnum):
    """The kinds of guest."""

    AGENT = "agent"
    SHELL = "shell"
    EGRESS = "egress"
    """The agent's way out. It sees sockets alone: its own, its listener for the agent, and those by
    which the runner hands it servers of this machine's loopback."""
    SHELL_EGRESS = "shell-egress"
    """The commands' way out: the same program, which listens for the shell."""
    EMBEDDER = "embedder"
    """One for each host and model, shared by all users. It sees no workspace."""


SERVED: Final = {Role.EGRESS: Role.AGENT, Role.SHELL_EGRESS: Role.SHELL}
"""Which guest each of those with a way out serves, and no other one."""
LISTENER: Final = "http.sock"
"""Where egress takes the requests of a guest, in the directory that both see."""


class Access(StrEnum):
    READ_WRITE = "rw"
    READ_ONLY = "ro"


@dataclass(frozen=True)
class Mount:
    """One directory of the workspace as one role sees it.

    `name` is its name in the envelope's `GuestPaths`, if that has it, `directory` its place in the
    workspace, `virtual` its path in a guest that has its own file system. In the process tier the
    agent sees the host's paths, and its tools, not the kernel, enforce `access`.
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
        Mount("skills", "skills", "/skills", Access.READ_ONLY),  # the runner alone writes there
        Mount("ipc", "ipc/agent", "/ipc", Access.READ_WRITE),
        Mount("shell", "ipc/shell", "/shell", Access.READ_ONLY),
        Mount("egress", "ipc/agent-out", "/egress", Access.READ_ONLY),
    ),
    Role.SHELL: (
        Mount("shared", "shared", "/shared", Access.READ_WRITE),
        Mount("tmp", "tmp", "/tmp", Access.READ_WRITE),  # noqa: S108 - a virtual path
        Mount("cache", "cache", "/cache", Access.READ_WRITE),
        Mount("skills", "skills", "/skills", Access.READ_ONLY),
        Mount("ipc", "ipc/shell", "/ipc", Access.READ_WRITE),
        Mount("egress", "ipc/shell-out", "/egress", Access.READ_ONLY),
    ),
    Role.EGRESS: (
        Mount("ipc", "ipc/egress", "/ipc", Access.READ_WRITE),
        Mount("agent", "ipc/agent-out", "/agent", Access.READ_WRITE),
        Mount("host", "ipc/host", "/host", Access.READ_ONLY),  # what the runner hands over
    ),
    Role.SHELL_EGRESS: (
        Mount("ipc", "ipc/out", "/ipc", Access.READ_WRITE),  # paths of sockets may not be long
        Mount("shell", "ipc/shell-out", "/shell", Access.READ_WRITE),
    ),
}


TOOL_ROLES: Final = (Role.SHELL, Role.SHELL_EGRESS)  # of an MCP server's own guest, its way out
DOWNLOADS: Final = "shared/downloads"
"""All that a tool guest sees of `shared`, where the settings say so. It alone lies within another
row, where commands can replace it: it is opened without links, and the self-test finds another."""
TOOLS: Final = Mount("tools", "ipc/tools", "/tools", Access.READ_ONLY)
"""Where the agent finds the sockets of tool guests, each in a directory with its server's name."""


def of_tool(role: Role, name: str, shared: str) -> tuple[Mount, ...]:
    """The rows of the guest of the MCP server `name`, or of its way out: directories of its own,
    and `shared` as it is granted."""
    rows = []
    for mount in MOUNTS[role]:
        if mount.name in ("shared", "skills"):
            if mount.name == "shared" and shared == "downloads":
                rows.append(replace(mount, directory=DOWNLOADS, virtual=f"/{DOWNLOADS}"))
            elif mount.name == "shared" and shared != "none":
                rows.append(replace(mount, access=Access(shared)))
        elif role is Role.SHELL and mount.name == "ipc":
            rows.append(replace(mount, directory=f"{TOOLS.directory}/{name}"))
        else:
            own = mount.directory.removeprefix("ipc/")
            rows.append(replace(mount, directory=f"tools/{name}/{own}"))
    return tuple(rows)


def log_directory(role: Role, tool: str = "") -> str:
    """Where the runner writes what the guests of `role` print. No guest mounts it."""
    return f"logs/tools/{tool}/{role}" if tool else f"logs/{role}"


def workspace_directories(tools: Iterable[str] = ()) -> tuple[str, ...]:
    """Every directory of a workspace, with those of the guests of `tools`; parents before
    children."""
    found = {mount.directory for mounts in MOUNTS.values() for mount in mounts}
    found |= {log_directory(role) for role in MOUNTS}
    for name in tools:
        for role in TOOL_ROLES:
            found |= {mount.directory for mount in of_tool(role, name, "none")}
            found.add(log_directory(role, name))
    parents = {str(parent) for path in found for parent in PurePosixPath(path).parents} - {"."}
    return tuple(sorted(found | parents))


@dataclass(frozen=True)
class BoundMount:
    """A row of the table for one user's workspace. `identity` is device and inode of what is not of
    the workspace but the operator's own, as it was opened; it may be a file. Nothing is ever made
    or changed there, and what is mounted below it stays out."""

    mount: Mount
    host_path: Path
    identity: tuple[int, int] | None = None


class OpenProject(Protocol):
    """See `runner.projects.project.Project`."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path: ...

    @property
    def covered(self) -> Mapping[PurePosixPath, object]: ...

    @property
    def rows(self) -> tuple[BoundMount, ...]: ...

    def message(self, path: str, *, numbered: bool) -> "bootstrap_pb2.Project": ...

    def check(self, *, mounts_below: bool) -> None: ...

    def now(self, home: Path) -> "OpenProject": ...

    def uncovered(self) -> str: ...


def bind(role: Role, workspace: Path) -> tuple[BoundMount, ...]:
    """The rows of `role` with the directories of one workspace."""
    return tuple(BoundMount(mount, workspace / mount.directory) for mount in MOUNTS[role])
