"""Keep commands from filling the disks that they write to, and the machine's memory.

While a command runs, a guard looks many times a second. Where too little is free, it ends all
commands.
"""

import asyncio
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError
from wire.text import visible_name

log = logging.getLogger(__name__)

SHARE: Final = 10
"""The reserve is at most this fraction of a disk or of the machine's memory (1/10), so that small
ones stay usable."""
INODES_SHARE: Final = 50
"""The reserve of inodes is this fraction of a disk's (1/50)."""
_PERIOD_S: Final = 0.05
_LOOKED_AT_MAX: Final = 2_000
_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_RESERVE: Final = 256 * 1024 * 1024
_LEFT_MOST: Final = 0.5
"""How much of the limit may be taken when no command runs."""
_PAUSES: Final = 4
"""Counting exactly may take one part in five of the time."""
_COUNTING_S: Final = 10.0

_HELD: Final = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap|VmPTE):\s*(\d+) kB", re.MULTILINE)
_SHARE_OF: Final = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s*(\d+) kB", re.MULTILINE)
_TABLES: Final = re.compile(rb"^VmPTE:\s*(\d+) kB", re.MULTILINE)
_MACHINE: Final = re.compile(rb"^(?:MemTotal|MemAvailable):\s*(\d+) kB", re.MULTILINE)


