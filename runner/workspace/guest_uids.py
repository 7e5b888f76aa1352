"""A uid for each user's guests, where the runner is root.

The kernel counts inotify instances, pending signals, processes and more for each uid, so with one
for all, one user's commands could use up what the others need.

Which uid is a user's is recorded as the group of the workspace's directory, whose owner is the
runner in every tier: no guest sees that directory, it changes in one step, and it goes where the
workspace goes. It is assigned under a lock that all runners of a `workspace_root` share.
"""

import grp
import hashlib
import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

import psutil
from wire import locks
from wire.errors import Code
from wire.settings import GUEST_UID_COUNT_MAX, ContainerSettings
from wire.text import visible_name

from runner.errors import WorkspaceError
from runner.workspace.directories import Owner, descriptor

_LOCK: Final = ".guest-uids.lock"
LOCK_WAIT_S: Final = 10.0
_OVERFLOW: Final = frozenset({65_534, 65_535})
"""What the kernel shows in the place of a uid that it cannot show, and no uid at all in calls with
16 bits."""

Holder = Callable[[int], str]
"""Who has a uid, in words; empty if nobody is known."""


@dataclass(frozen=True)
class GuestUids:
    """The `count` uids from `first`: the embedder's, and then those for users.

    As a container it holds every uid whose files a workspace may have: these, and root's.
    """

    first: int
    count: int

    @classmethod
    def of(cls, settings: ContainerSettings) -> "GuestUids":
        return cls(settings.guest_uid, settings.guest_uid_count)

    @property
    def embedder(self) -> int:
        return self.first

    @property
    def users(self) -> range:
        return range(self.first + 1, self.first + self.count)

    def __contains__(self, uid: object) -> bool:
        return isinstance(uid, int) and (uid == 0 or self.first <= uid < self.first + self.count)

    def __str__(self) -> str:
        return (
            f"container.guest_uid = {self.first} and container.guest_uid_count = {self.count} "
            f"give users the uids {self.users[0]} to {self.users[-1]}"
        )

    def owner(self, workspace: Path) -> Owner | None:
        """The owner that is recorded for a workspace; None before one is assigned."""
        try:
            uid = workspace.lstat().st_gid
        except OSError:
            return None
        return Owner(uid, uid, self) if uid in self.users else None


class Machine:
    """Who has which uid on this machine, as far as that can be known. Without `processes`, those
    that run are not asked: a user's own guests are among them."""

    def __init__(self, etc: Path = Path("/etc"), *, processes: bool = True) -> None:
        self._etc = etc
        self._ask_processes = processes

    def holder(self, uid: int) -> str:
        """Whose a uid or the gid of the same number is, in words; empty if nobody's."""
        if uid in _OVERFLOW:
            return "the kernel, for what it cannot show"
        for name, first, count in self._ranges:
            if first <= uid < first + count:
                return f"{name}, for user namespaces (/etc/subuid, /etc/subgid)"
        with suppress(KeyError):
            return f"the account {pwd.getpwuid(uid).pw_name}"
        with suppress(KeyError):
            return f"the group {grp.getgrgid(uid).gr_name}"
        return self._processes.get(uid, "")

    @cached_property
    def _ranges(self) -> list[tuple[str, int, int]]:
        found = []
        for file in ("subuid", "subgid"):
            with suppress(OSError):
                for line in (self._etc / file).read_text(errors="replace").splitlines():
                    name, _, numbers = line.partition(":")
                    first, _, count = numbers.partition(":")
                    if first.isdecimal() and count.isdecimal():
                        found.append((name, int(first), int(count)))
        return found

    @cached_property
    def _processes(self) -> dict[int, str]:
        found: dict[int, str] = {}
        if self._ask_processes:
            for process in psutil.process_iter(["uids", "name", "status"]):
                if process.info["uids"] and process.info["status"] != psutil.STATUS_ZOMBIE:
                    words = f"process {process.pid} ({process.info['name']})"
                    found.update(dict.fromkeys(process.info["uids"], words))
        return found


@dataclass(frozen=True)
class UidAssignment:
    """The uid that a workspace has or gets. If `before`, its group, is another one, `why` says why
    that cannot stay. `taken` counts the uids for users that other workspaces have."""

    uid: int
    before: int
    why: str
    taken: int


def assign(
    root: Path, user_id: str, uids: GuestUids, holder: Holder | None = None
) -> UidAssignment:
    """Give the workspace of `user_id` below `root` a uid that is nobody else's. Idempotent.

    It keeps the one it has unless that is not of `uids`, is another workspace's too, or has a
    `holder` (default: `Machine`). The caller holds the workspace, and no guest of it runs. Raises
    `WorkspaceError` if none is left.
    """
    with _locked(root), descriptor(root / user_id, os.O_RDONLY | os.O_DIRECTORY) as fd:
        found = look(root, user_id, uids, holder or Machine().holder)
        if found.uid != found.before:
            os.fchown(fd, -1, found.uid)
            os.fsync(fd)
    return found


def look(root: Path, user_id: str, uids: GuestUids, holder: Holder) -> UidAssignment:
    """What `assign` would do for a workspace, which may be missing. Changes nothing."""
    others = _others(root, user_id)
    taken = sum(each in uids.users for each in others)
    try:
        before = (root / user_id).lstat().st_gid
    except OSError:
        before = 0
    if before not in uids.users:
        why = "which all users shared" if before == uids.embedder else "which users cannot have"
    elif before in others:
        why = f"which the workspace {others[before]} has too"
    elif whose := holder(before):
        why = f"which {whose} has too"
    else:
        return UidAssignment(before, before, "", taken)
    for uid in _in_turn(root, uids.users):
        if uid not in others and not holder(uid):
            return UidAssignment(uid, before, why, taken)
    raise WorkspaceError(
        Code.RESOURCE_EXHAUSTED,
        f"no uid is left for the guests of {user_id}",
        details=f"{uids}; {taken:,} are those of other workspaces in {root}, and the others are "
        "those of accounts, groups or processes of this machine",
        resolution="set container.guest_uid_count higher (accepted: a whole number from 2 to "
        f"{GUEST_UID_COUNT_MAX}), or remove workspaces of users who are gone",
    )


def _in_turn(root: Path, users: range) -> Iterable[int]:
    """All of `users`, beginning at a place that is this root's. So several roots of one machine
    seldom give the same uid, although they know nothing of each other."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(root))).digest()
    first = int.from_bytes(digest[:8], "big") % len(users)
    return chain(users[first:], users[:first])


def _others(root: Path, user_id: str) -> dict[int, str]:
    """The workspaces beside that of `user_id`, by uid."""
    found = {}
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            if entry.name != user_id and entry.is_dir(follow_symlinks=False):
                found[entry.stat(follow_symlinks=False).st_gid] = visible_name(entry.name)
    return found


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of all workspaces below `root`. Nobody else can open its file."""
    path = root / _LOCK
    with descriptor(path, os.O_RDWR | os.O_CREAT) as fd:
        if (uid := os.fstat(fd).st_uid) != os.geteuid():
            raise WorkspaceError(
                Code.FAILED_PRECONDITION,
                f"cannot use {path}",
                details=f"it belongs to uid {uid}, who could hold up every start",
                resolution=f"rm {path}",
            )
        if not locks.take(fd, wait_s=LOCK_WAIT_S):
            raise WorkspaceError(
                Code.UNAVAILABLE,
                "another runner is assigning a uid and does not end",
                details=f"{path} has been locked for {LOCK_WAIT_S:g} s",
                resolution=f"fuser {path}; end that process, then start again",
            )
        yield
