"""The system's files cannot be changed, no device leads out of the guest, and no name leads to the
user's private files or to files of other users."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from wire.network_probe import require_tried

from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import BoundaryHit, World, opened, refused

_SYSTEM: Final = (
    *("/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt"),
    *("/root", "/sbin", "/srv", "/usr", "/usr/bin", "/usr/lib", "/usr/local/bin", "/var"),
)
_KERNEL_FILES: Final = (
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/vm/drop_caches",
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/kmem",
    "/sys/kernel/uevent_helper",
    "/sys/power/state",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/release_agent",
)
_CGROUP: Final = "/sys/fs/cgroup"
_DEVICES: Final = {
    (1, 3): "null",
    (1, 5): "zero",
    (1, 7): "full",
    (1, 8): "random",
    (1, 9): "urandom",
    (5, 0): "tty",
    (5, 1): "console",
    (5, 2): "ptmx",
}
_GVISOR_DEVICES: Final = {(10, 200): "net/tun", (10, 229): "fuse"}
"""Files of gVisor's own kernel, of no use without capabilities."""
_TERMINALS: Final = range(136, 144)
_DEVICES_MAX: Final = 1000


def root_filesystem(world: World) -> str:
    """The system's directories are on read-only mounts, for every user."""
    found = []
    directories = [path for path in (*_SYSTEM, *world.spec.read_only) if world.at(path).is_dir()]
    for path in directories:
        if not os.statvfs(world.at(path)).f_flag & os.ST_RDONLY:
            found.append(f"{path} is on a writable file system")
        elif _can_create(world.at(path)):
            found.append(f"files can be created in {path}")
    BoundaryHit.raise_if(found)
    return f"read-only in {len(directories)} places"


def _can_create(directory: Path) -> bool:
    path = directory / f".oxydra-probe-{os.getpid()}"
    if refused(opened, path, os.O_CREAT | os.O_EXCL | os.O_WRONLY):
        return False
    path.unlink()
    return True


def kernel_settings(world: World) -> str:
    """Files that change the kernel or expose its memory cannot be opened for writing."""
    groups = [f"{_CGROUP}/{name}/cgroup.procs" for name in _names(world.at(_CGROUP))]
    agents = [path.replace("cgroup.procs", "release_agent") for path in groups]
    paths = [*_KERNEL_FILES, *groups, *agents]
    BoundaryHit.raise_if([f"{path} can be written" for path in paths if _can_open(world.at(path))])
    return f"{len(paths)} files closed"


def _names(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        require_tried(error)
        return []


def _can_open(path: Path) -> bool:
    """Whether `path` opens for writing; nothing is written."""
    if path.name == "kcore" and path.is_char_device():
        return False
    return not refused(opened, path, os.O_WRONLY)


def devices(world: World) -> str:
    """Only harmless devices exist, and commands cannot make others."""
    found = []
    known: set[str] = set()
    harmless = _DEVICES | (_GVISOR_DEVICES if world.gvisor else {})
    for path, result in _special(world.at("/dev")):
        number = (os.major(result.st_rdev), os.minor(result.st_rdev))
        if stat.S_ISCHR(result.st_mode) and number in harmless:
            known.add(harmless[number])
        elif not stat.S_ISCHR(result.st_mode) or number[0] not in _TERMINALS:
            found.append(str(path))
    hits = [f"further devices: {', '.join(found[:5])} ({len(found)})"] if found else []
    if made := _can_make_device(world.at("/tmp")):  # noqa: S108 - the guest's own
        hits.append(made)
    BoundaryHit.raise_if(hits)
    return ", ".join(sorted(known)) or "none"


def _special(directory: Path) -> list[tuple[Path, os.stat_result]]:
    found: list[tuple[Path, os.stat_result]] = []
    pending = [directory]
    while pending and len(found) < _DEVICES_MAX:
        for name in _names(current := pending.pop()):
            path = current / name
            result = path.lstat()
            if stat.S_ISDIR(result.st_mode):
                pending.append(path)
            elif stat.S_ISCHR(result.st_mode) or stat.S_ISBLK(result.st_mode):
                found.append((path, result))
    return found


def _can_make_device(directory: Path) -> str:
    path = directory / f".oxydra-probe-{os.getpid()}"
    if refused(os.mknod, path, stat.S_IFCHR | 0o600, os.makedev(1, 3)):
        return ""
    path.unlink()
    return "mknod makes devices"


def private_paths(world: World) -> str:
    """Private files cannot be reached by their virtual path, their host path, a link or a
    mount."""
    private = world.spec.private
    found = [f"{path} is there" for path in world.spec.absent if _lstat(world, path)]
    for place in private:
        result = _lstat(world, place.path) if place.path else None
        if result and world.is_same(result, place.device, place.inode):
            found.append(f"{place.label} is there by its host path")
    found += _there(world, [(place.label, place.device, place.inode) for place in private])
    BoundaryHit.raise_if(found)
    return f"none of {len(private)} among {walk(world).seen} entries"


def other_users(world: World) -> str:
    """No directory of another user's workspace can be reached under any name."""
    label = "a directory of another user's workspace"
    theirs = world.spec.other_users
    BoundaryHit.raise_if(_there(world, [(label, device, inode) for device, inode in theirs]))
    return f"none of {len(theirs)} directories among {walk(world).seen} entries"


def _there(world: World, wanted: Iterable[tuple[str, int, int]]) -> list[str]:
    """Which of these labelled devices and inodes were found where, and where the walk did not end.

    A mount point is judged by what is mounted there, which no listing shows.
    """
    points = {mount.point for mount in world.mounts}
    found = [(point, result) for point in sorted(points) if (result := _lstat(world, point))]
    found += [(entry.path, entry.result) for entry in walk(world).entries]
    by_inode: dict[int, list[tuple[str, os.stat_result]]] = {}
    for path, result in found:
        by_inode.setdefault(result.st_ino, []).append((path, result))
    hits = [
        f"{label} is there as {path}"
        for label, device, inode in wanted
        for path, result in by_inode.get(inode, ())
        if world.is_same(result, device, inode)
    ]
    return [*dict.fromkeys(hits), *walk(world).unfinished.values()]


def _lstat(world: World, path: str) -> os.stat_result | None:
    try:
        return world.at(path).lstat()
    except OSError:
        return None
