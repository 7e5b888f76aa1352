"""What every probe needs: the specification, the kernel's files, and `BoundaryHit`."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from wire.boundary import CROWD_MAX, BoundarySpec, SharedDirectory
from wire.kernel.mounts import Mount, mounts
from wire.network_probe import require_tried

_READ_MAX_BYTES = 1024 * 1024
_GVISOR: Final = "BOOT_IMAGE=/vmlinuz-4.4.0-gvisor"
"""What gVisor's kernel says that it was started with."""
_MIB: Final = 1024 * 1024


class BoundaryHit(Exception):  # noqa: N818 - a finding, not an error
    """The boundary does not hold; the message says what was found."""

    @classmethod
    def raise_if(cls, found: list[str]) -> None:
        if found:
            raise cls("; ".join(found))


class Budget(NamedTuple):
    """What looking through one place may cost: directory entries, of which a directory or socket
    counts as ten, seconds, bytes of files."""

    entries: int
    seconds: float
    size: int = 0


class Budgets(NamedTuple):
    """Each place has a budget of its own, so that no directory can use up another's. `users` is for
    the directories where users keep what they like: more than the runner leaves there. `own` is for
    every other place."""

    users: Budget = Budget(CROWD_MAX * 5 // 4, 25.0)
    own: Budget = Budget(100_000, 1.0, 256 * _MIB)


@dataclass(repr=False, eq=False)
class World:
    """The guest as its files show it; tests pass other directories and budgets than the real
    ones."""

    spec: BoundarySpec
    proc: Path = Path("/proc")
    root: Path = Path("/")
    budgets: Budgets = field(default_factory=Budgets)

    def at(self, path: str) -> Path:
        """The real location of the guest's `path`."""
        return self.root / path.lstrip("/")

    def text(self, name: str) -> str:
        """The content of a file below /proc."""
        with (self.proc / name).open("rb") as file:
            return file.read(_READ_MAX_BYTES).decode(errors="replace")

    @cached_property
    def status(self) -> dict[str, str]:
        return fields(self.text("self/status"))

    @cached_property
    def mounts(self) -> list[Mount]:
        return mounts(self.text("self/mountinfo"))

    @cached_property
    def pids(self) -> list[int]:
        return sorted(int(entry.name) for entry in os.scandir(self.proc) if entry.name.isdigit())

    @cached_property
    def gvisor(self) -> bool:
        """Whether the guest's kernel is gVisor's: it says so, and it is not the host's."""
        if not self.spec.own_kernel or self.boot_id in ("", self.spec.boot_id):
            return False
        return _GVISOR in self.text("cmdline").split()

    @cached_property
    def boot_id(self) -> str:
        """The kernel's own name of this start of it."""
        return self.text("sys/kernel/random/boot_id").strip()

    @cached_property
    def elsewhere(self) -> bool:
        """Whether the guest is on another machine than the runner, whose numbers mean nothing
        then."""
        return self.spec.remote and self.boot_id != self.spec.boot_id

    def is_volume(self, row: SharedDirectory) -> bool:
        """Whether a row of the table is a volume whose numbers nobody knows."""
        return self.spec.remote and not row.inode

    def is_same(self, found: os.stat_result, device: int, inode: int) -> bool:
        """Whether `found` is the host's file with this device and inode.

        Never in gVisor, which gives files numbers of its own; there the runner looks itself.
        """
        if self.gvisor:
            return False
        return bool(inode) and found.st_ino == inode and device in self._devices(found.st_dev)

    def _devices(self, device: int) -> set[int]:
        """The host's numbers for one of the guest's devices.

        A guest with its own kernel has other device numbers than the host; only those of the
        shared directories are known. Inode numbers are the same on both sides.
        """
        if not self.spec.own_kernel:
            return {device}
        return self._shared_devices.get(device, set())

    @cached_property
    def _shared_devices(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for row in self.spec.shared:
            found.setdefault(self.at(row.virtual).stat().st_dev, set()).add(row.device)
        return found


def refused(call: Callable[..., object], *arguments: object) -> bool:
    """Whether the kernel refuses the call. Raises `OSError` if that could not be tried."""
    try:
        call(*arguments)
    except OSError as error:
        require_tried(error)
        return True
    return False


def opened(path: Path, flags: int) -> None:
    """Open `path` and close it again. Raises `OSError`."""
    os.close(os.open(path, flags))


def fields(text: str) -> dict[str, str]:
    """Parse lines of the form `name: value`."""
    parts = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in parts}
