"""Private directories and files: entered one component at a time, written whole, owned by one user.

The owner is the user that the runner runs as, or the guests' user if the runner is root and the
tier uses containers.

Each component is opened relative to its parent's descriptor and never through a symbolic link, so
nobody can replace a directory between check and use.
"""

import errno
import logging
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from wire.disk.walk import Entry, MovedError, walk
from wire.errors import Code

from runner.config.models import Config
from runner.config.trust import way_of_others
from runner.errors import WorkspaceError

log = logging.getLogger(__name__)
_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Owner:
    """The uid and gid of a workspace and of the guests that use it.

    What is found there may belong to any uid in `accepted`: ours and, if the runner is root, the
    guests', because a user may change tiers.
    """

    uid: int
    gid: int
    accepted: frozenset[int]

    @classmethod
    def ours(cls) -> "Owner":
        return cls(os.geteuid(), os.getegid(), frozenset({os.geteuid()}))

    @classmethod
    def of(cls, config: Config) -> "Owner":
        """The owner of the workspaces of this configuration."""
        if os.geteuid() != 0:
            return cls.ours()
        guest = config.container.guest_uid
        uid = 0 if config.tier == "process" else guest
        return cls(uid, uid, frozenset({0, guest}))


def adopt(directory: int, owner: Owner) -> None:
    """Give everything below an open directory to `owner`, if it belongs to an accepted uid.

    Never follows a link, and skips files with several hard links.
    """
    try:
        for entry in walk(directory):
            with suppress(FileNotFoundError):
                uid = entry.found.stat(follow_symlinks=False).st_uid
                if uid != owner.uid and uid in owner.accepted:
                    _adopt(entry, owner)
    except MovedError as error:
        log.warning("not everything was given to its owner: %s", error.strerror)


def _adopt(entry: Entry, owner: Owner) -> None:
    with descriptor(entry.name, os.O_PATH, dir_fd=entry.directory) as fd:
        found = os.fstat(fd)
        single = stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
        if single and found.st_uid in owner.accepted:
            os.chown(_itself(fd), owner.uid, owner.gid)


def check_root(path: Path, *, private: bool) -> None:
    """Check that a top directory can hold ours, and that no other account could replace it. Creates
    nothing.

    The directory may be missing if its nearest existing parent is writable. With `private`, nobody
    else may have any access to it. Raises `WorkspaceError`.
    """
    _check_way(path)
    if not os.path.lexists(path):
        parent = _nearest_existing(path)
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


def check_tree(root: Path, relative: Iterable[str], owner: Owner | None = None) -> None:
    """Check that only proper directories stand at these places below `root`. Creates nothing."""
    if root.exists():
        _walk(root, relative, owner or Owner.ours(), create=False)


def create_tree(root: Path, relative: Iterable[str], owner: Owner | None = None) -> None:
    """Create `root` and the directories below it, and set right what a guest did to them.

    Those below have mode 0700 and belong to `owner` (default: this process); so has `root` with its
    parents where they are missing. `relative` lists parents before children. Idempotent.
    """
    try:
        for missing in reversed([path for path in (root, *root.parents) if not path.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _system(root, error) from None
    _check_way(root)
    _walk(root, relative, owner or Owner.ours(), create=True)


@contextmanager
def descriptor(path: Path | str, flags: int, dir_fd: int | None = None) -> Iterator[int]:
    """Open `path`, unless it is a link, and close it when the body ends. A new file is private."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file, readable only for us, that becomes `path` when the body ends; if the body
    raises, nothing is left of it."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _walk(root: Path, relative: Iterable[str], owner: Owner, *, create: bool) -> None:
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
                fd = _enter(parent_fd, pure.name, root / directory, owner)
                if fd is None:
                    continue
                open_fds[directory] = fd
                if create:
                    _set_right(fd, owner)
    finally:
        for fd in open_fds.values():
            os.close(fd)


def _set_right(fd: int, owner: Owner) -> None:
    """Mode 0700 and the right owner, whatever a guest has made of its directory."""
    found = os.fstat(fd)
    if stat.S_IMODE(found.st_mode) != 0o700:
        Path(_itself(fd)).chmod(0o700)
    if found.st_uid != owner.uid:
        os.chown(_itself(fd), owner.uid, owner.gid)


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


def _enter(parent_fd: int | None, name: str, shown: Path, owner: Owner) -> int | None:
    """Open an existing directory of an accepted uid. Returns None if nothing is there."""
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
    if uid not in owner.accepted:
        os.close(fd)
        raise _refused(
            shown,
            f"it belongs to uid {uid}; the runner runs as uid {os.geteuid()}",
            f"run as its owner, or: chown {os.geteuid()} {shown}",
        )
    return fd


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = _enter(None, str(path), path, Owner.ours())
    if fd is None:
        raise _refused(path, "it has disappeared", "try again")
    try:
        yield fd
    finally:
        os.close(fd)


def _check_way(path: Path) -> None:
    if why := way_of_others(path.parent):
        raise _refused(path, why, "name a place where only you and root can replace directories")


def _nearest_existing(path: Path) -> Path:
    for parent in path.parents:
        if os.path.lexists(parent):
            return parent
    return Path("/")


def _refused(path: Path, why: str, fix: str) -> WorkspaceError:
    return WorkspaceError(
        Code.FAILED_PRECONDITION, f"cannot use {path}", details=why, resolution=fix
    )


def _system(path: Path, error: OSError) -> WorkspaceError:
    return _refused(path, error.strerror or str(error), f"make room and access for {path}")
