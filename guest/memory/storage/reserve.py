"""Room on the disk that is the memory's alone, for when somebody has filled all the rest.

The runner lays out a file beside the database. When a change does not fit any more, a part of that
file is given back and the change is tried again; when there is room, the file grows again. Imports
and backups must leave as much free beside it.
"""

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from wire.disk import free_bytes, held, reserve_bytes, shortage
from wire.errors import Code
from wire.limits import RESERVE_SUFFIX

from guest.errors import StorageError
from guest.memory.storage import errors

_PARTS: Final = 4
_PAUSE_S: Final = 0.2
"""Commands are ended within this time of a full disk, so that they do not take what is released."""
_SPARE: Final = 4
"""The file grows again once so many times its size are free."""

_T = TypeVar("_T")


def require_room(file: Path, size: int) -> None:
    """Check that the disk keeps what the memory needs when `file` grows by `size` bytes.

    Raises `StorageError` with the figures.
    """
    with suppress(OSError):
        if missing := shortage(os.statvfs(file.parent), size):
            raise errors.disk_full(file, missing)


class Reserve:
    """The file beside `database`. Without one, all of this does nothing."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(database.name + RESERVE_SUFFIX)
        self._whole = False

    def within(self, work: Callable[[], _T]) -> _T:
        """Do `work`, which changes all or nothing; again after each part released for it."""
        while True:
            try:
                done = work()
            except BaseException as error:  # the binding's panics are not an Exception
                if not self._is_full(error) or not self._release():
                    raise
                time.sleep(_PAUSE_S)
            else:
                self._refill()
                return done

    def _is_full(self, error: BaseException) -> bool:
        known = isinstance(error, StorageError)
        failure = error if known else errors.from_engine(error, self._database)
        return isinstance(failure, StorageError) and failure.code is Code.RESOURCE_EXHAUSTED

    def _release(self) -> bool:
        """Give a part back; False if there is none."""
        try:
            descriptor = self._open()
        except OSError:
            return False
        with held(descriptor):
            there = os.fstat(descriptor)
            if not stat.S_ISREG(there.st_mode) or not there.st_size:
                return False
            part = -(-reserve_bytes(os.fstatvfs(descriptor)) // _PARTS)
            os.ftruncate(descriptor, max(0, there.st_size - part))
            os.fsync(descriptor)
            self._whole = False
            return True

    def _refill(self) -> None:
        """Let the file grow again, whoever gave parts of it back, if there is room."""
        if self._whole:
            return
        try:
            descriptor = self._open()
        except OSError:
            self._whole = True  # there is none
            return
        with held(descriptor), suppress(OSError):
            disk = os.fstatvfs(descriptor)
            whole = reserve_bytes(disk)
            if os.fstat(descriptor).st_size < whole:
                if free_bytes(disk) <= _SPARE * whole:
                    return
                os.posix_fallocate(descriptor, 0, whole)
            self._whole = True

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
