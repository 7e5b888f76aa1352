"""How a guest sees the directories and sockets that the runner hands it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wire.transport import unix_endpoint

from runner.mounts import Access, BoundMount, Mount

EMBEDDER_MOUNT = Mount("embedder", "", "/embedder", Access.READ_ONLY)
"""Outside the workspace: the directory with the embedder's socket, for agent guests."""


@dataclass(frozen=True)
class View:
    """The mounts of one guest. With `own_files` they are at their virtual paths, otherwise
    the guest sees the host's."""

    mounts: Sequence[BoundMount]
    own_files: bool

    def path(self, host_path: Path) -> Path:
        """Where the guest finds what lies at `host_path`.

        Raises `ValueError` for a place that no mount brings to it.
        """
        if not self.own_files:
            return host_path
        for bound in sorted(self.mounts, key=lambda bound: -len(bound.host_path.parts)):
            if host_path.is_relative_to(bound.host_path):
                return Path(bound.mount.virtual) / host_path.relative_to(bound.host_path)
        raise ValueError(f"{host_path} is in no mount of this guest")

    def endpoint(self, host_socket: Path) -> str:
        """The address of a Unix socket, for the guest."""
        return unix_endpoint(self.path(host_socket))
