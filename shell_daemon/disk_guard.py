"""Keeps commands from filling the disks that they write to.

`/shared` and `/tmp` are directories of the host without a quota, usually on the same disk as the
agent's memory. While a command runs, the guard checks the disks many times a second. If less than
a reserve is free, it ends all commands, and none starts until there is room again.
"""

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError
from wire.text import visible_name

SHARE: Final = 10
"""The reserve is at most this fraction of a disk (1/10), so that small disks stay usable."""
INODES_SHARE: Final = 50
"""The reserve of inodes is this fraction of a disk's (1/50)."""
_PERIOD_S: Final = 0.05
_LOOKED_AT_MAX: Final = 2_000
_MIB: Final = 1024 * 1024


class DiskGuard:
    """Watches the disks of the directories `roots` while commands run (`busy`).

    `reserve` bytes must stay free on each disk; `on_shortage` is called with a description when a
    disk is short of bytes or inodes.
    """

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
        """Which disk is short of what; empty if all have room."""
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
        """Raises `WireError` (RESOURCE_EXHAUSTED) if a disk is short of room."""
        if found := self.shortage():
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                "the disk is full, so no command is run",
                details=found + self._culprit(),
                resolution="delete files in /shared or /tmp with the file tools, or make room "
                "on the host",
            )

    def _culprit(self) -> str:
        """The largest of the first files that are found, by name."""
        largest, size, looked_at = "", 0, 0
        waiting = list(self._roots)
        while waiting and looked_at < _LOOKED_AT_MAX:
            with suppress(OSError), os.scandir(waiting.pop(0)) as entries:
                for entry in itertools.islice(entries, _LOOKED_AT_MAX - looked_at):
                    looked_at += 1
                    with suppress(OSError):
                        taken = entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(Path(entry.path))
                        elif taken > size:
                            largest, size = entry.path, taken
        if not largest:
            return ""
        return f"; the largest file is {visible_name(largest)} ({size / _MIB:.1f} MiB)"

    def watch(self) -> None:
        """Check from now on until no command is running. Idempotent."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self._look)

    def stop(self) -> None:
        """Stop checking. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if found := self.shortage():
            self._on_shortage(found + self._culprit())
        if self._busy():
            self.watch()
