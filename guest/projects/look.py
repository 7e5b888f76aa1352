"""What is in the files of a project, looked at again and again: only what its times say to be
another one is read anew. Nothing of the project runs, and no link is followed."""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wire.kernel.beneath import PathEscapeError
from wire.v1.bootstrap_pb2 import Project

from guest.projects import ignoring
from guest.projects.git import plain
from guest.projects.watch import RACY_NS, Directories, join

FILES_MAX: Final = 300_000
COUNTED_MAX: Final = 1_000
"""How many paths count though they are ignored, because a file tool changed them."""
COPIED_MAX_BYTES: Final = 10 * 1024 * 1024
"""A larger file is known by size and time alone."""
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE: Final = (OSError, PathEscapeError, ValueError)
_Stamp = tuple[int, int] | None


class Version(NamedTuple):
    """A file as it was: "f" with its mode, such as "f644", or "l" for a link; and a digest of what
    it says, or where it leads. One that is not copied has a digest with a dash before it."""

    kind: str
    digest: bytes


class UnfinishedError(Exception):
    """A look took too long, or found too much. The message says which."""


@dataclass
class _Place:
    """A directory: its own stamp, its files with their stamps, what is below, what is ignored."""

    stamp: _Stamp
    files: dict[str, tuple[_Stamp, Version]]
    below: list[str]
    ignored: frozenset[str]


@dataclass
class Differences:
    """What a look found to be another one than before: each path with what was there. `made` are
    directories that were not there."""

    files: dict[str, Version | None] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    count: int = 0
    until: float | None = None

    def saw(self, entries: int = 1) -> None:
        """Count what is there. Raises `UnfinishedError`."""
        self.count += entries
        if self.count > FILES_MAX:
            raise UnfinishedError(f"the project has more than {FILES_MAX:,} files and directories")
        if self.until is not None and time.monotonic() > self.until:
            raise UnfinishedError("it took too long to look at all files")


