"""Where a user's memory lies in the workspace, and the one-time move of an old database to it."""

import errno
import fcntl
import os
import shlex
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from wire.errors import Code

from runner.config.trust import workspace_around, writable_by_others
from runner.errors import ConfigError, WorkspaceError
from runner.workspace.directories import create_tree, descriptor
from runner.workspace.mounts import workspace_directories
from runner.workspace.workspace import Workspace

_GUEST_DIRECTORIES: Final = ("shared", "tmp", "cache", "vault", "skills", "ipc", "logs")
_OLD_PLACE: Final = Path(".oxydra") / "memory.db"
_SQLITE_LOCKS: Final = (512, 0x40000000)
"""Length and start of the bytes that SQLite locks in a database file. A program that has the
file open in WAL mode holds some of these locks."""
_NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


def resolve_db_path(setting: str, workspace: Workspace, *, mounted_only: bool) -> Path:
    """The database file that `memory.db_path` means for this workspace.

    "auto" is `.oxydra/memory.db`; a relative path starts at the workspace. Raises `ConfigError` if
    tools or the shell could see the place, if it or its file belongs to another user, or, with
    `mounted_only`, if the agent guest does not have it.
    """
    if setting == "auto":
        return workspace.internal / "memory.db"
    try:
        return _resolved(setting, workspace, mounted_only=mounted_only)
    except OSError as error:
        raise _refused(setting, error.strerror or str(error)) from None


def _resolved(setting: str, workspace: Workspace, *, mounted_only: bool) -> Path:
    given = Path(setting)
    if given.is_absolute() and mounted_only:
        raise _refused(setting, "this tier mounts only the workspace, so the path must be relative")
    path = Path(os.path.normpath(workspace.path / given))
    for candidate in (path, Path(os.path.realpath(path))):
        _check_place(setting, given, candidate, workspace)
    _check_owner(setting, path, workspace)
    if mounted_only and not path.is_relative_to(workspace.internal):
        raise _refused(setting, "in this tier the agent guest has no directory but .oxydra for it")
    if path.is_dir() or setting.endswith("/"):
        raise _refused(setting, "it is a directory")
    if given.is_absolute() and not path.parent.is_dir():
        raise _refused(setting, f"there is no directory {path.parent}")
    return path


def prepare_parent(path: Path, workspace: Workspace) -> None:
    """Create the directory of a database inside the workspace, with mode 0700 and its owner.

    Raises `WorkspaceError` if the guest has put a link or something else in its place.
    """
    if path.is_relative_to(workspace.path):
        inside = path.parent.relative_to(workspace.root)
        _, *above = reversed(inside.parents)
        directories = map(str, (*above, inside))
        create_tree(workspace.root, directories, workspace.owner, kept=workspace.user_id)


def _check_place(setting: str, given: Path, path: Path, workspace: Workspace) -> None:
    for root in {workspace.root, Path(os.path.realpath(workspace.root))}:
        if path.is_relative_to(root / workspace.user_id):
            inside = path.relative_to(root / workspace.user_id)
            if inside.parts and inside.parts[0] in _GUEST_DIRECTORIES:
                raise _refused(
                    setting,
                    f"{inside.parts[0]}/ is visible to tools, to the shell guest or to other "
                    "programs; what the agent remembers must not be",
                )
            if str(inside) in (".", *workspace_directories()):
                raise _refused(setting, "it is a directory")
            return
        if path.is_relative_to(root):
            raise _refused(setting, "it lies among other users' workspaces")
    if not given.is_absolute():
        raise _refused(setting, "a relative path must stay inside the workspace")


def _check_owner(setting: str, path: Path, workspace: Workspace) -> None:
    around = workspace_around(path)
    ours = {str(workspace.path), os.path.realpath(workspace.path)}
    if around is not None and str(around) not in ours:
        raise _refused(setting, f"it lies in {around}, the workspace of another agent")
    if around is None and (why := writable_by_others(path.parent)):
        raise _refused(setting, why)
    with suppress(OSError):
        if (uid := path.stat().st_uid) not in workspace.accepted:
            raise _refused(setting, f"it belongs to the account with uid {uid}")


def _refused(setting: str, why: str) -> ConfigError:
    return ConfigError(
        Code.INVALID_ARGUMENT,
        f"bad setting memory.db_path: {setting!r}",
        details=why,
        resolution='use db_path = "auto", or a path such as ".oxydra/memory.db"',
    )


