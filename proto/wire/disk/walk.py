"""Walks through a directory that somebody else fills, however deep and however wide it is."""

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CLOSED: Final = (errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_COSTLY: Final = 10


class MovedError(OSError):
    """Directories were moved during a walk, so that its rest cannot be found."""


class Entry(NamedTuple):
    """What was found, and the open directory that holds it. `above` are the names of the
    directories from the start of the walk to that one; the list is used again for the next
    entry."""

    directory: int
    found: "os.DirEntry[str]"
    above: Sequence[str]

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def path(self) -> str:
        """Relative to the start of the walk."""
        return "/".join((*self.above, self.name))

    @property
    def is_plain(self) -> bool:
        """Whether it is a file or a link."""
        return self.found.is_file(follow_symlinks=False) or self.found.is_symlink()

    @property
    def cost(self) -> int:
        """How much work it is to look at it. Files and links only have to be counted."""
        return 1 if self.is_plain else _COSTLY


def walk(start: int) -> Iterator[Entry]:
    """Everything below an open directory.

    Links are not followed, and directories that are closed to the caller are passed over. Needs
    three descriptors and no recursion, and keeps the names of directories that are still to be
    walked. Raises `MovedError`, and `OSError` where the file system fails.
    """
    here = os.open(".", _FLAGS, dir_fd=start)
    try:
        names: list[str] = []
        inside: list[str] = []
        yield from _listed(here, names, inside)
        levels = [(_identity(here), inside)]
        while levels:
            if inside := levels[-1][1]:
                name = inside.pop()
                if (below := _entered(here, name)) < 0:
                    continue
                names.append(name)
                try:
                    further: list[str] = []
                    yield from _listed(below, names, further)
                    if further and _may_be_searched(below):
                        levels.append((_identity(below), further))
                        here, below = below, here
                    else:
                        names.pop()
                finally:
                    os.close(below)
                continue
            levels.pop()
            if levels:
                names.pop()
                above = _above(here, levels[-1][0], start, names)
                os.close(here)
                here = above
    finally:
        os.close(here)


def _listed(here: int, names: Sequence[str], inside: list[str]) -> Iterator[Entry]:
    """The entries of one directory; those that are directories go into `inside`."""
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inside.append(entry.name)
            yield Entry(here, entry, names)


def _entered(here: int, name: str) -> int:
    """The descriptor of a directory; -1 if it is closed or gone."""
    try:
        return os.open(name, _FLAGS, dir_fd=here)
    except OSError as error:
        if error.errno in _CLOSED:
            return -1
        raise


def _may_be_searched(directory: int) -> bool:
    """Whether what lies in it can be opened, and with that the way up again."""
    try:
        os.close(os.open(".", os.O_PATH | os.O_CLOEXEC, dir_fd=directory))
    except PermissionError:
        return False
    return True


def _above(here: int, expected: tuple[int, int], start: int, names: Sequence[str]) -> int:
    """The directory above `here`, by `..` or, if somebody has moved that, by its `names`."""
    for way in ((here, ("..",)), (start, (".", *names))):
        found = _opened(*way)
        if found >= 0 and _identity(found) == expected:
            return found
        if found >= 0:
            os.close(found)
    raise MovedError(errno.ESTALE, "directories were moved meanwhile")


def _opened(start: int, names: Sequence[str]) -> int:
    found, here = -1, start
    for name in names:
        try:
            below = os.open(name, _FLAGS, dir_fd=here)
        except OSError:
            return -1
        finally:
            if found >= 0:
                os.close(found)
        found = here = below
    return found


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino
