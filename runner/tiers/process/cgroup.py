"""Limits that the kernel enforces for a guest with all its processes together.

They need write access to the control group file system, so usually root. Without them the process
tier has only limits for each process.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runner.tiers.base import Limits

ROOT: Final = Path("/sys/fs/cgroup")
_PREFIX: Final = "oxydra-"
_PERIOD_US: Final = 100_000
YOUNG_S: Final = 60.0
_ENTER: Final = (
    'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 126; shift; done; '
    'shift; exec "$@"'
)


class Cgroup:
    """The control group of one launch; in version 1 of cgroups one for each controller."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    @classmethod
    def create(cls, name: str, limits: Limits, root: Path = ROOT) -> "Cgroup | None":
        """A new group with these limits; None if they cannot be set here.

        Also removes empty groups that a killed runner has left.
        """
        group = cls([parent / f"{_PREFIX}{name}" for parent in _parents(root)])
        if not group._paths:
            return None
        try:
            for path in group._paths:
                _sweep(path.parent)
                path.mkdir()
            for file, value in _settings(root, limits):
                (path,) = (path for path in group._paths if (path / file).exists())
                (path / file).write_text(value)
        except (OSError, ValueError):
            group.remove()
            return None
        return group

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that enters the group and then runs `command`."""
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, self._paths), "--", *command]

    def remove(self) -> bool:
        """Remove the group. False if something still runs in it."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                path.rmdir()
        return not any(path.exists() for path in self._paths)


def _parents(root: Path) -> list[Path]:
    unified = root / "cgroup.controllers"
    if unified.exists():
        return [root] if {"pids", "memory"} <= set(unified.read_text().split()) else []
    parents = [root / name for name in ("pids", "memory", "cpu")]
    return parents if all(os.access(parent, os.W_OK) for parent in parents) else []


def _settings(root: Path, limits: Limits) -> list[tuple[str, str]]:
    quota = str(int(limits.cpus * _PERIOD_US))
    if (root / "cgroup.controllers").exists():
        return [
            ("pids.max", str(limits.processes)),
            ("memory.max", str(limits.memory_bytes)),
            ("memory.swap.max", "0"),
            ("cpu.max", f"{quota} {_PERIOD_US}"),
        ]
    return [
        ("pids.max", str(limits.processes)),
        ("memory.limit_in_bytes", str(limits.memory_bytes)),
        ("memory.swappiness", "0"),
        ("cpu.cfs_quota_us", quota),
    ]


def _sweep(parent: Path) -> None:
    """Remove old empty groups. A new one may belong to a launch that is about to enter it."""
    for left in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > YOUNG_S:
                left.rmdir()
