"""What lies in the directories that a command can reach, without the system's own.

Each place where a walk starts has a budget of its own, and a walk that did not end is a finding:
nobody knows what lies in the rest.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from wire import disk
from wire.network_probe import require_tried

from shell_daemon.probe.world import Budget, World

TEXTS: Final = ("/run", "/var/run", "/ipc")
"""The places whose files are searched for secrets: every entry of them is kept."""
_USERS: Final = ("/shared", "/tmp", "/cache")  # noqa: S108 - the guest's own
_SYSTEM: Final = frozenset(
    {"", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"}
)
_ENTRIES_PER_LOOK: Final = 256
_FOREIGN_MAX: Final = 20


class Entry(NamedTuple):
    """A directory entry at the guest's `path`, and what it is; links are not followed."""

    path: str
    result: os.stat_result


class Walk(NamedTuple):
    """What was found: what the specification names by its inode, and the entries of `TEXTS`;
    which sockets are not of this guest; how many sockets and how many entries there are.
    `unfinished` says why, for each place whose walk did not end. `unseen` says it of volumes of
    other machines: nothing there is looked for by its inode, and only guests of the same user mount
    them. Nobody could move aside what is too much in them, so it must keep no shell from starting.
    """

    entries: list[Entry]
    foreign: list[str]
    sockets: int
    seen: int
    unfinished: dict[str, str]
    unseen: list[str]


class _Unfinished(Exception):  # noqa: N818 - a finding, not an error
    """The budget of a place is used up."""


@cache
def walk(world: World) -> Walk:
    """Every entry of every place. Sockets are tried on the way, because there may be as many as
    a command likes, at paths of any length."""
    wanted = {private.inode for private in world.spec.private if private.inode}
    wanted |= {inode for _, inode in world.spec.other_users}
    entries: list[Entry] = []
    foreign: list[str] = []
    unfinished: dict[str, str] = {}
    unseen: list[str] = []
    volumes = {row.virtual for row in world.spec.shared if world.is_volume(row)}
    sockets = seen = 0
    for start in dict.fromkeys(_starts(world)):
        keep = bool(place_of(start))
        of_users = start in _USERS or start in volumes
        budget = world.budgets.users if of_users else world.budgets.own
        try:
            for entry in _within(budget, _below(world, start)):
                seen += 1
                if is_socket(entry) and not _is_own(world, start, entry):
                    sockets += 1
                    finding = foreign_socket(entry.directory, entry.name, world.spec.uid)
                    if finding and len(foreign) < _FOREIGN_MAX:
                        foreign.append(f"{start}/{entry.path} is {finding}")
                if keep or entry.found.inode() in wanted:
                    with suppress(FileNotFoundError):
                        result = entry.found.stat(follow_symlinks=False)
                        entries.append(Entry(f"{start}/{entry.path}", result))
        except (_Unfinished, OSError) as problem:
            why = f"the walk of {start} did not end: {problem}"
            if start in volumes and isinstance(problem, _Unfinished):
                unseen.append(why)
            else:
                unfinished[start] = why
    return Walk(entries, foreign, sockets, seen, unfinished, unseen)


def place_of(path: str) -> str:
    """Which of `TEXTS` a path lies in; empty for another place."""
    return next((place for place in TEXTS if f"{path}/".startswith(f"{place}/")), "")


def _starts(world: World) -> Iterator[str]:
    """The shared directories, `/run`, and every other mount that is not the system's.

    Not those of users in gVisor, where files have other numbers than on the host: the runner looks
    through them itself. And none of the operator's own.
    """
    others = {row.virtual for row in world.spec.shared if row.operators}
    others |= set(_USERS) if world.gvisor else set()
    yield from (start for start in _all_starts(world) if start not in others)


def _all_starts(world: World) -> Iterator[str]:
    yield from (row.virtual for row in world.spec.shared)
    yield from ("/run", "/var/run")
    for mount in world.mounts:
        top = mount.point.split("/")[1]
        if top not in _SYSTEM and mount.point not in world.spec.read_only:
            yield mount.point


def _below(world: World, start: str) -> Iterator[disk.Entry]:
    """Everything below a place; nothing if that is closed to commands, gone or no directory."""
    try:
        directory = os.open(world.at(start), os.O_RDONLY | os.O_DIRECTORY)
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return
    with disk.held(directory):
        yield from disk.walk(directory)


def _within(budget: Budget, entries: Iterable[disk.Entry]) -> Iterator[disk.Entry]:
    """The same, as far as the budget goes. Raises `_Unfinished`."""
    deadline = time.monotonic() + budget.seconds
    spent = 0
    for number, entry in enumerate(entries):
        cost = entry.cost
        if (spent := spent + cost) > budget.entries:
            raise _Unfinished(f"it has more than {budget.entries} entries")
        if (cost > 1 or number % _ENTRIES_PER_LOOK == 0) and time.monotonic() > deadline:
            raise _Unfinished(f"it took more than {budget.seconds:g} seconds")
        yield entry


def _is_own(world: World, start: str, entry: disk.Entry) -> bool:
    """Whether it is the shell's own socket, or egress's listener."""
    spec = world.spec
    return not entry.above and f"{start}/{entry.name}" in (spec.socket, spec.egress_listener)


def foreign_socket(directory: int | None, name: str, uid: int) -> str:
    """What is wrong with the socket `name`; "" if a process of this guest, with `uid`, made it."""
    with suppress(FileNotFoundError):
        flags = os.O_PATH | os.O_NOFOLLOW
        with disk.held(os.open(name, flags, dir_fd=directory)) as descriptor:
            if os.fstat(descriptor).st_uid != uid:
                return "there, a socket of another user"
            if is_served_outside(f"/proc/self/fd/{descriptor}"):
                return "served from outside the guest"
    return ""


def is_socket(entry: disk.Entry) -> bool:
    """Whether it is one; the listing says it of files, links and directories."""
    if entry.is_plain or entry.found.is_dir(follow_symlinks=False):
        return False
    with suppress(FileNotFoundError):
        return stat.S_ISSOCK(entry.found.stat(follow_symlinks=False).st_mode)
    return False


def is_served_outside(address: str) -> bool:
    """Whether a listener at `address` is outside: the kernel reports process id 0 for it."""
    try:
        return disk.listener(address) == 0
    except OSError as error:
        require_tried(error)
        return False
