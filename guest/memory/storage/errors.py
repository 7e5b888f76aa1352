"""Turns errors of the engine and the operating system into errors a person can act on."""

import errno
import os
from pathlib import Path
from typing import Final

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.storage.base import ConstraintViolated

_CORRUPT: Final = (
    "malformed",
    "utf8error",
    "corrupt",
    "vtable constructor failed",
    "unsupported file format",
)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def from_engine(error: BaseException, path: Path) -> Exception:
    """`ConstraintViolated` or the `StorageError` for an error of the engine."""
    text = str(error)
    lower = text.lower()
    if "constraint failed" in lower:
        return ConstraintViolated(text)
    if "disk is full" in lower or ("disk i/o error" in lower and _no_space_left(path)):
        return disk_full(path, text)
    if "is locked" in lower:
        return locked(path, text)
    if "file is not a database" in lower:
        return no_database(path, f"{text}: its first page is damaged")
    if any(sign in lower for sign in _CORRUPT):
        return StorageError(
            Code.DATA_LOSS,
            f"the memory database {path} is corrupt",
            details=text,
            resolution=_replace_it(path),
        )
    if "readonly database" in lower or "unable to open" in lower:
        return _inaccessible(path, text)
    if "disk i/o error" in lower:
        return StorageError(
            Code.UNAVAILABLE,
            f"the disk failed under the memory database {path}",
            details=text,
            resolution="check for disk errors with `dmesg`, then start again",
        )
    return StorageError(
        Code.INTERNAL,
        f"the memory database {path} failed",
        details=text,
        resolution="if the file was damaged, bring back a backup with `runner memory restore`; "
        "else report this, with the log, as a bug",
    )


def from_system(error: OSError, path: Path) -> StorageError:
    """The `StorageError` for a file that could not be created or opened."""
    reason = error.strerror or str(error)
    return disk_full(path, reason) if error.errno in _FULL else _inaccessible(path, reason)


def no_database(path: Path, reason: str) -> StorageError:
    return StorageError(
        Code.DATA_LOSS,
        f"the memory database {path} is not a readable database",
        details=reason,
        resolution=_replace_it(path),
    )


def disk_full(path: Path, reason: str) -> StorageError:
    return StorageError(
        Code.RESOURCE_EXHAUSTED,
        f"no space left for the memory database {path}",
        details=f"{reason}; nothing of this change was stored, everything before it is intact",
        resolution=f"free space on that file system (`df -h {path.parent}`) and try again",
    )


def locked(path: Path, reason: str) -> StorageError:
    return StorageError(
        Code.UNAVAILABLE,
        f"another program holds the memory database {path}",
        details=reason,
        resolution=f"close it (`fuser -v {path}` shows which one it is) and try again",
    )


def _inaccessible(path: Path, reason: str) -> StorageError:
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"the memory database {path} cannot be opened for writing",
        details=reason,
        resolution=f"check that {path.parent} exists and that both belong to this user "
        f"(`ls -ld {path.parent} {path}`)",
    )


def _replace_it(path: Path) -> str:
    return (
        "bring back a backup with `runner memory restore`, or start with an empty memory: "
        f"`mv {path} {path}.damaged` (and {path.name}-wal beside it)"
    )


def _no_space_left(path: Path) -> bool:
    """Whether the disk is full: SQLite reports that as an I/O error if the log's index does not
    fit."""
    try:
        return os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize < 64 * 1024
    except OSError:
        return False
