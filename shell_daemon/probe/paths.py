"""Paths that no name may lead to: the user's private files and all files of other users."""

import os
from collections.abc import Callable

from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import BoundaryHit, World


def private_paths(world: World) -> str:
    """Private files cannot be reached by their virtual path, their host path, a link or a
    mount."""
    found = [f"{path} is there" for path in world.spec.absent if _lstat(world, path)]
    for private in world.spec.private:
        result = _lstat(world, private.path) if private.path else None
        if result and world.is_same(result, private.device, private.inode):
            found.append(f"{private.label} is there by its host path")
    by_inode = {private.inode: private for private in world.spec.private if private.inode}

    def judge(path: str, inode: int) -> str:
        private = by_inode.get(inode)
        if private is None or not _is_same(world, path, private.device, inode):
            return ""
        return f"{private.label} is there as {path}"

    BoundaryHit.raise_if(found + _judge_all(world, judge))
    return f"none of {len(world.spec.private)} among {len(walk(world))} entries"


def other_users(world: World) -> str:
    """No directory of another user's workspace can be reached under any name."""
    theirs = {inode: device for device, inode in world.spec.other_users}

    def judge(path: str, inode: int) -> str:
        device = theirs.get(inode)
        if device is None or not _is_same(world, path, device, inode):
            return ""
        return f"a directory of another user's workspace is there as {path}"

    BoundaryHit.raise_if(_judge_all(world, judge))
    return f"none of {len(theirs)} directories among {len(walk(world))} entries"


def _judge_all(world: World, judge: Callable[[str, int], str]) -> list[str]:
    """Judge every entry; a mount point by what is mounted there, which no listing shows."""
    points = {mount.point for mount in world.mounts}
    mounted = [(point, result.st_ino) for point in points if (result := _lstat(world, point))]
    entries = [(entry.path, entry.inode) for entry in walk(world) if entry.path not in points]
    judged = (judge(path, inode) for path, inode in (*sorted(mounted), *entries))
    return [problem for problem in judged if problem]


def _is_same(world: World, path: str, device: int, inode: int) -> bool:
    result = _lstat(world, path)
    return result is not None and world.is_same(result, device, inode)


def _lstat(world: World, path: str) -> os.stat_result | None:
    try:
        return world.at(path).lstat()
    except OSError:
        return None
