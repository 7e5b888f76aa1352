"""Backups: whole, checked copies of a memory in use, one file each."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.database import copies, failures
from guest.memory.database.base import Database
from guest.memory.database.inspection import Inspection, inspect_apart
from guest.memory.database.local import LocalDatabase
from guest.memory.migrations import migrate
from guest.memory.portable.copying import copy_user
from guest.memory.types import MemoryConfig


async def copy_store(database: Database, config: MemoryConfig, user_id: str, target: Path) -> None:
    """Write the memory in `database` to a file at `target`. Raises `StorageError`.

    A file is copied as it is at one moment, with all its users. From a server comes
    everything of `user_id`; a note or turn that is written meanwhile is in it whole
    or not at all.
    """
    if isinstance(database, LocalDatabase):
        await database.copy_to(target)
        return
    copy = await LocalDatabase.open(target, config.encryption_key)
    try:
        await migrate(copy)
        await copy_user(database, copy, user_id, config)
    finally:
        await copy.close()


Snapshot = Callable[[Path], Awaitable[None]]
"""Writes a copy of a whole memory to a path at which nothing lies."""

_UNCHECKED: Final = ".unchecked"


@dataclass(frozen=True)
class Backup:
    """A file in the directory of backups, and what it holds."""

    name: str
    bytes: int
    sha256: str
    notes: int
    sessions: int


class Backups:
    """The backups in `directory`, encrypted with `key` if there is one.

    They stay until the operator removes them, and so does in them what is
    deleted from the memory later.
    """

    def __init__(self, directory: Path, key: str, snapshot: Snapshot) -> None:
        self._directory = directory
        self._key = key
        self._snapshot = snapshot
        self._lock = asyncio.Lock()

    async def make(self) -> Backup:
        """Copy the memory as it is now, and check the copy, while it is in use.

        Only what has passed gets its name. Raises `StorageError`.
        """
        async with self._lock:
            await asyncio.to_thread(self._prepare)
            moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            name = self._free(f"memory-{moment}")
            draft = self._directory / (name + _UNCHECKED)
            try:
                await self._snapshot(draft)
                found = await self._inspect(draft)
                digest = await asyncio.to_thread(_sha256, draft)
                size = draft.stat().st_size
                draft.replace(self._directory / name)
                copies.sync(self._directory)
            except OSError as error:
                raise failures.from_system(error, draft) from None
            finally:
                draft.unlink(missing_ok=True)
            return Backup(name, size, digest, found.notes, found.sessions)

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
                resolution="bring back an earlier backup: `runner stop`, then "
                "`runner memory restore FILE`",
            ) from None

    def _prepare(self) -> None:
        """Make the directory, and remove what an interrupted backup has left."""
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._directory.chmod(0o700)
            for path in self._directory.iterdir():
                if _UNCHECKED in path.name:
                    path.unlink()
        except OSError as error:
            raise failures.from_system(error, self._directory) from None

    def _free(self, stem: str) -> str:
        name, number = f"{stem}.db", 1
        while (self._directory / name).exists():
            number += 1
            name = f"{stem}-{number}.db"
        return name


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
