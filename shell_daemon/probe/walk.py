"""A walk over the directories that a command can reach, without the system's own.

It has no recursion and no limit of depth. Each place where it starts has a budget of its own, and a
walk that did not end is a finding: nobody knows what lies in the rest.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Final, NamedTuple

from shell_daemon.probe.world import Budget, World

TEXTS: Final = ("/run", "/var/run", "/ipc")
"""The places whose files are searched for secrets: every entry of them is kept."""
_USERS: Final = ("/shared", "/tmp")  # noqa: S108 - the guest's own
_SYSTEM: Final = frozenset(
    {"", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"}
)
_RELATIVE_MAX_CHARS: Final = 2000
_ENTRIES_PER_LOOK: Final = 256


class Entry(NamedTuple):
    """A directory entry at the guest's `path`, and what it is; links are not followed."""

    path: str
    result: os.stat_result

    @property
    def is_socket(self) -> bool:
        return stat.S_ISSOCK(self.result.st_mode)


class Walk(NamedTuple):
    """What was found: sockets, what the specification names by its inode, and the entries of
    `TEXTS`. `unfinished` says why, for each place whose walk did not end."""

    entries: list[Entry]
    seen: int
    unfinished: dict[str, str]


class _Unfinished(Exception):  # noqa: N818 - a finding, not an error
    """The budget of a place is used up."""


@cache
def walk(world: World) -> Walk:
    """Every entry of every place, level by level."""
    wanted = {private.inode for private in world.spec.private if private.inode}
    wanted |= {inode for _, inode in world.spec.other_users}
    entries: list[Entry] = []
    unfinished: dict[str, str] = {}
    count = 0
    for start in dict.fromkeys(_starts(world)):
        keep = bool(place_of(start))
        budget = world.budgets.users if start in _USERS else world.budgets.own
        with ExitStack() as opened:
            try:
                for directory, entry in _below(world, start, budget, opened):
                    count += 1
                    if not (keep or _is_special(entry) or entry.inode() in wanted):
                        continue
                    with suppress(FileNotFoundError):
                        result = entry.stat(follow_symlinks=False)
                        entries.append(Entry(f"{directory}/{entry.name}", result))
            except (_Unfinished, OSError) as problem:
                unfinished[start] = f"the walk of {start} did not end: {problem}"
    return Walk(entries, count, unfinished)


@contextmanager
def opened_at(world: World, path: str) -> Iterator[int]:
    """A descriptor of what lies at the guest's `path`, however long that is; it cannot be read."""
    rest = str(world.at(path))
    anchor = None
    with ExitStack() as opened:
        while len(rest) > _RELATIVE_MAX_CHARS:
            above, _, below = rest[:_RELATIVE_MAX_CHARS].rpartition("/")
            anchor = os.open(above, os.O_PATH | os.O_DIRECTORY, dir_fd=anchor)
            opened.callback(os.close, anchor)
            rest = below + rest[_RELATIVE_MAX_CHARS:]
        descriptor = os.open(rest, os.O_PATH | os.O_NOFOLLOW, dir_fd=anchor)
        opened.callback(os.close, descriptor)
        yield descriptor


def place_of(path: str) -> str:
    """Which of `TEXTS` a path lies in; empty for another place."""
    return next((place for place in TEXTS if f"{path}/".startswith(f"{place}/")), "")


def _starts(world: World) -> Iterator[str]:
    """The shared directories, `/run`, and every other mount that is not the system's."""
    yield from (row.virtual for row in world.spec.shared)
    yield from ("/run", "/var/run")
    for mount in world.mounts:
        top = mount.point.split("/")[1]
        if top not in _SYSTEM and mount.point not in world.spec.read_only:
            yield mount.point


def _below(
    world: World, start: str, budget: Budget, opened: ExitStack
) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Everything below `start`, with the path of its directory in the guest.

    Directories are opened by paths that are relative to an open one above them, because commands
    can nest them deeper than the kernel allows a path to be long. Raises `_Unfinished`.
    """
    deadline = time.monotonic() + budget.seconds
    count = 0
    pending: deque[tuple[int | None, str, str]] = deque([(None, str(world.at(start)), start)])
    while pending:
        anchor, relative, path = pending.popleft()
        if (descriptor := _open(anchor, relative, follow=path == start)) < 0:
            continue
        prefix = f"{relative}/"
        if len(relative) > _RELATIVE_MAX_CHARS:
            opened.callback(os.close, descriptor)
            anchor, prefix = descriptor, ""
        try:
            with os.scandir(descriptor) as found:
                for entry in found:
                    if (count := count + 1) > budget.entries:
                        raise _Unfinished(f"it has more than {budget.entries} entries")
                    if count % _ENTRIES_PER_LOOK == 0 and time.monotonic() > deadline:
                        raise _Unfinished(f"it took more than {budget.seconds:g} seconds")
                    yield path, entry
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((anchor, f"{prefix}{entry.name}", f"{path}/{entry.name}"))
        finally:
            if prefix:
                os.close(descriptor)
        if time.monotonic() > deadline:
            raise _Unfinished(f"it took more than {budget.seconds:g} seconds")


def _open(anchor: int | None, relative: str, *, follow: bool) -> int:
    """The descriptor of a directory; -1 if it is closed to commands or gone. Raises `OSError` for
    everything else."""
    flags = os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW)
    try:
        return os.open(relative, flags, dir_fd=anchor)
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return -1


def _is_special(entry: "os.DirEntry[str]") -> bool:
    """Whether it may be a socket; the listing says it of files, directories and links."""
    return not (
        entry.is_file(follow_symlinks=False)
        or entry.is_dir(follow_symlinks=False)
        or entry.is_symlink()
    )
