"""Private directories and files: entered one component at a time, written whole, owned by one user.

The owner is the user that the runner runs as, or a guest's uid if the runner is root and the tier
uses containers.

Each component is opened relative to its parent's descriptor and never through a symbolic link, so
nobody can replace a directory between check and use.
"""

import errno
import logging
import os
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from wire.disk import Entry, MovedError, held, walk
from wire.errors import Code
from wire.text import visible_name

from runner.config.trust import writable_by_others
from runner.errors import WorkspaceError

log = logging.getLogger(__name__)
_NAMES_MAX: Final = 5
_SHOWN_MAX_CHARS: Final = 300
"""Of a path, which can be as long as a command likes."""
_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Owner:
    """The uid and gid of directories and of the guests that use them.

    What is found there may belong to any uid in `accepted`: ours and, if the runner is root, the
    guests', because a user may change tiers, and a workspace its uid.
    """

    uid: int
    gid: int
    accepted: Container[int]

    @classmethod
    def ours(cls) -> "Owner":
        return cls(os.geteuid(), os.getegid(), frozenset({os.geteuid()}))

    @property
    def ids(self) -> tuple[int, int]:
        return self.uid, self.gid


@dataclass
class SkippedEntries:
    """What `adopt` has left to others: how many entries, and the names of the first few."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str, why: str) -> None:
        self.count += 1
        if len(self.names) < _NAMES_MAX:
            self.names.append(f"{visible_name(name[:_SHOWN_MAX_CHARS])} ({why})")


def adopt(directory: int, owner: Owner) -> SkippedEntries:
    """Give everything below an open directory to `owner`, if it belongs to an accepted uid.

    Never follows a link, and leaves what lies on another mount. A file with several hard links is
    given only if all of them were found below the directory. A move that was interrupted is
    finished by the next one.
    """
    left = SkippedEntries()
    mount = _mount(directory)
    linked: dict[tuple[int, int], tuple[int, str]] = {}
    try:
        for entry in walk(directory):
            with suppress(FileNotFoundError):
                uid = entry.found.stat(follow_symlinks=False).st_uid
                if uid not in owner.accepted:
                    left.add(entry.path, f"uid {uid}")
                elif uid != owner.uid and not _adopt(entry, owner, mount, linked):
                    left.add(entry.path, "another mount")
    except MovedError as error:
        log.warning("not everything was given to its owner: %s", error.strerror)
    for _, first in linked.values():
        left.add(first, "it has another name elsewhere")
    return left


def _adopt(
    entry: Entry, owner: Owner, mount: str, linked: dict[tuple[int, int], tuple[int, str]]
) -> bool:
    """Give one entry to `owner`, unless it is a file of which not all names are known yet. `linked`
    has, for each such file, how many were found and the first of them. Returns False for an entry
    that is not on `mount`."""
    with descriptor(entry.name, os.O_PATH, dir_fd=entry.directory) as fd:
        if _mount(fd) != mount:
            return False
        found = os.fstat(fd)
        if found.st_uid not in owner.accepted:
            return True
        if not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1:
            inode = (found.st_dev, found.st_ino)
            seen, first = linked.pop(inode, (0, entry.path[:_SHOWN_MAX_CHARS]))
            if seen + 1 < found.st_nlink:
                linked[inode] = (seen + 1, first)
                return True
        os.chown(_itself(fd), *owner.ids)
    return True


def check_root(path: Path, *, private: bool) -> None:
    """Check that a top directory can hold ours, and that no other account could replace it. Creates
    nothing.

    The directory may be missing if its nearest existing parent is writable. With `private`, nobody
    else may have any access to it. Raises `WorkspaceError`.
    """
    _check_way(path)
    if not os.path.lexists(path):
        parent = next(filter(os.path.lexists, path.parents))
        if not parent.is_dir():
            raise _refused(path, f"{parent} is not a directory", "name a directory that can exist")
        if not os.access(parent, os.W_OK | os.X_OK, effective_ids=True):
            raise _refused(path, f"{parent} is not writable", f"make {parent} writable")
        return
    with _opened(path) as fd:
        mode = os.fstat(fd).st_mode
        if private and mode & 0o077:
            raise _refused(
                path, f"others have access to it (mode {mode & 0o777:04o})", f"chmod 700 {path}"
            )
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _refused(path, "everybody can replace its content", f"chmod o-w {path}")
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        raise _refused(path, "it is not writable", f"make {path} writable, or name another")


def check_tree(root: Path, relative: Iterable[str], accepted: Container[int] | None = None) -> None:
    """Check that only proper directories of `accepted` uids (default: ours) stand at these places
    below `root`. Creates nothing."""
    if root.exists():
        for _ in _entered(root, relative, accepted or Owner.ours().accepted, create=False):
            pass


def create_tree(
    root: Path,
    relative: Iterable[str],
    owner: Owner | None = None,
    *,
    mode: int = 0o700,
    kept: str = "",
) -> None:
    """Create `root` and the directories below it, and set right what a guest did to them.

    Those below have `mode` and belong to `owner` (default: this process), but the directory `kept`
    belongs to this process and keeps its group; what is mounted below it is refused unless nothing
    has to be set right. `root` with its parents is private to this process where they are missing.
    `relative` lists parents before children. Idempotent.
    """
    owner = owner or Owner.ours()
    try:
        for missing in reversed([path for path in (root, *root.parents) if not path.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _system(root, error) from None
    _check_way(root)
    mount = ""
    for directory, fd in _entered(root, relative, owner.accepted, create=True):
        found = os.fstat(fd)
        uid, gid = owner.ids
        if directory == kept:
            mount, uid, gid = _mount(fd), os.geteuid(), -1
        if (stat.S_IMODE(found.st_mode), found.st_uid) == (mode, uid):
            continue
        if kept and _mount(fd) != mount:
            raise _refused(
                root / directory,
                f"something is mounted there that is not uid {uid}'s alone",
                f"umount it, or: chown {uid}:{gid} {root / directory}; "
                f"chmod {mode:o} {root / directory}",
            )
        if stat.S_IMODE(found.st_mode) != mode:
            Path(_itself(fd)).chmod(mode)
        if found.st_uid != uid:
            os.chown(_itself(fd), uid, gid)


def descriptor(
    path: Path | str, flags: int, dir_fd: int | None = None
) -> AbstractContextManager[int]:
    """Open `path`, unless it is a link, and close it when the body ends. A new file is private."""
    return held(os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd))


def _entered(
    root: Path, relative: Iterable[str], accepted: Container[int], *, create: bool
) -> Iterator[tuple[str, int]]:
    """Those of the directories below `root` that are there, each with a descriptor of it."""
    open_fds: dict[str, int] = {}
    try:
        with _opened(root) as root_fd:
            for directory in relative:
                pure = PurePosixPath(directory)
                parent = "" if str(pure.parent) == "." else str(pure.parent)
                parent_fd = root_fd if not parent else open_fds.get(parent)
                if parent_fd is None:
                    continue
                if create:
                    _make(parent_fd, pure.name, root / directory)
                place = root / directory
                fd = _enter(parent_fd, pure.name, place, accepted, root / pure.parts[0])
                if fd is None:
                    continue
                open_fds[directory] = fd
                yield directory, fd
    finally:
        for fd in open_fds.values():
            os.close(fd)


def _mount(fd: int) -> str:
    """Which mount holds what is open; two of the same file system differ."""
    told = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
    return next(line for line in told.splitlines() if line.startswith("mnt_id:"))


def _itself(fd: int) -> str:
    """A path of what is open, also if it is open only as a place (`O_PATH`)."""
    return f"/proc/self/fd/{fd}"


def _make(parent_fd: int, name: str, shown: Path) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=parent_fd)
    except FileExistsError:
        pass
    except OSError as error:
        raise _system(shown, error) from None


def _enter(
    parent_fd: int | None,
    name: str,
    shown: Path,
    accepted: Container[int],
    tree: Path | None = None,
) -> int | None:
    """Open an existing directory of an accepted uid. Returns None if nothing is there. `tree` is
    what is ours alone around it."""
    try:
        fd = os.open(name, _FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise _system(shown, error) from None
        kind = "a symbolic link" if shown.is_symlink() else "not a directory"
        raise _refused(shown, f"it is {kind}", f"move {shown} away") from None
    uid = os.fstat(fd).st_uid
    if uid not in accepted:
        os.close(fd)
        us, ours = os.geteuid(), f"{os.geteuid()}:{os.getegid()}"
        raise _refused(
            shown,
            f"it belongs to uid {uid}; the runner runs as uid {us}"
            + ("" if isinstance(accepted, frozenset) else f", and {accepted}"),
            f"run as its owner, or: chown {f'-R {ours} {tree}' if tree else f'{ours} {shown}'}",
        )
    return fd


def _opened(path: Path) -> AbstractContextManager[int]:
    fd = _enter(None, str(path), path, Owner.ours().accepted)
    if fd is None:
        raise _refused(path, "it has disappeared", "try again")
    return held(fd)


def _check_way(path: Path) -> None:
    if why := writable_by_others(path.parent):
        raise _refused(path, why, "name a place where only you and root can replace directories")


def _refused(path: Path, why: str, fix: str) -> WorkspaceError:
    return WorkspaceError(
        Code.FAILED_PRECONDITION, f"cannot use {path}", details=why, resolution=fix
    )


def _system(path: Path, error: OSError) -> WorkspaceError:
    return _refused(path, error.strerror or str(error), f"make room and access for {path}")
