"""Copies of a database file, and the removal of automatic ones.

An automatic copy lies beside its database and is named after its reason: `memory.db.before-v2`
before a migration to schema version 2, `memory.db.before-restore-<time>` before a restore. Such
copies still hold what is deleted from the database later, so a deletion removes them.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from wire.disk import held

from guest.memory.storage import errors

_KEPT: Final = 3
"""How many copies of each kind are kept beside a database."""
_PARTIAL: Final = ".partial"
_INCOMING: Final = ".incoming"
_REKEYED: Final = ".before-rekey"
_VECTORS: Final = ".vectors-"
"""Beside a database, earlier versions kept the vectors in files with such names."""
_BLOCK_BYTES: Final = 1024 * 1024


def before(step: str, database: Path) -> Path:
    """The path of what `database` was before a step: `v2`, `restore-<time>` or `rekey`."""
    return beside_of(database, f".before-{step}")


def incoming(database: Path) -> Path:
    """The path at which a replacement of `database` is prepared."""
    return beside_of(database, _INCOMING)


def automatic(database: Path) -> list[Path]:
    """All automatic copies of `database`, including unfinished ones, oldest first."""
    start = f"{database.name}.before-"
    found = [path for path in database.parent.iterdir() if path.name.startswith(start)]
    return sorted(found, key=lambda path: path.lstat().st_mtime_ns)


def drop_surplus(database: Path) -> None:
    """Remove the remains of interrupted work, and all but the latest copies of each kind."""
    erase_leftovers(database)
    for kind in ("v", "restore-"):
        start = f"{database.name}.before-{kind}"
        for path in [path for path in automatic(database) if path.name.startswith(start)][:-_KEPT]:
            erase(path)


def erase_leftovers(database: Path) -> None:
    """Remove the remains of interrupted work on `database` or a copy of it, and the files of
    vectors of an earlier version. What is no plain file, such as a link or a pipe, is left alone.
    """
    for path in database.parent.iterdir():
        ours = path.name.startswith(f"{database.name}.") and _left_over(path)
        if ours and stat.S_ISREG(path.lstat().st_mode):
            erase(path)


def beside_of(path: Path, suffix: str) -> Path:
    """The path of a companion file, such as the log with the suffix "-wal"."""
    return path.with_name(path.name + suffix)


def replace(new: Path, database: Path, kept_as: Path) -> None:
    """Put `new` in the place of `database` atomically and durably; the old file is renamed.

    At every moment one of them is in place, complete. Neither may be in use.
    """
    if database.exists():
        kept_as.unlink(missing_ok=True)
        kept_as.hardlink_to(database)
    sync(new)
    new.replace(database)
    sync(database.parent)


def erase_automatic(database: Path) -> None:
    """Overwrite and remove all automatic copies. Raises `StorageError`."""
    for path in automatic(database):
        erase(path)


def erase(path: Path) -> None:
    """Overwrite a file and remove it. Raises `StorageError`.

    Old blocks that a drive or a file system keeps are out of reach.
    """
    try:
        if path.lstat().st_nlink == 1:
            with path.open("r+b") as file:
                left = os.fstat(file.fileno()).st_size
                while left > 0:
                    left -= file.write(bytes(min(left, _BLOCK_BYTES)))
                file.flush()
                os.fsync(file.fileno())
        path.unlink()
    except OSError as error:
        raise errors.from_system(error, path) from None


def copy(descriptor: int, target: Path) -> None:
    """Make `target` a durable copy of an open file, readable only by its owner.

    `target` does not exist until it is complete. Raises `StorageError`.
    """
    size = os.fstat(descriptor).st_size
    free = shutil.disk_usage(target.parent).free
    if free < size + _BLOCK_BYTES:
        raise errors.disk_full(target, f"it needs {size} bytes, and {free} are free")
    draft = beside_of(target, _PARTIAL)
    try:
        draft.unlink(missing_ok=True)
        writing = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(writing, "wb") as file:
            for offset in range(0, size, _BLOCK_BYTES):
                file.write(os.pread(descriptor, min(_BLOCK_BYTES, size - offset), offset))
        sync(draft)
        draft.replace(target)
        sync(target.parent)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise errors.from_system(error, target) from None
        raise


def sync(path: Path) -> None:
    """Make a file, or a directory's entries, durable."""
    with held(os.open(path, os.O_RDONLY)) as descriptor:
        os.fsync(descriptor)


def _left_over(path: Path) -> bool:
    name = path.name
    return name.endswith((_PARTIAL, _REKEYED)) or _INCOMING in name or _VECTORS in name
