"""Who owns a workspace: the user that the runner runs as, or the guests' user if the runner is
root and the tier uses containers."""

import os
import stat
from dataclasses import dataclass

from runner.config.models import Config


@dataclass(frozen=True)
class Owner:
    """The uid and gid of a workspace and of the guests that use it.

    What is found there may belong to any uid in `accepted`: ours and, if the runner is root, the
    guests', because a user may change tiers.
    """

    uid: int
    gid: int
    accepted: frozenset[int]

    @classmethod
    def ours(cls) -> "Owner":
        return cls(os.geteuid(), os.getegid(), frozenset({os.geteuid()}))

    @classmethod
    def of(cls, config: Config) -> "Owner":
        """The owner of the workspaces of this configuration."""
        if os.geteuid() != 0:
            return cls.ours()
        guest = config.container.guest_uid
        uid = 0 if config.tier == "process" else guest
        return cls(uid, uid, frozenset({0, guest}))


def adopt(directory: int, owner: Owner) -> None:
    """Give everything below an open directory to `owner`, if it belongs to an accepted uid.

    Never follows a link, and skips files with several hard links.
    """
    for _, names, files, parent in os.fwalk(".", dir_fd=directory, follow_symlinks=False):
        for name in (*names, *files):
            try:
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if found.st_uid == owner.uid or found.st_uid not in owner.accepted:
                    continue
                if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
                    os.chown(name, owner.uid, owner.gid, dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                continue
