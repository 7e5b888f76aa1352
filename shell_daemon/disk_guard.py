"""Room on the disks that commands write to: they may not use up the last of it.

`/shared` and `/tmp` are directories of the host without a quota, and the
agent's memory lies on the same disk as a rule. While something runs, the disks
are looked at many times a second; below a reserve everything that runs is
ended, and nothing new starts until there is room.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError

SHARE: Final = 10
"""The reserve is never more than this part of a disk, so that small ones are of use."""
INODES_SHARE: Final = 50
"""The reserve of inodes is this part of a disk's."""
_PERIOD_S: Final = 0.05
_MIB: Final = 1024 * 1024


class DiskGuard:
    """Watches the file systems of `roots`. `on_shortage` hears of a disk with less than
    `reserve` bytes, or too few inodes, left; `busy` tells whether anything runs."""

    def __init__(
        self,
        roots: Iterable[Path],
        reserve: int,
        *,
        busy: Callable[[], bool],
        on_shortage: Callable[[str], None],
    ) -> None:
        self._roots = tuple(roots)
        self._reserve = reserve
        self._busy = busy
        self._on_shortage = on_shortage
        self._timer: asyncio.TimerHandle | None = None

    def shortage(self) -> str:
        """Which disk is short of what; empty where all have room."""
        for root in self._roots:
            disk = os.statvfs(root)
            reserve = min(self._reserve, disk.f_blocks * disk.f_frsize // SHARE)
            if (free := disk.f_bavail * disk.f_frsize) < reserve:
                kept = f"{reserve / _MIB:.1f} MiB are kept"
                return f"the disk of {root} has {free / _MIB:.1f} MiB left, and {kept} free"
            if disk.f_favail < disk.f_files // INODES_SHARE:
                kept = f"{disk.f_files // INODES_SHARE} are kept"
                return f"the disk of {root} has room for {disk.f_favail} files, and {kept} free"
        return ""

    def check(self) -> None:
        """Raises `WireError` (RESOURCE_EXHAUSTED) where nothing may start."""
        if found := self.shortage():
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                "the disk is full, so no command is run",
                details=found,
                resolution="delete files in /shared or /tmp with the file tools, or make room "
                "on the host",
            )

    def watch(self) -> None:
        """Look from now on until nothing runs any more. Idempotent."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self._look)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if found := self.shortage():
            self._on_shortage(found)
        if self._busy():
            self.watch()
