"""One embedder at a time, and none without a runner that wants it."""

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError

LOCK_WAIT_S: Final = 3.0
"""Runners touch the lock for an instant to see whether it is held."""
LEASE_INTERVAL_S: Final = 2.0


@contextmanager
def sole_instance(lock: Path) -> Iterator[None]:
    """Hold `lock`, with our process id as its content, for the time of the block.

    The system releases it however the process ends. Raises `WireError`
    (ALREADY_EXISTS) where another embedder holds it.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not _take(descriptor):
            if time.monotonic() > deadline:
                raise WireError(
                    Code.ALREADY_EXISTS,
                    "another embedder is running here",
                    details=f"it holds {lock}",
                    resolution="use that one, or end it first",
                )
            time.sleep(0.02)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


async def until_orphaned(leases: Path, interval: float = LEASE_INTERVAL_S) -> None:
    """Return when no runner has held a lease at two looks, `interval` seconds apart.

    Every runner holds a shared lock on `leases` while it lives, and the system
    releases it however the runner ends. On return the file is locked
    exclusively until this process ends: a runner that arrives now waits until
    the process, and with it its own lock, is gone. A missing file is nobody's
    lease.
    """
    free_before = False
    while True:
        await asyncio.sleep(interval)
        try:
            descriptor = os.open(leases, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            free = True
        else:
            free = _take(descriptor)
            if not (free and free_before):
                os.close(descriptor)
        if free and free_before:
            return
        free_before = free


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
