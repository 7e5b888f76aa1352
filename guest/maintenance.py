"""Runs one maintenance job instead of serving: rekey, restore or move a user's memory, or try the
model.

The runner reads progress and result in the log. A job may be killed at any moment: either the old
or the new memory is then in place.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from wire.errors import Code
from wire.logs import MAINTENANCE_DONE, MAINTENANCE_PROGRESS
from wire.v1.bootstrap_pb2 import MaintenanceJob, Restore

from guest.config import GuestConfig
from guest.egress_client import NO_KEY
from guest.errors import GuestError
from guest.memory.models import MemoryConfig, User
from guest.memory.storage import copies
from guest.memory.storage.files.backup import restore
from guest.memory.storage.files.rekey import fits, rekey
from guest.memory.storage.local import owned

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]

_EVERY_S: Final = 0.2
_PART_BYTES: Final = 256 * 1024


async def do(config: GuestConfig, job: MaintenanceJob) -> None:
    """Do `job` and log what it did. Raises `GuestError`."""
    memory, progress = config.memory, _progress_logger()
    job_key = config.secrets.job_key
    backups = config.paths.internal / "backups"
    match job.WhichOneof("job"):
        case "rekey":
            result = await asyncio.to_thread(_rekey, memory, backups, job_key, progress)
        case "restore":
            with _backup_of(job.restore, config.paths.internal, progress) as path:
                result = await asyncio.to_thread(_restore, memory, path, job_key, progress)
        case "move":
            from guest.memory.transfer.move import move

            result = await move(
                memory, User(config.user_id), to_remote=job.move.to_remote, progress=progress
            )
        case "try_model":
            from guest.agent.models.providers import try_model

            began = time.monotonic()
            agent, until = config.settings.agent, job.try_model.until
            await try_model(agent, NO_KEY, until=until, egress=config.egress, in_vm=config.in_vm)
            result = {"took_s": time.monotonic() - began}
        case _:
            raise GuestError(
                Code.INVALID_ARGUMENT,
                "unknown maintenance job: the runner and the guest have different versions",
                resolution="use the same version of Oxydra for the runner and its guests",
            )
    log.info("maintenance done", extra={"event": MAINTENANCE_DONE, "result": result})


@contextlib.contextmanager
def _backup_of(job: Restore, internal: Path, progress: Progress) -> Iterator[str]:
    """The path of the backup to restore: where it lies, or of a file that is made of what follows
    the envelope and removed at the end. Raises `GuestError` if less comes than announced."""
    if not job.incoming_bytes:
        yield job.path
        return
    target = internal / "restoring.db"
    try:
        _receive(target, job.incoming_bytes, progress)
        yield str(target)
    finally:
        target.unlink(missing_ok=True)


def _receive(target: Path, size: int, progress: Progress) -> None:
    """Make `target` of what follows the envelope. Raises `GuestError`."""
    left = size
    try:
        target.unlink(missing_ok=True)  # a restore that was killed may have left it
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            open(0, "rb", closefd=False) as source,
            os.fdopen(os.open(target, flags, 0o600), "wb") as file,
        ):
            while part := source.read(min(left, _PART_BYTES)):
                file.write(part)
                left -= len(part)
                progress("receiving the backup", size - left, size)
    except OSError as error:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"the backup cannot be kept in {target.parent} while it is restored",
            details=error.strerror or str(error),
            resolution="give the user a larger volume: kubernetes.state_size",
        ) from None
    if left:
        raise GuestError(
            Code.UNAVAILABLE,
            "the backup did not arrive as a whole",
            details=f"{left} of {size} bytes are missing; nothing was changed",
            resolution="the same command again",
        )


def _restore(memory: MemoryConfig, path: str, job_key: str, progress: Progress) -> dict[str, Any]:
    if memory.remote:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            "the memory is on a server, and a backup is restored to a file of this machine",
            details="memory.remote_url is set",
            resolution="remove memory.remote_url, restore, set it again, and then: "
            "runner memory move --to remote",
        )
    database = Path(os.path.realpath(memory.db_path))
    with owned(database):
        progress("checking and copying the backup", 0, 1)
        key = job_key or memory.encryption_key
        done = restore(database, memory.encryption_key, Path(path), key)
        progress("restored", 1, 1)
    return {
        "notes": done.found.notes,
        "sessions": done.found.sessions,
        "conversation_events": done.found.events,
        "schema_version": done.found.schema_version,
        "replaced_memory": done.kept_as or "there was none",
    }


def _rekey(
    memory: MemoryConfig, backups: Path, from_key: str, progress: Progress
) -> dict[str, Any]:
    if from_key == memory.encryption_key:
        raise GuestError(
            Code.INVALID_ARGUMENT,
            "the old and the new key are the same",
            details="both are empty" if not from_key else "nothing would change",
            resolution="configure the new key in [memory.encryption], and give the old one with "
            "--old-key-env or --old-key-file (neither: the files are not encrypted yet)",
        )
    database = Path(os.path.realpath(memory.db_path))
    with owned(database), owned(database.with_name("replica.db")):
        return _rekey_all(database, backups, from_key, memory.encryption_key, progress)


def _rekey_all(
    database: Path, backups: Path, from_key: str, to_key: str, progress: Progress
) -> dict[str, Any]:
    files = [path for path in _files(database, backups) if path.stat().st_size]
    done: dict[str, list[str]] = {"rekeyed": [], "had_the_new_key": [], "not_rekeyed": []}
    for number, path in enumerate(files):
        progress(f"re-keying {path.name}", number, len(files))
        copies.erase_leftovers(path)
        if fits(path, from_key):
            rekey(path, from_key, to_key)
            done["rekeyed"].append(path.name)
        elif fits(path, to_key):
            done["had_the_new_key"].append(path.name)
        elif path == database:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                f"neither key opens the memory database {database}",
                details="it is encrypted with a third key, or its first page is damaged; it was "
                "left as it is",
                resolution="give the key it was encrypted with (--old-key-env or --old-key-file), "
                "or bring back a backup with `runner memory restore`",
            )
        else:
            done["not_rekeyed"].append(path.name)
    replica = database.with_name("replica.db")  # is fetched anew
    copies.erase_leftovers(replica)
    for suffix in ("", "-wal", "-shm"):
        if (part := copies.beside_of(replica, suffix)).exists():
            copies.erase(part)
    progress("re-keyed", len(files), len(files))
    return dict(done)


def _files(database: Path, backups: Path) -> list[Path]:
    """The memory's own file, its automatic copies and its backups, if they exist."""
    copies.erase_leftovers(database)
    found = [
        path for path in copies.automatic(database) if not path.name.endswith(("-wal", "-shm"))
    ]
    if database.exists():
        found.insert(0, database)
    if backups.is_dir():
        found += sorted(path for path in backups.glob("*.db") if not path.is_symlink())
    return found


def _progress_logger() -> Progress:
    """Log each step when it begins and ends, and a few times a second in between."""
    last = ("", 0.0)

    def progress(step: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if step == last[0] and done < total and now - last[1] < _EVERY_S:
            return
        last = (step, now)
        event = {"event": MAINTENANCE_PROGRESS, "progress": [step, done, total]}
        log.info("%s: %d of %d", step, done, total, extra=event)

    return progress