@dataclass(repr=False, eq=False)
class DiskGuard:
    """Watches the disks of the directories `roots` while commands run (`busy`).

    `/shared` and `/tmp` are directories of the host without a quota, usually on the same disk as
    the agent's memory. `reserve` bytes must stay free on each disk; `on_shortage` is called with a
    description when a disk is short of bytes or inodes. No command starts until there is room.
    """

    roots: Sequence[Path]
    reserve: int
    busy: Callable[[], bool]
    on_shortage: Callable[[str], None]

    def __post_init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def shortage(self) -> str:
        """Which disk is short of what; empty if all have room."""
        for root in self.roots:
            disk = os.statvfs(root)
            reserve = min(self.reserve, disk.f_blocks * disk.f_frsize // SHARE)
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
        waiting = list(self.roots)
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
            self.on_shortage(found + self._culprit())
        if self.busy():
            self.watch()


class Memory:
    """What this guest and the machine hold, in bytes, as `/proc` shows it. `disks` are the guest's
    own file systems in memory."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        disks: Iterable[Path] = (Path("/dev/shm"), Path("/run")),  # noqa: S108
    ) -> None:
        self._proc = proc
        self._disks = tuple(disks)

    def at_most(self) -> int:
        """What the guest holds, and more where processes share it. Quick to find out."""
        return self._apart() + sum(self._held(pid) for pid in self._pids())

    def exactly(self) -> int:
        """The same, but what processes share counts once. Takes long if they hold much."""
        return self._apart() + sum(self._share_of(pid) for pid in self._pids())

    def machine(self) -> tuple[int, int]:
        """The machine's memory, and how much of it is to be had."""
        total, available = _MACHINE.findall((self._proc / "meminfo").read_bytes())
        return int(total) * _KIB, int(available) * _KIB

    def _pids(self) -> list[str]:
        return [entry.name for entry in os.scandir(self._proc) if entry.name.isdigit()]

    def _held(self, pid: str) -> int:
        return _sum(_HELD, self._read(pid, "status"))

    def _share_of(self, pid: str) -> int:
        """All that it holds, if it hides its share by being closed to others."""
        share = self._read(pid, "smaps_rollup")
        if b"Pss_Anon" not in share:
            return self._held(pid)
        return _sum(_SHARE_OF, share) + _sum(_TABLES, self._read(pid, "status"))

    def _apart(self) -> int:
        """What exists without a process."""
        segments = self._column_sums("sysvipc/shm", b"rss", b"swap")
        messages = self._column_sums("sysvipc/msg", b"cbytes")
        return segments + messages + sum(map(_taken, self._disks))

    def _column_sums(self, name: str, *columns: bytes) -> int:
        heading, *rows = [line.split() for line in self._read(name).splitlines()] or [[]]
        places = [heading.index(column) for column in columns if column in heading]
        return sum(int(row[place]) for row in rows for place in places)

    def _read(self, *names: str) -> bytes:
        with suppress(OSError):
            return self._proc.joinpath(*names).read_bytes()
        return b""


def _sum(fields: re.Pattern[bytes], text: bytes) -> int:
    return sum(map(int, fields.findall(text))) * _KIB


def _taken(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@dataclass(repr=False, eq=False)
class MemoryGuard:
    """Watches `memory` while commands run (`busy`), where no control group does.

    Without one the kernel limits memory for each process alone, and what processes share or keep in
    files of memory for none. So the guard adds up what the guest holds. That is all that can be
    seen of memory that a command hides: pages of a shared mapping of which it has unmapped a part,
    and what the kernel keeps for it, such as the buffers of sockets. Files of memory without a
    name, which could be hidden best, are not there (see `processes.seccomp`).

    `limit` is what the guest may hold. `on_excess` is called with a description when it holds more,
    or when the machine is short of memory; `on_lost` when afterwards no command runs and most of
    the limit is still taken, which only the guest's end gives back, or when it cannot be watched.
    """

    limit: int
    busy: Callable[[], bool]
    on_excess: Callable[[str], None]
    on_lost: Callable[[], None]
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        self._watching: asyncio.Task[None] | None = None
        self._count_again = 0.0
        self._exceeded = False
        self._lost = False

    def shortage(self) -> str:
        """What the machine is short of; empty if it is not."""
        total, available = self.memory.machine()
        if available >= (reserve := min(_RESERVE, total // SHARE)):
            return ""
        kept = f"{reserve / _MIB:.1f} MiB are kept"
        return f"the machine has {available / _MIB:.1f} MiB of memory left, and {kept} free"

    def check(self) -> None:
        """Raises `WireError`: RESOURCE_EXHAUSTED if the machine is short of memory, UNAVAILABLE if
        the guest must end for what earlier commands have left."""
        self._settle()
        if self._lost:
            raise WireError(
                Code.UNAVAILABLE,
                "the shell guest is made anew, because commands have left its memory full",
                resolution="try again in a moment",
            )
        if found := self.shortage():
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                "the machine's memory is full, so no command is run",
                details=found,
                resolution="end other programs on the host",
            )

    def watch(self) -> None:
        """Watch from now on until no command is running. Idempotent."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        try:
            while self.busy():
                await asyncio.sleep(_PERIOD_S)
                if found := await self._excess():
                    self._exceeded = True
                    self.on_excess(found)
            self._settle()
        except (OSError, ValueError):
            log.exception("memory cannot be watched", extra={"event": "memory_unwatched"})
            self._lose()
        self._watching = None

    def _settle(self) -> None:
        """Look at what is left when commands were ended and none runs."""
        if self._exceeded and not self.busy():
            self._exceeded = False
            if self.memory.at_most() > self.limit * _LEFT_MOST:
                self._lose()

    def _lose(self) -> None:
        self._lost = True
        self.on_lost()

    async def _excess(self) -> str:
        """What there is too little of, or too much; empty if neither."""
        if found := self.shortage():
            return found
        begun = time.monotonic()
        if self.memory.at_most() <= self.limit or begun < self._count_again:
            return ""
        counting = asyncio.create_task(asyncio.to_thread(self.memory.exactly))
        while not counting.done():
            await asyncio.wait([counting], timeout=_PERIOD_S)
            if found := self.shortage():
                return found
            if time.monotonic() - begun > _COUNTING_S:
                return "it cannot be counted"
        ended = time.monotonic()
        self._count_again = ended + _PAUSES * (ended - begun)
        if (held := counting.result()) <= self.limit:
            return ""
        limit = f"{self.limit / _MIB:.0f} MiB are the limit for all commands together"
        return f"{held / _MIB:.0f} MiB are taken, and {limit}"
