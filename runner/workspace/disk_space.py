"""Room on the disk: what a start needs, and the file that keeps some for the memory; and the kind
of file system that a place lies on.

A command may fill the disk at one stroke. The reserve lies where no command can reach it; the agent
guest gives parts of it back when a change does not fit (`guest/memory/storage/reserve.py`), and the
runner does when a start does not.
"""

import errno
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
from wire.disk import free_bytes, largest_file, reserve_bytes
from wire.errors import Code
from wire.limits import RESERVE_SUFFIX
from wire.text import visible_name

from runner.errors import WorkspaceError
from runner.workspace.beneath import directory_beneath
from runner.workspace.directories import descriptor
from runner.workspace.workspace import Workspace

log = logging.getLogger(__name__)

PASSING: Final = frozenset(["tmpfs", "ramfs", "overlay", "aufs", "fuse.fuse-overlayfs"])
"""What is on these does not outlive the machine or container."""


def passing(database: Path, root: Path) -> list[str]:
    """What to say of a memory in a file below `root` if it may not persist; empty if nothing."""
    kind = file_system_kind(database)
    if kind not in PASSING:
        return []
    notice = (
        f"memory is a local file on {kind}, which does not outlive this machine or container: "
        f"mount a volume at {root}, or set memory.remote_url"
    )
    log.warning("%s", notice)
    return [notice]


def file_system_kind(path: Path, mounts: Sequence[tuple[str, str]] | None = None) -> str:
    """The type of the deepest mount that holds `path`, the latest of several; empty if unknown.

    `mounts` are points and types; by default those of this machine.
    """
    if mounts is None:
        mounts = [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
    place = Path(os.path.realpath(existing(path)))
    holding = [
        (len(Path(point).parts), number, kind)
        for number, (point, kind) in enumerate(mounts)
        if place.is_relative_to(point)
    ]
    return max(holding)[2] if holding else ""


def existing(path: Path) -> Path:
    """`path` or its nearest existing parent."""
    return next(each for each in (path, *path.parents) if each.exists())


ROOM_BYTES: Final = 512 * 1024
_SPARE: Final = 4
"""It is laid out only where so many times its size are free."""
_MIB: Final = 1024 * 1024


def keep_reserve(database: Path, workspace: Workspace) -> None:
    """Lay out the reserve of a database in the workspace, if there is room for it. Idempotent."""
    with suppress(OSError), _opened_reserve(database, workspace, os.O_CREAT) as fd:
        disk = os.fstatvfs(fd)
        size = reserve_bytes(disk)
        os.fchown(fd, *workspace.owner.ids)
        if os.fstat(fd).st_size < size and free_bytes(disk) > _SPARE * size:
            os.posix_fallocate(fd, 0, size)


@contextmanager
def _opened_reserve(database: Path, workspace: Workspace, flags: int = 0) -> Iterator[int]:
    """The reserve, open. Raises `OSError` if it is not a plain file in the workspace."""
    if not database.is_relative_to(workspace.path):
        raise OSError(errno.EXDEV, "the database lies outside of the workspace")
    name = database.name + RESERVE_SUFFIX
    with (
        directory_beneath(workspace.path, database.parent) as directory,
        descriptor(name, os.O_RDWR | os.O_NONBLOCK | flags, directory) as fd,
    ):
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise OSError(errno.EINVAL, "the reserve is not a plain file of one name")
        yield fd


def release_reserve(database: Path, workspace: Workspace) -> None:
    """Check that the workspace's disk has room for a start; give back the reserve for it if needed.

    Raises `WorkspaceError` that names the largest file of the workspace.
    """
    try:
        check_free_space(workspace.root)
    except WorkspaceError as full:
        if _released(database, workspace):
            with suppress(WorkspaceError):
                check_free_space(workspace.root)
                return
        raise _named(full, workspace) from None


def check_free_space(path: Path) -> None:
    """Check that the disk of `path`, which may be missing, has room for a log and a database."""
    if (free := free_bytes(os.statvfs(existing(path)))) < ROOM_BYTES:
        raise WorkspaceError(
            Code.RESOURCE_EXHAUSTED,
            f"no room left for {path}",
            details=f"its disk has {free // 1024} KiB free; {ROOM_BYTES // 1024} KiB are needed "
            "to keep a log and a database at all",
            resolution="make room, or put workspace_root and runtime_dir on another disk",
        )


def _released(database: Path, workspace: Workspace) -> bool:
    """Give back half of the reserve; the rest stays for what the agent will store."""
    with suppress(OSError), _opened_reserve(database, workspace) as fd:
        if size := os.fstat(fd).st_size:
            os.ftruncate(fd, size // 2)
            os.fsync(fd)
            return True
    return False


def _named(full: WorkspaceError, workspace: Workspace) -> WorkspaceError:
    largest, size = "", 0
    for name in ("shared", "tmp", "cache"):
        place = workspace.path / name
        with suppress(OSError), directory_beneath(workspace.path, place) as directory:
            path, taken = largest_file(directory)
            if taken > size:
                largest, size = f"{name}/{path}", taken
    if not largest:
        return full
    return WorkspaceError(
        full.code,
        full.brief,
        details=f"{full.details}; the largest file of the workspace is {visible_name(largest)} "
        f"({size / _MIB:.0f} MiB)",
        resolution=f"delete it in {workspace.path}, or make room otherwise",
    )
