"""Backups: complete, verified copies of a memory in use, and restoring one."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.storage import copies, errors, scrubbing
from guest.memory.storage.files.inspection import Inspection, inspect, inspect_apart
from guest.memory.storage.files.rekey import copy_under
from guest.memory.storage.local import check_key, connect, derive, engine
from guest.memory.storage.migrations import MIGRATIONS

Snapshot = Callable[[Path], Awaitable[None]]
"""Writes a copy of a whole memory to a path where no file exists."""

_UNCHECKED: Final = ".unchecked"
_PART_BYTES: Final = 256 * 1024
_PROGRAMS: Final = "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('trigger', 'view')"


@dataclass(frozen=True)
class Backup:
    """A file in the backup directory, and its contents."""

    name: str
    bytes: int
    sha256: str
    notes: int
    sessions: int


class Backups:
    """The backups in `directory`, encrypted with `key` if there is one.

    They stay until they are removed, and keep what is later deleted from the memory.
    """

    def __init__(self, directory: Path, key: str, snapshot: Snapshot) -> None:
        self._directory = directory
        self._key = key
        self._snapshot = snapshot
        self._lock = asyncio.Lock()

    async def make(self) -> Backup:
        """Copy the memory as it is now, while it is in use, and verify the copy.

        Only a verified copy gets its name. Raises `StorageError`.
        """
        async with self._lock:
            await asyncio.to_thread(self._prepare)
            name = _unused(lambda time: self._directory / f"memory-{time}.db").name
            draft = self._directory / (name + _UNCHECKED)
            try:
                await self._snapshot(draft)
                found = await self._inspect(draft)
                digest = await asyncio.to_thread(_sha256, draft)
                size = draft.stat().st_size
                draft.replace(self._directory / name)
                copies.sync(self._directory)
            except OSError as error:
                raise errors.from_system(error, draft) from None
            finally:
                draft.unlink(missing_ok=True)
                draft.with_name(draft.name + scrubbing.SUFFIX).unlink(missing_ok=True)
            return Backup(name, size, digest, found.notes, found.sessions)

    def read(self, name: str) -> Iterator[bytes]:
        """The content of the backup `name`, in parts. Raises `StorageError` for one that is not
        there."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path(name), flags)
        except OSError:
            raise _no_backup(name) from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _no_backup(name)
            while part := file.read(_PART_BYTES):
                yield part

    def remove(self, name: str) -> None:
        """Remove the backup `name`. Raises `StorageError`, also for one that is not there."""
        path = self._path(name)
        try:
            path.unlink()
            copies.sync(self._directory)
        except FileNotFoundError:
            raise _no_backup(name) from None
        except OSError as error:
            raise errors.from_system(error, path) from None

    def _path(self, name: str) -> Path:
        """Of the backup `name`; whatever else is in the directory is none."""
        for path in self._directory.glob("*.db"):
            if path.name == name and stat.S_ISREG(path.lstat().st_mode):
                return path
        raise _no_backup(name)

    async def _inspect(self, draft: Path) -> Inspection:
        try:
            return await inspect_apart(draft, self._key)
        except StorageError as error:
            if error.code is not Code.DATA_LOSS:
                raise
            raise StorageError(
                Code.DATA_LOSS,
                "the memory is damaged, and no backup of it was made",
                details=error.details,
                resolution="restore an earlier backup: `runner stop`, then "
                "`runner memory restore FILE`",
            ) from None

    def _prepare(self) -> None:
        """Create the directory, and remove the remains of interrupted backups."""
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._directory.chmod(0o700)
            for path in self._directory.iterdir():
                if _UNCHECKED in path.name:
                    path.unlink()
        except OSError as error:
            raise errors.from_system(error, self._directory) from None


