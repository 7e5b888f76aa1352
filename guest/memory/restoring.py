"""Putting a backup in the place of a memory that nobody uses."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.database import copies, failures
from guest.memory.database.connection import check_key, connect, derive
from guest.memory.database.inspection import Inspection, inspect
from guest.memory.database.rekeying import copy_under
from guest.memory.migrations import MIGRATIONS


@dataclass(frozen=True)
class Restored:
    """What is in place now, and the name of what was there before, if anything was."""

    found: Inspection
    kept_as: str


def restore(database: Path, key: str, backup: Path, backup_key: str) -> Restored:
    """Replace the file at `database` by a checked copy of `backup` under `key`.

    The caller owns `database`. What was there is kept beside it until something
    is deleted from the memory. A crash at any moment leaves the one or the
    other. Raises `StorageError`; nothing has changed then.
    """
    try:
        _check_readable(backup, backup_key)
        copies.erase_leftovers(database)
        draft = copies.incoming(database)
        copy_under(backup, backup_key, draft, key)
        found = inspect(draft, key)
        if found.schema_version > MIGRATIONS[-1].version:
            copies.erase(draft)
            raise _bad(
                Code.FAILED_PRECONDITION,
                f"it has schema version {found.schema_version}; this program knows up to "
                f"{MIGRATIONS[-1].version}",
                "restore it with the newer version of Oxydra that made it",
            )
        kept = _make_way(database, key)
        copies.replace(draft, database, kept)
    except OSError as error:
        raise failures.from_system(error, database) from None
    return Restored(found, kept.name if kept.exists() else "")


def _check_readable(backup: Path, key: str) -> None:
    try:
        if not backup.stat().st_size:
            raise _bad(Code.DATA_LOSS, "it is empty", "name another backup")
        check_key(backup, derive(key))
    except OSError as error:
        raise _bad(Code.NOT_FOUND, error.strerror or str(error), "name another file") from None
    except StorageError as error:
        raise _bad(
            error.code,
            error.brief.replace(str(backup), "in it"),
            "name the key it was made with (--key-env or --key-file), or another backup",
        ) from None


def _make_way(database: Path, key: str) -> Path:
    """Bring the log of the file that goes into it; the name under which it is kept.

    A log that cannot go in stays with its file: the new one must never meet it.
    """
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    kept, number = copies.before_restore(database, moment), 1
    while kept.exists():
        number += 1
        kept = copies.before_restore(database, f"{moment}-{number}")
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
