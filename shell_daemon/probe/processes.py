"""The processes that a command sees, and what it can read from them."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wire.network_probe import require_tried

from shell_daemon.probe.libc import trace
from shell_daemon.probe.world import BoundaryHit, World, fields, opened, refused

_DAEMON: Final = "oxydra-shell"
_ZYGOTE: Final = "oxydra-zygote"
_DAEMONS: Final = (_DAEMON, _ZYGOTE, "oxydra-superv")
"""The process names of the daemon and its helpers."""
_KERNEL_THREADS: Final = "kthreadd"
_FIRST: Final = 1
_NULL: Final = os.makedev(1, 3)


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
    all processes share one root directory.

    gVisor closes neither environment nor descriptors. There the daemon is not visible at all, and
    its helpers' environment is empty and their descriptors cannot be opened.
    """
    found: list[str] = []
    daemons = {pid: name for pid in _ancestors(world) if (name := _name(world, pid)) in _DAEMONS}
    if world.gvisor:
        found += _seen_in_gvisor(world, daemons)
    elif _DAEMON not in daemons.values():
        found.append("the shell daemon is not visible, so its memory could not be checked")
    for pid, name in daemons.items():
        own = world.proc / str(pid)
        for file in ("mem",) if world.gvisor else ("environ", "mem"):
            if not refused(opened, own / file, os.O_RDONLY):
                found.append(f"{name}'s {file} can be read")
        for link in ("root", "cwd") if world.gvisor else ("root", "cwd", "fd/0"):
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


def _seen_in_gvisor(world: World, daemons: dict[int, str]) -> Iterator[str]:
    """What a command can use of the daemon and its helpers though it must not, where the kernel
    closes their memory only."""
    if _DAEMON in {_name(world, pid) for pid in world.pids}:
        yield "the shell daemon is visible"
    if daemons.get(_FIRST) != _ZYGOTE:
        yield "the zygote is not the first process, so that the daemon may be visible"
    for pid, name in daemons.items():
        own = world.proc / str(pid)
        if (own / "environ").read_bytes():
            yield f"{name}'s environment can be read"
        for entry in sorted((own / "fd").iterdir()):
            if not _is_closed(entry):
                yield f"{name}'s descriptor {entry.name} can be opened"


def _is_closed(descriptor: Path) -> bool:
    """Whether a process's descriptor, by its name in /proc, cannot be opened or is the null
    device."""
    if descriptor.stat().st_rdev == _NULL:
        return True
    return all(
        refused(opened, descriptor, mode | os.O_NONBLOCK) for mode in (os.O_RDONLY, os.O_WRONLY)
    )


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
            if not (stat.S_ISDIR(mode) or stat.S_ISBLK(mode)):
                continue
            target = (directory / number).readlink()
            if world.gvisor:  # which does not tell the mount
                outside = not _is_here(world, directory / number, str(target))
            else:
                outside = fields(info).get("mnt_id") not in ids
            if outside:
                found.append(f"descriptor {number} of process {pid} leads out, to {target}")
    BoundaryHit.raise_if(found)
    return f"none of {seen} leads out"


def _is_here(world: World, descriptor: Path, target: str) -> bool:
    """Whether what a descriptor leads to is what lies in the guest under the name that it has."""
    try:
        return os.path.samestat(descriptor.stat(), world.at(target).lstat())
    except FileNotFoundError:
        return target.endswith(" (deleted)")
