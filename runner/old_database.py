"""Bringing a database from where it used to lie into the workspace, once."""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from wire.errors import Code

from runner.errors import WorkspaceError

_OLD_PLACE: Final = Path(".oxydra") / "memory.db"
_SQLITE_LOCKS: Final = (512, 0x40000000)
"""Length and start of the bytes that SQLite locks in a database file: whoever
has one open in WAL mode holds some of them."""
_NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


def adopt_old_database(new: Path, working_directory: Path) -> str | None:
    """Move a database from `./.oxydra/memory.db` to `new`; a notice about it or None.

    A crash at any moment loses nothing: the log follows first, the database
    last and whole, and the old files go only when the new ones are complete.
    Raises `WorkspaceError` where the old database is in use.
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
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return f"an old database at {old} was left alone: it is no plain file of ours"
    with _unused(old) as content:
        wal = _beside(new, "-wal")
        wal.unlink(missing_ok=True)  # a log without its database would be replayed into this one
        if _beside(old, "-wal").exists():
            with _beside(old, "-wal").open("rb") as log:
                _transfer(_beside(old, "-wal"), log, wal)
        _transfer(old, content, new)
        _sync_directory(new.parent)
        _remove(old)
    return _moved(old, new)


def _moved(old: Path, new: Path) -> str:
    return f"the memory database was moved from {old} to {new}"


@contextmanager
def _unused(database: Path) -> Iterator[BinaryIO]:
    """Hold everything that an owner of the database would hold; refuse where one does."""
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
                details="it belongs into the workspace now, and cannot be moved while it is open",
                resolution="stop the program that uses it, or start from another directory",
            ) from None
        yield file


def _transfer(source: Path, content: BinaryIO, target: Path) -> None:
    """Make `target` the same file as `source`, or a durable copy on another file system.

    `content` is `source`, open: opening it anew would drop our lock on closing.
    """
    try:
        target.hardlink_to(source)
        return
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    draft = _beside(target, ".moving")
    try:
        with draft.open("wb") as file:
            draft.chmod(0o600)
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


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
