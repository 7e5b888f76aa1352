"""One host per user: an advisory lock that says who holds it and dies with its holder."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from wire.errors import Code

from runner.errors import HostError

_PATIENCE_S = 0.5
"""A look at the lock by `status` holds it for microseconds; a real holder keeps it."""
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Holder:
    """What the holder wrote into the lock; `pid` 0 where it has not written yet."""

    pid: int = 0
    since: str = ""


@contextmanager
def host_lock(path: Path) -> Iterator[None]:
    """Hold the lock at `path`; it is empty again afterwards.

    Raises `HostError` (ALREADY_EXISTS) that names the holder.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not _take(fd):
            holder = _read(fd)
            who = f"pid {holder.pid}, since {holder.since}" if holder.pid else "starting just now"
            raise HostError(
                Code.ALREADY_EXISTS,
                "a runner for this user is there already",
                details=f"{who}; it holds {path}",
                resolution="talk to it with `runner chat`, or end it: runner stop",
            )
        holder = Holder(os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(asdict(holder)).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def lock_holder(path: Path) -> Holder | None:
    """Who holds the lock now, or None. Never waits and never keeps it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(fd)
    finally:
        os.close(fd)


def _take(fd: int) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)


def _read(fd: int) -> Holder:
    try:
        content = json.loads(os.pread(fd, 4096, 0))
        return Holder(int(content["pid"]), str(content["since"]))
    except (ValueError, KeyError, TypeError):
        return Holder()
