"""On what kind of file system a place lies."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

log = logging.getLogger(__name__)

PASSING: Final = frozenset(["tmpfs", "ramfs", "overlay", "aufs", "fuse.fuse-overlayfs"])
"""What is on these does not outlive the machine or container."""


def passing(root: Path) -> list[str]:
    """What to say of memories in files below `root` if they may not persist; empty if nothing."""
    kind = file_system_kind(root)
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
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
