"""Whether a command can change what it sees by mounting, also in namespaces of its own."""

import json
import os
from collections.abc import Callable
from typing import Final

from shell_daemon.probe.libc import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_BIND,
    MS_REMOUNT,
    mount,
    refused,
    unmount,
    unshare,
)
from shell_daemon.probe.world import BoundaryHit, World

_REPORT_MAX_BYTES: Final = 4096


def mounting(world: World) -> str:
    """mount, umount and unshare are refused; where the kernel grants a user namespace,
    nothing that is covered or read-only can be undone in it."""
    found = _attempts(world)
    user_namespace, inside = in_child(lambda: _in_own_namespaces(world))
    BoundaryHit.raise_if(found + inside)
    if user_namespace:
        return "refused; user namespaces can be made, and nothing is to be had in them"
    return "mount, umount and unshare refused"


def _attempts(world: World) -> list[str]:
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
    """Raises `OSError` where the kernel refuses; this process keeps its namespaces."""
    granted, _ = in_child(lambda: (not refused(unshare, flags), []))
    if not granted:
        raise PermissionError("unshare")


def _in_own_namespaces(world: World) -> tuple[bool, list[str]]:
    """Whether namespaces of users and mounts can be made, and what could be had there."""
    if refused(unshare, CLONE_NEWUSER | CLONE_NEWNS):
        return False, []
    found = []
    if not refused(mount, None, "/", None, MS_REMOUNT | MS_BIND):
        found.append("in a user namespace the root file system becomes writable")
    for point in sorted({entry.point for entry in world.mounts} - {"/"}, reverse=True):
        if not refused(unmount, point):
            found.append(f"in a user namespace {point} can be unmounted")
    found += [
        f"in a user namespace {path} is there"
        for path in world.spec.absent
        if os.path.lexists(path)
    ]
    return True, found


def in_child(look: Callable[[], tuple[bool, list[str]]]) -> tuple[bool, list[str]]:
    """The answer of `look`, given in a process of its own that ends with it.

    Raises `ChildProcessError` where it does not answer.
    """
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
        raise ChildProcessError("the process that tried it gave no answer") from None
    return bool(granted), [str(line) for line in found]
