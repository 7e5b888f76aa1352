"""A user's directories in a cluster: on the volumes `state` and `work`. Only logs are on the
runner's disk."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.workspace.directories import Owner, check_root, check_tree, create_tree
from runner.workspace.guest_uids import GuestUids
from runner.workspace.mounts import MOUNTS, BoundMount, Role, log_directory
from runner.workspace.workspace import BACKUPS, Workspace

_PLACES: Final = {
    "internal": "/state/.oxydra",
    "vault": "/state/vault",
    "shared": "/work/shared",
    "tmp": "/work/tmp",
    "cache": "/work/cache",
    "ipc": "/run",
}
"""Where the volumes `state` and `work` have a workspace's directories. There are no sockets."""


@dataclass(frozen=True)
class VolumeWorkspace(Workspace):
    """See `Workspace`. `guests` are the uids of guests: each user's are those of one of them."""

    guests: GuestUids | None = None
    here: ClassVar[bool] = False

    @classmethod
    def of(cls, config: Config, user_id: str) -> "VolumeWorkspace":
        """Raises `WorkspaceError` for a bad user id."""
        guests = GuestUids.of(config.container)
        return cls(config.workspace_root, check_user_id(user_id), guests=guests)

    @property
    def owner(self) -> Owner:
        """To whom the volumes belong: a uid that follows from the user id. Two users may have the
        same one; what keeps them apart is that neither mounts the other's volumes."""
        assert self.guests is not None
        digest = hashlib.sha256(self.user_id.encode()).digest()
        uids = self.guests.users
        uid = uids[int.from_bytes(digest[:8], "big") % len(uids)]
        return Owner(uid, uid, frozenset({uid}))

    @property
    def sockets(self) -> tuple[Path, ...]:
        return ()

    @property
    def backups(self) -> Path:
        return Path(_PLACES["internal"]) / BACKUPS

    def mounts(self, role: Role) -> tuple[BoundMount, ...]:
        """With paths that name the directories and lead nowhere on this machine."""
        return tuple(
            BoundMount(replace(mount, virtual=place), self.path / mount.directory)
            for mount in MOUNTS[role]
            if (place := _PLACES.get(mount.name))
        )

    def settle(self) -> list[str]:
        self.provision()
        return []

    def provision(self) -> None:
        self.check()
        create_tree(self.root, self._directories(), Owner.ours(), kept=self.user_id)

    def check(self) -> None:
        check_root(self.root, private=False)
        check_tree(self.root, self._directories(), frozenset({os.geteuid()}))

    def adopt(self) -> list[str]:
        return []

    def _directories(self) -> tuple[str, ...]:
        below = ("logs", *(log_directory(role) for role in MOUNTS))
        return (self.user_id, *(f"{self.user_id}/{directory}" for directory in below))
