"""The directories: their owners, modes, free space and file systems."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runner.config.models import Config
from runner.doctor.finding import Finding, check, ok, problem, warning
from runner.host.embedder import EmbedderHome
from runner.host.runtime import Runtime, lock_holder
from runner.workspace.disk_space import PASSING, existing, file_system_kind
from runner.workspace.guest_uids import GuestUids, Machine, look
from runner.workspace.skills import MEND, Skills
from runner.workspace.workspace import Workspace

NETWORK: Final = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "ncpfs", "lustre"]
)
_PROBLEM_BYTES: Final = 64 * 1024**2
_WARNING_BYTES: Final = 1024**3
_UIDS_SHARE: Final = 0.9


@check("workspace")
def workspace(config: Config, user_id: str) -> str:
    """Whether the workspace can be provisioned as it is."""
    found = Workspace.locate(config, user_id)
    found.check()
    return f"{found.path} " + ("can be used" if found.path.exists() else "can be made")


@check("skills")
def skills(config: Config, user_id: str) -> str | Finding:
    listed = Skills(Workspace.locate(config, user_id)).listed()
    told = "; ".join(each.lost for each in listed if each.wrong)
    return warning("skills", told, MEND) if told else "none is wrong"


@check("guest uids")
def guest_uids(config: Config, user_id: str, *, running: bool | None = None) -> str | Finding:
    """Whether the guests of `user_id` have a uid that is nobody else's, where the runner is root.

    `running`: whether they run now; else looked up.
    """
    uids = GuestUids.of(config.container)
    if running is None:
        running = lock_holder(Runtime.locate(config, user_id).lock) is not None
    found = look(config.workspace_root, user_id, uids, Machine(processes=not running).holder)
    used = found.taken + 1
    what = f"{used:,} of {len(uids.users):,} for users are in use"
    if used > _UIDS_SHARE * len(uids.users):
        return warning("guest uids", what, "set container.guest_uid_count higher")
    if found.uid == found.before:
        return f"the guests of {user_id} run as uid {found.uid}; {what}"
    if found.before in uids.users:
        return warning(
            "guest uids",
            f"the guests of {user_id} run as uid {found.before}, {found.why}; the next start gives "
            f"them uid {found.uid}",
            "runner stop, then: runner start",
        )
    return f"the next start gives the guests of {user_id} uid {found.uid}; {what}"


@check("runtime directory")
def runtime_directory(config: Config, user_id: str) -> str:
    """Whether sockets, locks and state can be stored."""
    found = Runtime.locate(config, user_id)
    _ = EmbedderHome.locate(config, found.base).endpoint
    found.check()
    return f"{found.directory} " + ("can be used" if found.directory.exists() else "can be made")


def free_space(name: str, path: Path, free: int | None = None) -> Finding:
    """Whether the disk of `path`, which may be missing, has space. `free` is in bytes."""
    if free is None:
        found = os.statvfs(existing(path))
        free = found.f_bavail * found.f_frsize
    what = f"{free / 1024**3:.1f} GiB free for {path}"
    if free < _PROBLEM_BYTES:
        return problem(name, what, f"make room: du -xh --max-depth=2 {existing(path)} | sort -h")
    if free < _WARNING_BYTES:
        return warning(name, what, f"make room: du -xh --max-depth=2 {existing(path)} | sort -h")
    return ok(name, what)


def file_system(path: Path, mounts: Sequence[tuple[str, str]] | None = None) -> Finding:
    """Whether notes and locks are safe on the file system of `path`, which may be missing.

    `mounts` are points and types; by default those of this machine.
    """
    name = "file system"
    kind = file_system_kind(path, mounts)
    if kind in PASSING:
        return warning(
            name,
            f"{path} lies on {kind}, which does not outlive this machine or container: local "
            "memory must lie on a persistent volume",
            "put workspace_root on a disk, or mount a volume there",
        )
    if kind in NETWORK or kind.startswith("fuse."):
        return warning(
            name,
            f"{path} lies on {kind}: locks and durable writes of a database cannot be "
            "relied on over a network",
            "put workspace_root on a local disk",
        )
    return ok(name, f"{path} lies on {kind or 'an unknown kind'}")