def adopt_old_database(new: Path, working_directory: Path, user_id: str) -> str | None:
    """Move a database from `./.oxydra/memory.db` to `new`, if it holds the memory of `user_id` and
    nobody else's.

    A crash at any moment loses nothing: the log comes first, then the complete database, and the
    old files are removed last. Returns a notice about it, or None if there was nothing to move.
    One that tools, commands or another account may have made is left alone. Raises
    `WorkspaceError` if the old database is in use.
    """
    old = working_directory / _OLD_PLACE
    try:
        found = old.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if new.exists():
        if not new.samefile(old):
            return f"an old database still lies at {old}; the one in use is {new}"
        if os.path.realpath(new) == os.path.realpath(old):
            return None
        _remove(old)  # an earlier move was cut off after its last link
        return _moved(old, new)
    if (around := workspace_around(old)) is not None:
        return f"a database at {old} was left alone: agents can write in {around}"
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return f"an old database at {old} was left alone: it is not a plain file of this user"
    if why := writable_by_others(old):
        return f"an old database at {old} was left alone: {why}"
    if why := _of_others(old, new.parents[2], user_id):
        return f"an old database at {old} was left alone: {why}"
    with _unused(old) as content:
        wal = _beside(new, "-wal")
        wal.unlink(missing_ok=True)  # a stray log would be replayed into the moved database
        if _beside(old, "-wal").exists():
            with _beside(old, "-wal").open("rb") as log:
                _transfer(_beside(old, "-wal"), log, wal)
        _transfer(old, content, new)
        with descriptor(new.parent, os.O_RDONLY | os.O_DIRECTORY) as directory:
            os.fsync(directory)
        _remove(old)
    return _moved(old, new)


def _of_others(database: Path, root: Path, user_id: str) -> str:
    """Why it is not this user's alone, and what those whose it is can do, who have workspaces in
    `root`; empty if it is, or if nobody's memory is in it.

    This process must hold no lock on the file: locks end when it is closed.
    """
    owners: set[str] = set()
    try:
        uri = f"file:{quote(os.fspath(database))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
            if "notes" in tables:
                found = connection.execute("SELECT DISTINCT namespace FROM notes")
                owners |= {str(namespace).partition(":")[2] for (namespace,) in found}
            if "sessions" in tables:
                found = connection.execute("SELECT DISTINCT user_id FROM sessions")
                owners |= {str(owner).lstrip(":") for (owner,) in found}
    except sqlite3.DatabaseError as error:
        return f"whose it is cannot be read ({error}). {_by_hand(database, root, user_id)}"
    others = sorted(owners - {user_id})
    if not others:
        return ""
    if len(owners) == 1:
        return (
            f"it holds the memory of user {others[0]}, who gets it by a start from the same "
            f"directory: runner --user {others[0]} start"
        )
    heir = user_id if user_id in owners else others[0]
    users = ", ".join(sorted(owners))
    return f"it holds the memories of users {users}. {_by_hand(database, root, heir)}"


def _by_hand(database: Path, root: Path, heir: str) -> str:
    here, there = shlex.quote(str(database)), shlex.quote(str(root / heir / _OLD_PLACE.parent))
    return f"If user {heir} is to have it: runner --user {heir} stop, then mv -b {here}* {there}/"


def _moved(old: Path, new: Path) -> str:
    return f"the memory database was moved from {old} to {new}"


@contextmanager
def _unused(database: Path) -> Iterator[BinaryIO]:
    """Hold every lock that a user of the database would hold. Raises if one is taken."""
    with database.open("rb+") as file, _beside(database, ".lock").open("ab") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, *_SQLITE_LOCKS)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise WorkspaceError(
                Code.FAILED_PRECONDITION,
                f"the old database {database} is in use",
                details="it must move into the workspace, which is not possible while it is open",
                resolution="stop the program that uses it, or start from another directory",
            ) from None
        yield file


def _transfer(source: Path, content: BinaryIO, target: Path) -> None:
    """Make `target` a second link to `source`, or a durable copy on another file system.

    `content` is `source`, already open: closing a second descriptor would drop our lock.
    """
    try:
        target.hardlink_to(source)
        return
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    draft = _beside(target, ".moving")
    try:
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _remove(old: Path) -> None:
    for path in (old, *(_beside(old, suffix) for suffix in ("-wal", "-shm", ".lock"))):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        old.parent.rmdir()


def _beside(database: Path, suffix: str) -> Path:
    return database.with_name(database.name + suffix)