class Tree:
    """The files of one project, open as `root`. `keep` takes the content of each version."""

    def __init__(self, root: int, project: Project, keep: Callable[[bytes, bytes], None]) -> None:
        self.name = project.name
        self._directories = Directories(root, project)
        self._shut = {*project.walls, *project.hidden}
        self._folded = {plain(each): each for each in self._shut}
        self._keep = keep
        self._places: dict[str, _Place] = {}
        self._rules: dict[str, tuple[ignoring._Rule, ...]] = {}
        self._counted: set[str] = set()
        self._first = True
        self._unread = set[str]()
        self.unread = frozenset[str]()
        """Directories that cannot be read now, but for those that never could be."""

    @property
    def ignores(self) -> bool:
        return any(place.ignored for place in self._places.values())

    def version(self, path: str) -> Version | None:
        """What is at a path, as the last look has seen it."""
        above, _, name = path.rpartition("/")
        place = self._places.get(above)
        return place.files[name][1] if place and name in place.files else None

    def versions(self) -> Iterator[Version]:
        return (each for place in self._places.values() for _, each in place.files.values())

    def has_directory(self, path: str) -> bool:
        return path in self._places

    def count(self, path: str) -> None:
        """Count what is at a path from now on, though it is ignored."""
        parts = path.split("/")
        ways = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
        for depth in range(1, len(ways)):
            if self._is_ignored(ways[depth], is_directory=depth < len(parts)):
                break
        else:
            return
        if len(self._counted) < COUNTED_MAX and not any(map(self._is_skipped, ways)):
            self._counted.update(ways[depth:])
            for above, way in zip(ways[depth - 1 :], ways[depth:], strict=False):
                self._add(above, way, last=way == path)

    def _add(self, above: str, path: str, *, last: bool) -> None:
        """Add what is at a path now, which was ignored, to what the last look has seen."""
        name, place = path.rpartition("/")[2], self._places.get(above)
        if place is None:
            return
        with suppress(*_GONE), self._directories.open(above) as directory:
            if last:
                self._look_at(directory, name, path, place, None, Differences())
            elif stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
                place.below.append(name)
                self._places[path] = _Place(None, {}, [], frozenset())

    def _is_skipped(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return plain(name) == ".git" or plain(path) in self._folded

    def stamp(self, path: str) -> _Stamp:
        """Of what is at a path now; None if there is nothing."""
        above, _, name = path.rpartition("/")
        with suppress(*_GONE), self._directories.open(above, os.O_PATH) as directory:
            status = os.lstat(name, dir_fd=directory)
            return (status.st_ctime_ns, status.st_ino)
        return None

    def is_as_seen(self, path: str) -> bool:
        """Whether what is at a path now is what the last look has seen."""
        above, _, name = path.rpartition("/")
        place = self._places.get(above)
        was = place.files.get(name) if place else None
        if was is None or was[0] is not None:
            return self.stamp(path) == (was and was[0])
        with suppress(*_GONE), self._directories.open(above) as directory:
            return version_of(directory, name, os.lstat(name, dir_fd=directory))[0] == was[1]
        return False

    def look(self, until: float | None = None) -> Differences:
        """Look at all. Raises `UnfinishedError`, with nothing changed, if it is not done `until`
        then, a time of the monotonic clock."""
        found, places = Differences(until=until), dict[str, _Place]()
        unread = set[str]()
        if self._first:
            self._rules.clear()
            self._read_rules("", ".git/info/exclude")
        pending = [""]
        while pending:
            path = pending.pop()
            found.saw(0)
            try:
                with self._directories.open(path) as directory:
                    places[path] = self._look_in(directory, path, found)
            except PathEscapeError:
                continue
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    continue
                unread.add(path)  # nobody knows what is there by now
                if path not in self._places:
                    continue
                places[path] = self._places[path]
            pending += (join(path, name) for name in places[path].below)
        for path, place in self._places.items():
            now = places[path].files if path in places else {}
            for name, (_, version) in place.files.items():
                if name not in now:
                    found.files[join(path, name)] = version
        found.made = places.keys() - self._places.keys()
        if self._first:
            self._unread = unread
        self.unread = frozenset(unread - self._unread)
        self._places, self._first = places, False
        return found

    def _look_in(self, directory: int, path: str, found: Differences) -> _Place:
        before = self._places.get(path)
        stamp = _own(os.fstat(directory))
        if before is None or stamp is None or stamp != before.stamp:
            return self._listed(directory, path, stamp, before, found)
        files = before.files
        try:
            for name, (was, _) in files.items():
                found.saw(0)
                status = os.lstat(name, dir_fd=directory)
                if was != (status.st_ctime_ns, status.st_ino):
                    break
            else:
                found.saw(len(files) + len(before.below) + len(before.ignored))
                return before
        except FileNotFoundError:
            pass
        return self._listed(directory, path, stamp, before, found)

    def _listed(
        self, directory: int, path: str, stamp: _Stamp, before: _Place | None, found: Differences
    ) -> _Place:
        place = _Place(stamp, {}, [], frozenset())
        if self._first:
            self._read_rules(path, ignoring.FILE, directory)
        with os.scandir(directory) as entries:
            listed = []
            for entry in entries:
                found.saw()
                listed.append((entry.name, entry.is_dir(follow_symlinks=False)))
        ignored = set()
        for name, is_directory in listed:
            found.saw(0)
            whole = join(path, name)
            if self._is_shut(directory, name, path, whole):
                continue
            old = before.files.get(name) if before else None
            known = old is not None or (before is not None and name in before.below)
            if not known and self._is_ignored(whole, is_directory=is_directory):
                ignored.add(name)
            elif is_directory:
                place.below.append(name)
            else:
                with suppress(FileNotFoundError):
                    self._look_at(directory, name, whole, place, old, found)
        place.ignored = frozenset(ignored)
        return place

    def _is_shut(self, directory: int, name: str, path: str, whole: str) -> bool:
        """Whether it is a wall, hidden or git's, also by another name that is read as the same."""
        shut = join(path, ".git") if plain(name) == ".git" else self._folded.get(plain(whole))
        if shut in (None, whole) or whole in self._shut:
            return shut is not None
        with suppress(OSError):
            it, other = (
                os.lstat(name, dir_fd=directory),
                os.lstat(str(shut), dir_fd=self._directories.root),
            )
            return os.path.samestat(it, other)
        return False

    def _look_at(
        self,
        directory: int,
        name: str,
        path: str,
        place: _Place,
        old: tuple[_Stamp, Version] | None,
        found: Differences,
    ) -> None:
        status = os.lstat(name, dir_fd=directory)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            return
        stamp = _own(status)
        if old is not None and stamp is not None and stamp == old[0]:
            place.files[name] = old
            return
        version, data = version_of(directory, name, status)
        place.files[name] = (stamp, version)
        if old is not None and old[1] == version:
            return
        if data is not None:
            self._keep(version.digest, data)
        found.files[path] = old[1] if old is not None else None

    def _read_rules(self, path: str, name: str, directory: int | None = None) -> None:
        with suppress(OSError, PathEscapeError):
            if directory is None:
                at = self._directories.beneath.open(self._directories.root, name, _FLAGS)
            else:
                at = os.open(name, _FLAGS, dir_fd=directory)
            with os.fdopen(at, "rb") as file:
                if stat.S_ISREG(os.fstat(at).st_mode):
                    text = file.read(ignoring.MAX_BYTES).decode(errors="surrogateescape")
                    self._rules[path] = (*ignoring.rules(text), *self._rules.get(path, ()))

    def _is_ignored(self, path: str, *, is_directory: bool) -> bool:
        if not self._rules or path in self._counted:
            return False
        parts = path.split("/")
        if any("/".join(parts[:depth]) in self._counted for depth in range(1, len(parts))):
            return True  # beside one that is counted
        for depth in range(len(parts) - 1, -1, -1):
            if rules := self._rules.get("/".join(parts[:depth])):
                said = ignoring.decides(rules, parts[depth:], is_directory=is_directory)
                if said is not None:
                    return said
        return False


def version_of(directory: int, name: str, status: os.stat_result) -> tuple[Version, bytes | None]:
    """What a file or a link is now, with what it says, if that is read."""
    kind = "l" if stat.S_ISLNK(status.st_mode) else f"f{status.st_mode & 0o7777:o}"
    data = _content(directory, name, status)
    if data is None:
        return Version(kind, _unread(status)), None
    return Version(kind, hashlib.blake2b(data, digest_size=20).digest()), data


def _content(directory: int, name: str, status: os.stat_result) -> bytes | None:
    """What a file says, or where a link leads; None of what is too large, or cannot be read."""
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(name, dir_fd=directory))
    if status.st_size > COPIED_MAX_BYTES:
        return None
    try:
        with os.fdopen(os.open(name, _FLAGS, dir_fd=directory), "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(COPIED_MAX_BYTES + 1) or b""
            while len(data) <= COPIED_MAX_BYTES and (more := file.read(COPIED_MAX_BYTES)):
                data += more
    except PermissionError:
        return None
    return data if len(data) <= COPIED_MAX_BYTES else None


def _unread(status: os.stat_result) -> bytes:
    return f"-{status.st_size} {status.st_ctime_ns} {status.st_ino}".encode()


def _own(status: os.stat_result) -> _Stamp:
    """Is another one for whatever changed; None if it changed so recently that it may change again
    and be the same."""
    if status.st_ctime_ns > time.time_ns() - RACY_NS:
        return None
    return (status.st_ctime_ns, status.st_ino)
