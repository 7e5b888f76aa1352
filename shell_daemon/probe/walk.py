"""A bounded walk over the directories that a command can reach, without the system's own."""

import os
import stat
import time
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from shell_daemon.probe.world import World

_ENTRIES_MAX: Final = 20_000
_DEPTH_MAX: Final = 6
_TIME_MAX_S: Final = 0.1
_SYSTEM: Final = frozenset(
    {"", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"}
)


class Entry(NamedTuple):
    """A directory entry at the guest's `path`; links are not followed."""

    path: str
    inode: int
    is_socket: bool


@cache
def walk(world: World) -> list[Entry]:
    """Entries level by level, up to a limit of entries, depth and time.

    Users keep millions of files, and what is mounted by mistake is at the top.
    """
    deadline = time.monotonic() + _TIME_MAX_S
    found: list[Entry] = []
    level = list(dict.fromkeys(_starts(world)))
    for _ in range(_DEPTH_MAX):
        below: list[str] = []
        for directory in level:
            for entry in _entries(world, directory):
                if len(found) >= _ENTRIES_MAX or time.monotonic() > deadline:
                    return found
                path = f"{directory}/{entry.name}"
                found.append(Entry(path, entry.inode(), _is_socket(entry)))
                if entry.is_dir(follow_symlinks=False):
                    below.append(path)
        level = below
    return found


def _starts(world: World) -> Iterator[str]:
    """The shared directories, `/run`, and every other mount that is not the system's."""
    yield from (row.virtual for row in world.spec.shared)
    yield from ("/run", "/var/run")
    for mount in world.mounts:
        top = mount.point.split("/")[1]
        if top not in _SYSTEM and mount.point not in world.spec.read_only:
            yield mount.point


def _entries(world: World, directory: str) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(world.at(directory)) as entries:
            yield from entries
    except OSError:
        return


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
        return False
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False