def _unused(named: Callable[[str], Path]) -> Path:
    """The first path that does not exist among those `named` after the time now and a number."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    paths = (named(f"{moment}-{number}" if number > 1 else moment) for number in count(1))
    return next(path for path in paths if not path.exists())


def _no_backup(name: str) -> StorageError:
    return StorageError(
        Code.NOT_FOUND,
        f"there is no backup {name!r}",
        resolution="runner memory backup makes one, and says its name",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Restored:
    """What was restored, and the name under which the previous file is kept, if there was one."""

    found: Inspection
    kept_as: str


def restore(database: Path, key: str, backup: Path, backup_key: str) -> Restored:
    """Replace the file at `database` by a verified copy of `backup` under `key`.

    Triggers and views that are not of our schema are left out: they would act on every change. The
    caller owns `database`. The previous file is kept beside it until something is deleted from
    the memory. After a crash, either the old or the new file is in place. Raises `StorageError`
    with nothing changed.
    """
    try:
        _check_readable(backup, backup_key)
        copies.erase_leftovers(database)
        draft = copies.incoming(database)
        try:
            copy_under(backup, backup_key, draft, key)
            found = _examined(draft, key)
        except BaseException:
            copies.erase_leftovers(database)
            raise
        kept = _make_way(database, key)
        copies.replace(draft, database, kept)
    except OSError as error:
        raise errors.from_system(error, database) from None
    return Restored(found, kept.name if kept.exists() else "")


def _examined(draft: Path, key: str) -> Inspection:
    """The contents of a copy, in which nothing acts by itself any more that is not ours."""
    found = inspect(draft, key)
    if found.schema_version > MIGRATIONS[-1].version:
        raise _bad(
            Code.FAILED_PRECONDITION,
            f"it has schema version {found.schema_version}; this program knows up to "
            f"{MIGRATIONS[-1].version}",
            "restore it with the newer version of Oxydra that made it",
        )
    _drop_foreign_programs(draft, key, found.schema_version)
    return found


def _check_readable(backup: Path, key: str) -> None:
    try:
        found = backup.stat()
    except OSError as error:
        raise _bad(Code.NOT_FOUND, error.strerror or str(error), "name another file") from None
    if not stat.S_ISREG(found.st_mode):
        raise _bad(Code.INVALID_ARGUMENT, "it is not a plain file", "name another backup")
    if not found.st_size:
        raise _bad(Code.DATA_LOSS, "it is empty", "name another backup")
    try:
        check_key(backup, derive(key))
    except OSError as error:
        raise _bad(Code.NOT_FOUND, error.strerror or str(error), "name another file") from None
    except StorageError as error:
        raise _bad(
            error.code,
            error.brief.replace(str(backup), "in it"),
            "name the key it was made with (--key-env or --key-file), or another backup",
        ) from None


def _drop_foreign_programs(draft: Path, key: str, version: int) -> None:
    """Remove triggers and views that our schema does not have, or has in another form."""
    reference = engine(":memory:", "")
    for migration in MIGRATIONS[:version]:
        for statement in migration.statements:
            reference.execute(statement).fetchall()
    ours = set(reference.execute(_PROGRAMS).fetchall())
    reference.close()
    connection = connect(draft, key)
    try:
        found = set(connection.execute(_PROGRAMS).fetchall())
        for kind, name, _ in found - ours:
            quoted = name.replace('"', '""')
            connection.execute(f'DROP {kind} "{quoted}"').fetchall()
        for _, _, sql in ours - found:
            connection.execute(sql).fetchall()
        remaining = set(connection.execute(_PROGRAMS).fetchall())
    except Exception as error:
        raise errors.from_engine(error, draft) from None
    finally:
        connection.close()
    if remaining != ours:
        raise _bad(Code.DATA_LOSS, "its triggers are not those of a memory", "name another backup")


def _make_way(database: Path, key: str) -> Path:
    """Write the file's log back into it; returns the name under which the file is kept.

    A log that cannot be written back stays with its file: the new file must never meet it.
    """
    kept = _unused(lambda time: copies.before(f"restore-{time}", database))
    if not database.exists():
        return kept
    with suppress(StorageError):
        connect(database, key).close()
    log = copies.beside_of(database, "-wal")
    if log.exists():
        log.replace(copies.beside_of(kept, "-wal"))
    copies.beside_of(database, "-shm").unlink(missing_ok=True)
    return kept


def _bad(code: Code, reason: str, resolution: str) -> StorageError:
    return StorageError(
        code, "the backup cannot be restored", details=reason, resolution=resolution
    )
