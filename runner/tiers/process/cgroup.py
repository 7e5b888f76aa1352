"""Limits that the kernel enforces for a guest with all its processes together: control groups.

They need write access to the control group file system. Root has it, as a rule. Another account has
it in version 2 below a group that systemd has delegated to it: the runner's own, where it was
started as a unit with `Delegate=yes`. Where there is none, the shell guest watches its own memory.
"""

import contextlib
import errno
import os
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from runner.tiers.base import Limits

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
HOW: Final = "systemd-run --user --scope --property=Delegate=yes runner --insecure start"
"""How somebody who is not root gets control groups."""
LEAF: Final = "oxydra-runner"
"""Where processes of a delegated group go: the kernel lets only a group without processes of its
own give controllers to those below it."""

_PREFIX: Final = "oxydra-"
_PERIOD_US: Final = 100_000
YOUNG_S: Final = 60.0
_NEEDED: Final = ("pids", "memory")
_CONTROLLERS: Final = (*_NEEDED, "cpu")
_DELEGATED: Final = "user.delegate"
_EMPTYING_MAX: Final = 100
_ENTER: Final = (
    'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 126; shift; done; '
    'shift; exec "$@"'
)


class Cgroup:
    """The control group of one launch; in version 1 of cgroups one for each controller."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that enters the group and then runs `command`."""
        return ["/bin/sh", "-c", _ENTER, "sh", *map(str, self._paths), "--", *command]

    def remove(self) -> bool:
        """Remove the group. False if something still runs in it."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                path.rmdir()
        return not any(path.exists() for path in self._paths)


class ControlGroups:
    """The groups of this machine, mounted at `root`. `own` tells in which this process is."""

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        self._root = root
        self._own = own

    @property
    def parents(self) -> list[Path]:
        """Where groups would be made: one place, in version 1 one for each controller; none if
        there is no access. Changes nothing."""
        if self._unified:
            places = [place for place in (self._root, self._delegated()) if place is not None]
            return [place for place in places if _has_access(place)][:1]
        parents = [self._root / name for name in _CONTROLLERS]
        return parents if all(os.access(parent, os.W_OK) for parent in parents) else []

    @cached_property
    def reason(self) -> str:
        """Why no group can be made; empty if one can. Tries it once."""
        try:
            self.create(f"try-{os.getpid()}", Limits()).remove()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def create(self, name: str, limits: Limits) -> Cgroup:
        """A new group with these limits. Raises `OSError` if they cannot be set here.

        Also removes empty groups that a killed runner has left.
        """
        parents = self.parents
        if not parents:
            raise PermissionError(errno.EACCES, "no control group belongs to this account")
        group = Cgroup([parent / f"{_PREFIX}{name}" for parent in parents])
        try:
            for parent in parents:
                if self._unified:
                    _hand_down(parent)
                _sweep(parent)
                (parent / f"{_PREFIX}{name}").mkdir()
            for file, value in self._settings(parents[0], limits):
                (path,) = [
                    path
                    for parent in parents
                    if (path := parent / f"{_PREFIX}{name}" / file).exists()
                ]
                path.write_text(value)
        except (OSError, ValueError) as error:
            group.remove()
            raise OSError(errno.EACCES, f"no limits can be set in {parents[0]}: {error}") from None
        return group

    @property
    def _unified(self) -> bool:
        return (self._root / "cgroup.controllers").exists()

    def _delegated(self) -> Path | None:
        """This process's own group, if systemd has left it to this account."""
        try:
            lines = self._own.read_text().splitlines()
            (path,) = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
            own = self._root / path.lstrip("/")
            if own.name == LEAF:
                own = own.parent
            if ".." in own.parts or os.getxattr(own, _DELEGATED) != b"1":
                return None
        except (OSError, ValueError):
            return None
        return own

    def _settings(self, parent: Path, limits: Limits) -> list[tuple[str, str]]:
        quota = str(int(limits.cpus * _PERIOD_US))
        if not self._unified:
            return [
                ("pids.max", str(limits.processes)),
                ("memory.limit_in_bytes", str(limits.memory_bytes)),
                ("memory.swappiness", "0"),
                ("cpu.cfs_quota_us", quota),
            ]
        settings = [
            ("pids.max", str(limits.processes)),
            ("memory.max", str(limits.memory_bytes)),
            ("memory.swap.max", "0"),
        ]
        if "cpu" in _words(parent / "cgroup.controllers"):
            settings.append(("cpu.max", f"{quota} {_PERIOD_US}"))
        return settings


def _has_access(place: Path) -> bool:
    files = [place, place / "cgroup.procs", place / "cgroup.subtree_control"]
    writable = all(os.access(file, os.W_OK) for file in files)
    return writable and set(_NEEDED) <= set(_words(place / "cgroup.controllers"))


def _hand_down(place: Path) -> None:
    """Give the controllers of `place` to the groups below it. Raises `OSError`."""
    control = place / "cgroup.subtree_control"
    wanted = [name for name in _CONTROLLERS if name in _words(place / "cgroup.controllers")]
    missing = " ".join(f"+{name}" for name in wanted if name not in _words(control))
    if not missing:
        return
    try:
        control.write_text(missing)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _empty(place)
        control.write_text(missing)


def _empty(place: Path) -> None:
    """Move the processes of `place` into a group below it. Some may start others meanwhile."""
    leaf = place / LEAF
    leaf.mkdir(exist_ok=True)
    for _ in range(_EMPTYING_MAX):
        processes = _words(place / "cgroup.procs")
        if not processes:
            return
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                (leaf / "cgroup.procs").write_text(process)


def _words(file: Path) -> list[str]:
    return file.read_text().split()


def _sweep(parent: Path) -> None:
    """Remove old empty groups. A new one may belong to a launch that is about to enter it."""
    for left in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > YOUNG_S:
                left.rmdir()
