"""Mounts: the kernel's table against the requested one, and whether a command can change it."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wire.boundary import SharedDirectory
from wire.kernel.mounts import Mount

from shell_daemon.probe.libc import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_BIND,
    MS_REMOUNT,
    mount,
    unmount,
    unshare,
)
from shell_daemon.probe.world import BoundaryHit, World, opened, refused

_PSEUDO: Final = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs", "tmpfs"}
)
_REPORT_MAX_BYTES: Final = 4096
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
"""Single files that container engines usually mount."""
_TERMINATION_LOG: Final = "/dev/termination-log"
"""A file that every kubelet mounts and lets anybody write: what a pod says when it ends."""
_OF_PODS: Final = "/run"
"""The only directory of its own that a pod is given."""


def mounts(world: World) -> str:
    """Every directory of the table is mounted and is the right one; nothing else is mounted."""
    rows = {row.virtual: row for row in world.spec.shared}
    found = [problem for mount in world.mounts if (problem := _judge(world, mount, rows))]
    points = {mount.point for mount in world.mounts}
    found += [f"{virtual} is not mounted" for virtual in rows if virtual not in points]
    BoundaryHit.raise_if(found)
    return f"{', '.join(rows)} and nothing else of the host"


def _judge(world: World, mount: Mount, rows: dict[str, SharedDirectory]) -> str:
    """What is wrong with a mount; empty if it is correct."""
    if mount.point in rows:
        return _judge_row(world, mount, rows[mount.point])
    if mount.point == "/":
        return "" if mount.read_only else "the root file system is mounted read-write"
    if mount.point in world.spec.read_only:
        return "" if mount.read_only else f"{mount.point} is mounted read-write"
    if mount.point in _ENGINE_FILES:
        return _judge_file(world, mount)
    if world.spec.remote:
        if mount.point == _TERMINATION_LOG:
            return _judge_file(world, mount, writable=True)
        if mount.point == _OF_PODS and world.gvisor:
            return ""
    if mount.kind == "tmpfs" and (not world.spec.remote or _is_of_pods(mount.point)):
        if world.elsewhere and mount.root == "/":
            return ""
        if mount.root == "/" and mount.device not in world.spec.host_tmpfs:
            return ""
    elif mount.kind in _PSEUDO and _is_kernel(mount.point):
        return ""
    if mount.root == "/null" and mount.point.startswith("/proc/"):
        return ""
    return f"{mount.point} is mounted from {mount.root} ({mount.kind}) and is not in the table"


def _is_kernel(point: str) -> bool:
    return any(point == place or point.startswith(f"{place}/") for place in _KERNEL)


def _is_of_pods(point: str) -> bool:
    """Whether a pod has an in-memory file system there. Secrets and tokens are such, too."""
    return point == _OF_PODS or _is_kernel(point)


def _judge_row(world: World, mount: Mount, row: SharedDirectory) -> str:
    if not _is_right(world, row):
        return f"{row.virtual} is another directory of the host ({mount.root})"
    if not row.writable and not mount.read_only:
        return f"{row.virtual} is mounted read-write instead of read-only"
    return ""


def _is_right(world: World, row: SharedDirectory) -> bool:
    if world.is_volume(row):
        return world.at(row.virtual).is_dir()
    if row.changed:
        found = [(world.at(row.virtual), row.changed)]
        found += [(found[0][0] / row.entry, row.entry_changed)] if row.entry else []
        return any(_changed(path) == changed for path, changed in found)
    if row.beacon:
        return os.path.lexists(world.at(row.virtual) / row.beacon)
    return world.is_same(world.at(row.virtual).stat(), row.device, row.inode)


def _changed(path: Path) -> int:
    try:
        return path.lstat().st_ctime_ns
    except OSError:
        return 0


def projects(world: World) -> str:
    """What is read-only in a directory of the operator's can be neither written nor moved away, and
    no command can mount something else there."""
    rows = [row for row in world.spec.shared if row.operators]
    found = []
    for row in rows:
        path, probe = world.at(row.virtual), f".oxydra-probe-{os.getpid()}"
        if not refused(mount, None, str(path), None, MS_REMOUNT | MS_BIND):
            found.append(f"{row.virtual} can be mounted anew")
        if not refused(unmount, str(path)):
            found.append(f"{row.virtual} can be unmounted")
            continue
        if not refused(path.rename, aside := path.with_name(f"{path.name}{probe}")):
            aside.rename(path)
            found.append(f"{row.virtual} can be moved away")
        if row.writable:
            continue
        if not path.is_dir():
            if not refused(opened, path, os.O_WRONLY):
                found.append(f"{row.virtual} can be written")
            continue
        if not refused(opened, path / probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY):
            (path / probe).unlink()
            found.append(f"files can be made in {row.virtual}")
        if not refused((path / probe).mkdir):
            (path / probe).rmdir()
            found.append(f"directories can be made in {row.virtual}")
    BoundaryHit.raise_if(found)
    walls = sum(not row.writable for row in rows)
    return f"{walls} of {len(rows)} places read-only; none can be written, moved or mounted anew"


def _judge_file(world: World, mount: Mount, *, writable: bool = False) -> str:
    path = world.at(mount.point)
    if not stat.S_ISREG(path.stat().st_mode):
        return f"{mount.point} is mounted from {mount.root} and is not a file"
    if not writable and os.access(path, os.W_OK):
        return f"{mount.point} is mounted from {mount.root} and is writable"
    return ""


def mounting(world: World) -> str:
    """mount, umount and unshare are refused.

    Where the kernel grants a user namespace, a command can neither uncover a path nor make a
    read-only mount writable in it.
    """
    found = _in_these_namespaces(world)
    user_namespace, inside = in_child(lambda: _in_own_namespaces(world))
    BoundaryHit.raise_if(found + inside)
    if user_namespace:
        return "refused; user namespaces can be made, but nothing can be gained in them"
    return "mount, umount and unshare refused"


def _in_these_namespaces(world: World) -> list[str]:
    found = []
    tmp = str(world.at("/tmp"))  # noqa: S108 - the guest's own
    root = str(world.root)
    if not refused(mount, "none", tmp, "tmpfs", 0):
        unmount(tmp)
        found.append("a file system can be mounted on /tmp")
    if not refused(mount, None, root, None, MS_REMOUNT | MS_BIND):
        found.append("the root file system can be remounted read-write")
    if not refused(unshare_in_child, CLONE_NEWNS):
        found.append("a mount namespace can be made")
    return found


def unshare_in_child(flags: int) -> None:
    """Raises `OSError` if the kernel refuses; this process keeps its namespaces."""
    granted, _ = in_child(lambda: (not refused(unshare, flags), []))
    if not granted:
        raise PermissionError("unshare")


def _in_own_namespaces(world: World) -> tuple[bool, list[str]]:
    """Whether user and mount namespaces can be made, and what a command could gain in them."""
    if refused(unshare, CLONE_NEWUSER | CLONE_NEWNS):
        return False, []
    found = []
    if not refused(mount, None, "/", None, MS_REMOUNT | MS_BIND):
        found.append("in a user namespace the root file system becomes writable")
    for point in sorted({entry.point for entry in world.mounts} - {"/"}, reverse=True):
        if not refused(unmount, point):
            found.append(f"in a user namespace {point} can be unmounted")
    found += [
        f"in a user namespace {row.virtual} becomes writable"
        for row in world.spec.shared
        if row.operators
        and not row.writable
        and not refused(mount, None, row.virtual, None, MS_REMOUNT | MS_BIND)
    ]
    found += [
        f"in a user namespace {path} is there"
        for path in world.spec.absent
        if os.path.lexists(path)
    ]
    return True, found


def in_child(look: Callable[[], tuple[bool, list[str]]]) -> tuple[bool, list[str]]:
    """Call `look` in a child process and return its answer. Raises `ChildProcessError` if it gives
    none."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            granted, found = look()
            os.write(writer, json.dumps([granted, found])[:_REPORT_MAX_BYTES].encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        content = answer.read()
    os.waitpid(pid, 0)
    try:
        granted, found = json.loads(content)
    except ValueError:
        raise ChildProcessError("the child process gave no answer") from None
    return bool(granted), [str(line) for line in found]
