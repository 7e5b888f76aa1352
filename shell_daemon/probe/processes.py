"""The processes that a command sees, and what it can read from them."""

import os
import stat
from typing import Final

from shell_daemon.probe.libc import trace
from shell_daemon.probe.world import BoundaryHit, World, fields, opened, refused, require_tried

_DAEMON: Final = "oxydra-shell"
_DAEMONS: Final = (_DAEMON, "oxydra-zygote", "oxydra-superv")
"""The process names of the daemon and its helpers."""
_KERNEL_THREADS: Final = "kthreadd"


def processes(world: World) -> str:
    """Only the guest's processes are visible: no other user's, no kernel thread, no runner."""
    found = []
    if _name(world, 2) == _KERNEL_THREADS:
        found.append("the kernel's threads are visible")
    for pid in world.pids:
        try:
            uid = (world.proc / str(pid)).stat().st_uid
        except FileNotFoundError:
            continue
        # In /proc, a process that concealed itself belongs to root; its effective uid tells.
        effective = _status(world, str(pid)).get("Uid", "-1 -1").split()[1]
        if uid != world.spec.uid and int(effective) != world.spec.uid:
            found.append(f"process {pid} ({_name(world, pid)}) of another user is visible")
    BoundaryHit.raise_if(found[:10])
    return f"{len(world.pids)} visible, all of this guest"


def process_memory(world: World) -> str:
    """No command can read the memory, environment or files of the daemon and its helpers, and
    all processes share one root directory."""
    found: list[str] = []
    daemons = {pid: name for pid in _ancestors(world) if (name := _name(world, pid)) in _DAEMONS}
    if _DAEMON not in daemons.values():
        found.append("the shell daemon is not visible, so its memory could not be checked")
    for pid, name in daemons.items():
        own = world.proc / str(pid)
        for file in ("environ", "mem"):
            if not refused(opened, own / file, os.O_RDONLY):
                found.append(f"{name}'s {file} can be read")
        for link in ("root", "cwd", "fd/0"):
            if not refused(os.readlink, own / link):
                found.append(f"{name}'s {link} can be followed")
        if not refused(trace, pid):
            found.append(f"{name} can be traced")
    root = (world.proc / "self/root").stat()
    for pid in world.pids:
        try:
            theirs = (world.proc / str(pid) / "root").stat()
        except OSError:
            continue
        if (theirs.st_dev, theirs.st_ino) != (root.st_dev, root.st_ino):
            found.append(f"process {pid} ({_name(world, pid)}) has another root directory")
    BoundaryHit.raise_if(found)
    return f"closed in {len(daemons)} processes of the daemon"


def _ancestors(world: World) -> list[int]:
    """The processes above this one, nearest first; no other process can join them."""
    found: list[int] = []
    pid = int(world.status["PPid"])
    while pid and pid not in found:
        found.append(pid)
        pid = int(_status(world, str(pid)).get("PPid", "0"))
    return found


def _status(world: World, process: str) -> dict[str, str]:
    try:
        return fields(world.text(f"{process}/status"))
    except OSError:
        return {}


def _name(world: World, pid: int) -> str:
    try:
        return world.text(f"{pid}/comm").strip()
    except OSError:
        return ""


def descriptors(world: World) -> str:
    """No process holds a directory or block device that was opened outside the guest."""
    ids = {mount.mount_id for mount in world.mounts}
    found = []
    seen = 0
    for pid in world.pids:
        directory = world.proc / str(pid) / "fd"
        try:
            numbers = [entry.name for entry in directory.iterdir()]
        except OSError as error:
            require_tried(error)
            continue
        for number in numbers:
            seen += 1
            try:
                mode = (directory / number).stat().st_mode
                info = world.text(f"{pid}/fdinfo/{number}")
            except OSError as error:
                require_tried(error)
                continue
            outside = fields(info).get("mnt_id") not in ids
            if outside and (stat.S_ISDIR(mode) or stat.S_ISBLK(mode)):
                target = (directory / number).readlink()
                found.append(f"descriptor {number} of process {pid} leads out, to {target}")
    BoundaryHit.raise_if(found)
    return f"none of {seen} leads out"
