"""The guest's directories, looked at from the host, for a guest with a kernel of its own.

Such a kernel may give files other device and inode numbers than the host's, so that nothing inside
tells which directory of the host is mounted, or whether one of its files lies elsewhere too. A
beacon shows that a directory is the right one; what lies in it, and who serves the sockets there,
the host sees itself.
"""

import contextlib
import errno
import itertools
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, Final

from wire.boundary import CROWD_MAX, BoundarySpec
from wire.disk import Entry, listener, walk

from runner.workspace.beneath import open_beneath
from runner.workspace.directories import descriptor
from runner.workspace.mounts import BoundMount

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY
_COST_MAX: Final = CROWD_MAX * 5 // 4
_SECONDS_MAX: Final = 25.0
_HITS_MAX: Final = 20


@contextmanager
def beacons(spec: BoundarySpec, mounts: Sequence[BoundMount]) -> Iterator[BoundarySpec]:
    """Keep an empty file with a random name in each mounted directory, but in none of the
    operator's. Yields the specification with the names in it. Raises `OSError`."""
    own = [bound for bound in mounts if bound.identity is not None]
    mounts = [bound for bound in mounts if bound.identity is None]
    names = {bound.mount.virtual: f".oxydra-{secrets.token_hex(16)}" for bound in mounts}
    marks = {bound.mount.virtual: _marks(bound) for bound in own}
    with contextlib.ExitStack() as lit:
        for bound in mounts:
            directory = lit.enter_context(descriptor(bound.host_path, _DIRECTORY))
            name = names[bound.mount.virtual]
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            os.close(open_beneath(directory, PurePath(name), flags, 0o600))
            lit.callback(_put_out, directory, name)
        rows = [
            row._replace(beacon=names.get(row.virtual, ""), **marks.get(row.virtual, {}))
            for row in spec.shared
        ]
        yield spec._replace(shared=tuple(rows))


def _marks(bound: BoundMount) -> dict[str, Any]:
    """When a directory or file of the operator's was changed last, and one entry of it."""
    with descriptor(bound.host_path, os.O_PATH) as itself:
        found = os.fstat(itself)
        if (found.st_dev, found.st_ino) != bound.identity:
            raise OSError(errno.ESTALE, "something else stands there now", str(bound.host_path))
        entry, entry_changed = "", 0
        if stat.S_ISDIR(found.st_mode):
            with descriptor(".", _DIRECTORY, itself) as directory, os.scandir(directory) as entries:
                for each in itertools.islice(entries, 1):
                    seen = each.stat(follow_symlinks=False)
                    entry, entry_changed = each.name, seen.st_ctime_ns
    return {"changed": found.st_ctime_ns, "entry": entry, "entry_changed": entry_changed}


def _put_out(directory: int, name: str) -> None:
    with contextlib.suppress(OSError):  # a command has moved it away
        os.unlink(name, dir_fd=directory)


def reachable(spec: BoundarySpec, mounts: Sequence[BoundMount]) -> dict[str, list[str]]:
    """What lies in the mounted directories and must not, by the check whose finding it is: private
    files, and sockets that this guest, which serves its own one, does not serve.

    A walk that does not end is a finding, too. What is the operator's own is not looked through.
    Blocks.
    """
    mounts = [bound for bound in mounts if bound.identity is None]
    look = _Look(spec, _group_of_guest(spec, mounts))
    for bound in mounts:
        with descriptor(bound.host_path, _DIRECTORY) as directory:
            look.through(directory, bound.mount.virtual)
    return look.found


class _Look:
    """What was found so far. `guest` is the control group of the guest."""

    def __init__(self, spec: BoundarySpec, guest: str) -> None:
        users = "a directory of another user's workspace"
        self._wanted = dict.fromkeys(spec.other_users, ("other_users", users))
        self._wanted |= {
            (place.device, place.inode): ("private_paths", place.label)
            for place in spec.private
            if place.inode
        }
        self._uid = spec.uid
        self._guest = guest
        self._egress_listener = spec.egress_listener
        self.found: dict[str, list[str]] = {
            "private_paths": [],
            "other_users": [],
            "unix_sockets": [],
        }

    def through(self, directory: int, start: str) -> None:
        """Look through an open directory, which the guest has at `start`."""
        deadline = time.monotonic() + _SECONDS_MAX
        self._judge(start, os.fstat(directory))
        spent = 0
        try:
            for entry in walk(directory):
                spent += entry.cost
                if spent > _COST_MAX or time.monotonic() > deadline:
                    raise OSError("it is too large")
                try:
                    result = entry.found.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                path = f"{start}/{entry.path}"
                self._judge(path, result)
                if stat.S_ISSOCK(result.st_mode):
                    self._judge_socket(path, result, entry)
        except OSError as error:
            for hits in self.found.values():
                hits.append(f"the walk of {start} did not end: {error.strerror or error}")

    def _judge(self, path: str, result: os.stat_result) -> None:
        check, label = self._wanted.get((result.st_dev, result.st_ino), ("", ""))
        if check:
            self._note(check, f"{label} is there as {path}")

    def _judge_socket(self, path: str, result: os.stat_result, entry: Entry) -> None:
        if path == self._egress_listener:
            return
        if result.st_uid != self._uid:
            self._note("unix_sockets", f"{path} is there, a socket of another user")
        elif _served_by(entry.directory, entry.name) not in ("", self._guest):
            self._note("unix_sockets", f"{path} is served from outside the guest")

    def _note(self, check: str, hit: str) -> None:
        if len(self.found[check]) < _HITS_MAX:
            self.found[check].append(hit)


def _group_of_guest(spec: BoundarySpec, mounts: Sequence[BoundMount]) -> str:
    """The control group of who serves the shell's own socket, who has proven to be the guest.
    "nobody's" if it cannot be told from the runner's."""
    inside = PurePath(spec.socket)
    for bound in mounts:
        if inside.is_relative_to(bound.mount.virtual):
            with descriptor(bound.host_path, _DIRECTORY) as directory:
                group = _served_by(directory, str(inside.relative_to(bound.mount.virtual)))
            if group not in ("", _group_of("self")):
                return group
    return "nobody's"


def _served_by(directory: int, name: str) -> str:
    """The control group of the process that listens on a socket; empty if none does."""
    try:
        with descriptor(name, os.O_PATH, directory) as itself:
            return _group_of(str(listener(f"/proc/self/fd/{itself}")))
    except (ConnectionError, FileNotFoundError):
        return ""
    except OSError as error:
        if error.errno in (errno.EPROTOTYPE, errno.ENOTSOCK):
            return ""
        raise


def _group_of(process: str) -> str:
    try:
        return Path("/proc", process, "cgroup").read_text()
    except OSError:
        return "that of a process that is gone"
