"""One user's directories on the host: where they are, whether they are usable, creating them."""

import fcntl
import logging
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

from wire.errors import Code
from wire.settings import McpSettings
from wire.transport import unix_endpoint

from runner.config.models import Config
from runner.config.tiers import installed
from runner.config.user_id import check_user_id
from runner.errors import HostError, WorkspaceError
from runner.workspace.directories import (
    Owner,
    adopt,
    check_root,
    check_tree,
    create_tree,
    descriptor,
)
from runner.workspace.guest_uids import GuestUids, assign
from runner.workspace.mounts import (
    DOWNLOADS,
    LISTENER,
    MOUNTS,
    SERVED,
    TOOL_ROLES,
    TOOLS,
    BoundMount,
    OpenProject,
    Role,
    bind,
    log_directory,
    of_tool,
    workspace_directories,
)

log = logging.getLogger(__name__)
BACKUPS: Final = "backups"


@dataclass(frozen=True)
class Workspace:
    """`<workspace_root>/<user_id>/`. Locating it touches nothing on disk.

    It belongs to `common_owner`, unless each user has a uid of their own, one of `uids`. Agent and
    shell see the `projects` besides. `tools` are the MCP servers with guests of their own, and what
    each sees of `shared`; the workspace as such a guest has it is that `of_tool`.
    """

    root: Path
    user_id: str
    common_owner: Owner = field(default_factory=Owner.ours)
    uids: GuestUids | None = None
    projects: tuple[OpenProject, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    here: ClassVar[bool] = True
    """Its directories are on this machine's disk."""

    @classmethod
    def locate(cls, config: Config, user_id: str) -> "Workspace":
        """Raises `WorkspaceError` for a bad user id, and for a path too long for the guests'
        sockets."""
        tier = installed(config.tier)
        elsewhere: Workspace | None = tier.workspace(config, user_id)
        if elsewhere is not None:
            return elsewhere
        uids = GuestUids.of(config.container) if os.geteuid() == 0 else None
        owner = Owner.ours() if uids is None else Owner(0, 0, uids)
        own_uid = uids if tier.images else None
        workspace = cls(config.workspace_root, check_user_id(user_id), owner, own_uid)
        workspace = workspace.serving(config.for_user(user_id).mcp)
        for socket in workspace.sockets:
            unix_endpoint(socket)
        return workspace

    def serving(self, mcp: McpSettings) -> "Workspace":
        """The same, with the tool guests of these settings."""
        return replace(self, tools={name: mcp.servers[name].shared for name in mcp.guests})

    def of_tool(self, name: str) -> "Workspace":
        """The workspace as the guest of the MCP server `name` and its way out have it."""
        return replace(self, projects=(), tool=name)

    @property
    def path(self) -> Path:
        return self.root / self.user_id

    @property
    def owner(self) -> Owner:
        """To whom the workspace and its guests belong.

        Raises `WorkspaceError` if that is not settled yet; see `settle`.
        """
        if self.uids is None:
            return self.common_owner
        if (owner := self.uids.owner(self.path)) is None:
            raise WorkspaceError(
                Code.FAILED_PRECONDITION,
                f"the guests of {self.user_id} have no uid",
                details=f"{self.path} belongs to none of those for users; {self.uids}",
                resolution="runner stop, then: runner start",
            )
        return owner

    @property
    def accepted(self) -> Container[int]:
        """The uids to which what is found in the workspace may belong."""
        return self.common_owner.accepted

    @property
    def internal(self) -> Path:
        """What only the agent guest sees: its database and its state."""
        return self.path / ".oxydra"

    @property
    def backups(self) -> Path:
        """Where the agent guest writes backups, as it sees that where they are not `here`."""
        return self.internal / BACKUPS

    def socket(self, role: Role) -> Path:
        """Where the runner finds a guest."""
        (own,) = (bound.host_path for bound in self.mounts(role) if bound.mount.name == "ipc")
        return own / f"{'egress' if role in SERVED else role}.sock"

    def egress_listener(self, guest: Role) -> Path:
        """Where the agent or the shell guest finds its way out."""
        above = self.path / "tools" / self.tool if self.tool else self.path / "ipc"
        return above / f"{guest}-out" / LISTENER

    @property
    def host_sockets(self) -> Path:
        """The directory of the runner's sockets for the agent's egress guest."""
        return self.path / "ipc" / "host"

    @property
    def sockets(self) -> tuple[Path, ...]:
        """All sockets of the user's guests."""
        return (
            *map(self.socket, MOUNTS),
            *map(self.egress_listener, SERVED.values()),
            *(self.of_tool(name).socket(role) for name in self.tools for role in TOOL_ROLES),
            *(self.of_tool(name).egress_listener(Role.SHELL) for name in self.tools),
        )

    def log(self, role: Role) -> Path:
        return self.path / log_directory(role, self.tool) / "guest.log"

    def mounts(self, role: Role) -> tuple[BoundMount, ...]:
        if self.tool:
            rows = of_tool(role, self.tool, self.tools[self.tool])
            return tuple(BoundMount(mount, self.path / mount.directory) for mount in rows)
        seen = self.projects if role in (Role.AGENT, Role.SHELL) else ()
        further = [row for each in seen for row in each.rows]
        if role is Role.AGENT and self.tools:
            further.append(BoundMount(TOOLS, self.path / TOOLS.directory))
        return (*bind(role, self.path), *further)

    def renewed(self) -> "Workspace":
        """The same, with its projects as they are to be mounted now. Raises `WorkspaceError`."""
        projects = tuple(each.now(self.path) for each in self.projects)
        return replace(self, projects=projects) if projects else self

    def check(self) -> None:
        """Check, before anything is created, that the workspace can be provisioned safely.

        Raises `WorkspaceError` if the root is no directory, is a link, belongs to somebody else or
        is not writable, or if something else stands in the place of a workspace directory.
        """
        check_root(self.root, private=False)
        check_tree(self.root, self._directories(), self.accepted)

    def settle(self) -> list[str]:
        """Assign a uid where each user has one, and provision the workspace. Idempotent.

        The caller holds the workspace, and none of its guests runs. Returns notices. Raises
        `WorkspaceError`.
        """
        notices = []
        if self.uids is not None:
            found = assign(self.root, self.user_id, self.uids)
            if found.before not in (0, found.uid):
                notices.append(
                    f"the workspace of {self.user_id} was given to uid {found.uid}: it belonged to "
                    f"uid {found.before}, {found.why}"
                )
        self.provision()
        return notices

    def provision(self) -> None:
        """Create every directory, and give each mode 0700 and its owner again. Idempotent.

        To be called before each start of a guest: commands may have changed the modes of the
        directories that they see.
        """
        self.check()
        create_tree(self.root, self._directories(), self.owner, kept=self.user_id)

    def adopt(self) -> list[str]:
        """Give everything in the workspace to its owner, who changes with the tier.

        Only root can do this; for other users there is nothing to do. Returns a notice about what
        was left to others.
        """
        if os.geteuid() != 0:
            return []
        with descriptor(self.path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            left = adopt(fd, self.owner)
        if not left.count:
            return []
        names = ", ".join(left.names) + (", …" if left.count > len(left.names) else "")
        notice = f"{left.count:,} entries of {self.path} were left to their owners: {names}"
        log.warning("%s", notice)
        return [notice]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the workspace, so that runners with different runtime directories exclude each other
        too. Makes its directory if it is missing, and leaves no other file behind.

        Raises `HostError` (ALREADY_EXISTS) if another runner holds it, and what `check` raises.
        """
        self.check()
        create_tree(self.root, [self.user_id], self.common_owner, kept=self.user_id)
        with descriptor(self.path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HostError(
                    Code.ALREADY_EXISTS,
                    f"another runner serves the workspace {self.path}",
                    details="it runs with another runtime_dir, so this command cannot see it",
                    resolution="stop it with the runtime_dir or XDG_RUNTIME_DIR that started it",
                ) from None
            except OSError as error:
                raise WorkspaceError(
                    Code.FAILED_PRECONDITION,
                    f"cannot lock {self.path}",
                    details=f"its file system answers: {error.strerror}",
                    resolution="put workspace_root on a local disk",
                ) from None
            yield

    def _directories(self) -> tuple[str, ...]:
        own = [DOWNLOADS] if self.tools.get(self.tool) == "downloads" else []
        below = (*workspace_directories(self.tools), *own)
        return (self.user_id, *(f"{self.user_id}/{directory}" for directory in below))
