"""The mount table, as the kernel shows it to a command, against the one that was asked for."""

import os
import stat
from typing import Final

from wire.boundary import SharedDirectory

from shell_daemon.probe.world import BoundaryHit, MountInfo, World

_PSEUDO: Final = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs", "tmpfs"}
)
_KERNEL: Final = ("/proc", "/sys", "/dev")
_ENGINE_FILES: Final = frozenset(
    {
        "/etc/hostname",
        "/etc/hosts",
        "/etc/resolv.conf",
        "/dev/init",
        "/run/.containerenv",
        "/run/podman-init",
        "/sbin/docker-init",
        "/usr/sbin/docker-init",
    }
)
"""Single files that container engines bring, as a rule."""


def mounts(world: World) -> str:
    """Every row of the table is there and is the right directory; nothing else is."""
    rows = {row.virtual: row for row in world.spec.shared}
    found = [problem for mount in world.mounts if (problem := _judge(world, mount, rows))]
    points = {mount.point for mount in world.mounts}
    found += [f"{virtual} is not mounted" for virtual in rows if virtual not in points]
    BoundaryHit.raise_if(found)
    return f"{', '.join(rows)} and nothing else of the host"


def _judge(world: World, mount: MountInfo, rows: dict[str, SharedDirectory]) -> str:
    """What is wrong with a mount; empty where nothing is."""
    if mount.point in rows:
        return _judge_row(world, mount, rows[mount.point])
    if mount.point == "/":
        return "" if mount.read_only else "the root file system is mounted read-write"
    if mount.point in world.spec.read_only:
        return "" if mount.read_only else f"{mount.point} is mounted read-write"
    if mount.point in _ENGINE_FILES:
        return _judge_file(world, mount)
    if mount.kind == "tmpfs":
        if mount.root == "/" and mount.device not in world.spec.host_tmpfs:
            return ""
    elif mount.kind in _PSEUDO and _is_kernel(mount.point):
        return ""
    if mount.root == "/null" and mount.point.startswith("/proc/"):
        return ""
    return f"{mount.point} is mounted from {mount.root} ({mount.kind}) and is not in the table"


def _is_kernel(point: str) -> bool:
    return any(point == place or point.startswith(f"{place}/") for place in _KERNEL)


def _judge_row(world: World, mount: MountInfo, row: SharedDirectory) -> str:
    if not world.is_same(world.at(row.virtual).stat(), row.device, row.inode):
        return f"{row.virtual} is another directory of the host ({mount.root})"
    if not row.writable and not mount.read_only:
        return f"{row.virtual} is mounted read-write instead of read-only"
    return ""


def _judge_file(world: World, mount: MountInfo) -> str:
    path = world.at(mount.point)
    if not stat.S_ISREG(path.stat().st_mode):
        return f"{mount.point} is mounted from {mount.root} and is not a file"
    if os.access(path, os.W_OK):
        return f"{mount.point} is mounted from {mount.root} and is writable"
    return ""
