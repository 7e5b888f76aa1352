"""Walks through a directory that somebody else fills, however deep and however wide it is."""

import logging
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

log = logging.getLogger(__name__)
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """What was found: an open directory, a name in it and what that is. `above` are the names of
    the directories from the start of the walk to the open one."""

    directory: int
    name: str
    found: os.stat_result
    above: Sequence[str]


def walk(start: int) -> Iterator[Entry]:
    """Everything below an open directory. Links are not followed.

    Needs two descriptors and no recursion at any depth: the way up is `..`, and if that is not
    the directory it came from, because somebody has moved one, the walk ends there.
    """
    here = os.open(".", _FLAGS, dir_fd=start)
    try:
        names: list[str] = []
        inside: list[str] = []
        yield from _listed(here, names, inside)
        levels = [(os.fstat(here), inside)]
        while levels:
            if levels[-1][1]:
                name = levels[-1][1].pop()
                try:
                    below = os.open(name, _FLAGS, dir_fd=here)
                except OSError:
                    continue
                os.close(here)
                here, inside = below, []
                names.append(name)
                yield from _listed(here, names, inside)
                levels.append((os.fstat(here), inside))
                continue
            levels.pop()
            if not levels:
                return
            names.pop()
            above = _parent(here, levels[-1][0])
            if above is None:
                log.warning("a directory was moved during a walk, the rest of which is left out")
                return
            os.close(here)
            here = above
    finally:
        os.close(here)


def _parent(here: int, expected: os.stat_result) -> int | None:
    """The directory above `here`; None if it is not the expected one."""
    try:
        above = os.open("..", _FLAGS, dir_fd=here)
    except OSError:
        return None
    if os.path.samestat(os.fstat(above), expected):
        return above
    os.close(above)
    return None


def _listed(here: int, names: Sequence[str], inside: list[str]) -> Iterator[Entry]:
    """The entries of one directory; those that are directories go into `inside`."""
    with os.scandir(here) as entries:
        for entry in entries:
            try:
                found = os.stat(entry.name, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(found.st_mode):
                inside.append(entry.name)
            yield Entry(here, entry.name, found, names)
