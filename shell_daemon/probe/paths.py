"""Paths that no name may lead to: the user's private files and all files of other users."""

import os
from collections.abc import Iterable

from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import BoundaryHit, World


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
