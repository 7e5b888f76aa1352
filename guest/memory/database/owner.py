"""One owner per database file, by a lock that the kernel releases with its holder."""

import fcntl
import os
from pathlib import Path

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.database import failures


class FileOwner:
    """Holds `<database>.lock`; a second owner, in this process too, is refused."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, database: Path) -> "FileOwner":
        """Become the owner, also after an owner that was killed.

        Raises `StorageError`: FAILED_PRECONDITION where there is one.
        """
        path = database.with_name(database.name + ".lock")
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise failures.from_system(error, path) from None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_at(descriptor, path):
                    os.close(descriptor)  # the owner before us removed it while we waited
                    continue
                os.ftruncate(descriptor, 0)
                os.write(descriptor, b"%d\n" % os.getpid())
            except BlockingIOError:
                holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
                os.close(descriptor)
                raise _owned(database, path, holder) from None
            except OSError as error:
                os.close(descriptor)
                raise failures.from_system(error, path) from None
            return cls(path, descriptor)

    def release(self) -> None:
        """Remove the lock. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _owned(database: Path, lock: Path, holder: str) -> StorageError:
    who = f"process {holder}" if holder.isdigit() else "another process"
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"the memory database {database} is in use by {who}",
        details=f"a database file has one owner at a time, and {lock} is held",
        resolution="stop that process (`runner stop`), or "
        f"find it with `fuser -v {lock}` and end it",
    )
