"""One user's directories on the host: where they are, whether they are usable, creating them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from wire.errors import Code
from wire.transport import unix_endpoint

from runner.config.models import Config
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
from runner.workspace.mounts import (
    BoundMount,
    Role,
    bind,
    log_directory,
    workspace_directories,
)


@dataclass(frozen=True)
class Workspace:
    """`<workspace_root>/<user_id>/`. Locating it touches nothing on disk."""

    root: Path
    user_id: str
    owner: Owner = field(default_factory=Owner.ours)

    @classmethod
    def locate(cls, config: Config, user_id: str) -> "Workspace":
        """Raises `WorkspaceError` for a bad user id, and for a path too long for the guests'
        sockets."""
        workspace = cls(config.workspace_root, check_user_id(user_id), Owner.of(config))
        for socket in (workspace.gateway_socket, workspace.shell_socket):
            unix_endpoint(socket)
        return workspace

    @property
    def path(self) -> Path:
        return self.root / self.user_id

    @property
    def internal(self) -> Path:
        """What only the agent guest sees: its database and its state."""
        return self.path / ".oxydra"

    @property
    def gateway_socket(self) -> Path:
        return self.path / "ipc" / "agent" / "agent.sock"

    @property
    def shell_socket(self) -> Path:
        return self.path / "ipc" / "shell" / "shell.sock"

    def log(self, role: Role) -> Path:
        return self.path / log_directory(role) / "guest.log"

    def mounts(self, role: Role) -> tuple[BoundMount, ...]:
        return bind(role, self.path)

    def check(self) -> None:
        """Check, before anything is created, that the workspace can be provisioned safely.

        Raises `WorkspaceError` if the root is no directory, is a link, belongs to somebody else or
        is not writable, or if something else stands in the place of a workspace directory.
        """
        check_root(self.root, private=False)
        check_tree(self.root, self._directories(), self.owner)

    def provision(self) -> None:
        """Create every directory, and give each mode 0700 and its owner again. Idempotent.

        To be called before each start of a guest: commands may have changed the modes of the
        directories that they see.
        """
        self.check()
        create_tree(self.root, self._directories(), self.owner)

    def adopt(self) -> None:
        """Give everything in the workspace to its owner, who changes with the tier.

        Only root can do this; for other users there is nothing to do.
        """
        if os.geteuid() == 0:
            with descriptor(self.path, os.O_RDONLY | os.O_DIRECTORY) as fd:
                adopt(fd, self.owner)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the workspace, so that runners with different runtime directories exclude each other
        too. Leaves no file behind.

        Raises `HostError` (ALREADY_EXISTS) if another runner holds it.
        """
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
        below = (f"{self.user_id}/{directory}" for directory in workspace_directories())
        return (self.user_id, *below)
