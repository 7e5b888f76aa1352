"""Opens virtual paths, or refuses them with one of a few fixed messages:

path is outside /shared, /tmp and /vault: <path>     every way out
/vault is read-only: <path>
<path> is hidden / read-only in this project
no such file: <path>
<path> is a directory / not a regular file
"""

import difflib
import errno
import os
import stat
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from wire.disk import held, largest_file, shortage
from wire.errors import Code
from wire.kernel.beneath import Beneath, PathEscapeError, best_beneath
from wire.text import visible_name
from wire.tools import PROJECTS, SHARED, SKILLS, VIRTUAL_ROOTS, VirtualRoot
from wire.v1.bootstrap_pb2 import Project, Skill

from guest.errors import GuestError, ToolError


@dataclass(frozen=True)
class Location:
    """A parsed virtual path.

    Attributes:
        given: The path as the caller wrote it, for messages.
        parts: The components below the root.
    """

    given: str
    root: VirtualRoot
    parts: tuple[str, ...]

    @property
    def relative(self) -> str:
        return "/".join(self.parts) or "."

    @property
    def path(self) -> str:
        return "/".join((self.root.path, *self.parts))

    @property
    def virtual(self) -> str:
        """The path for results and messages."""
        return visible_name(self.path)


def listed(roots: Iterable[VirtualRoot]) -> str:
    """Their paths, in words."""
    *first, last = (root.path for root in roots)
    return " and ".join(filter(None, (", ".join(first), last)))


class VirtualPaths:
    """The paths that tools take: below the agent's `own` roots, and below `projects`.
    Relative paths and commands begin in `base`. Immutable."""

    def __init__(self, projects: Iterable[VirtualRoot] = (), skills: Sequence[Skill] = ()) -> None:
        self.projects = tuple(projects)
        self.skills = skills
        self.own = (*VIRTUAL_ROOTS, *([SKILLS] if skills else ()))
        self.base = SHARED.path
        self._by_name = {root.name: root for root in (*self.own, *self.projects)}

    @property
    def in_shell(self) -> str:
        """The directories that commands see, in words."""
        return listed(each for each in self._by_name.values() if each.in_shell)

    @property
    def told(self) -> str:
        """What a model is told of the projects; empty where there are none."""
        named = (f"{each.path}{'' if each.writable else ' (read only)'}" for each in self.projects)
        return f"Project directories of the user: {', '.join(named)}. " if self.projects else ""

    @property
    def by_name(self) -> dict[str, VirtualRoot]:
        """The projects."""
        return {root.path.rpartition("/")[2]: root for root in self.projects}

    def of_session(self, project: str) -> "VirtualPaths":
        """The same for a session with this project; empty for none."""
        view = copy(self)
        root = self._by_name.get(f"{PROJECTS}/{project}", SHARED)
        view.base = root.path
        return view

    def outside(self, path: str) -> ToolError:
        """The one error for every path that is not in a root or leads out of it."""
        named = listed(self._by_name.values())
        return ToolError(f"path is outside {named}: {visible_name(path)}")

    def parse(self, path: str) -> Location:
        """Parse a virtual path; raises `ToolError` if it is in no virtual root."""
        if "\0" in path or not path.startswith("/") or path.startswith("//"):
            raise self.outside(path)
        name, *below = path[1:].split("/")
        parts = tuple(part for part in below if part not in ("", "."))
        if name == PROJECTS and parts:
            name, parts = f"{PROJECTS}/{parts[0]}", parts[1:]
        root = self._by_name.get(name)
        if root is None:
            raise self.outside(path)
        return Location(visible_name(path), root, parts)

    def above_projects(self, path: str) -> bool:
        """Whether `path` is that of the directory that has the projects."""
        return bool(self.projects) and [each for each in path.split("/") if each] == [PROJECTS]

    def anchored(self, path: str) -> str:
        """A relative path as one below the base: `notes.txt`, `./notes.txt` and, where the base is
        /shared, `shared/notes.txt`. Every other path as it is, also one with `..`, of another
        machine, of a home or of a URL."""
        parts = [part for part in path.split("/") if part != "."]
        if not path or path[0] in "/~\\" or (parts[:1] and ":" in parts[0]) or ".." in parts:
            return path
        names = {root.split("/")[0] for root in self._by_name} if self.base == SHARED.path else ()
        return "/".join(("" if parts[:1] and parts[0] in names else self.base, *parts))


class NoSuchFileError(ToolError):
    """There is nothing at this path."""


class NotDirectoryError(ToolError):
    """What is at this path is not a directory."""


class Roots:
    """The directories that file tools may use. A tool that changes a file holds `changing`.

    Args:
        directories: The real directory of each root of the agent's own, by its name.
        private: Directories of the workspace whose files must not be reached through hard links.
        beneath: How paths are opened; the best way on this system by default.
        projects: Directories of the operator's. What one hides is not opened, and what is a wall
            there is not changed, by whatever name and over whatever link it is reached.
        skills: What lies in /skills; without any there is no such root.

    Raises `GuestError` (FAILED_PRECONDITION) if one cannot be opened, or is a link: commands may
    write beside it, and whoever can put a link there would choose what the tools see. Likewise if
    a project is another directory than the runner has checked.
    """

    def __init__(
        self,
        directories: Mapping[str, Path],
        private: Sequence[Path] = (),
        beneath: Beneath | None = None,
        projects: Sequence[Project] = (),
        skills: Sequence[Skill] = (),
    ) -> None:
        self._projects = {f"{PROJECTS}/{each.name}": each for each in projects}
        shown = (
            VirtualRoot(name, each.writable, tag=each.tag, keeps_notes=each.keeps_notes)
            for name, each in self._projects.items()
        )
        self.paths = VirtualPaths(shown, skills)
        self.changing = threading.Lock()
        self._beneath = beneath or best_beneath()
        own = {name for name, each in self._projects.items() if each.path != f"/{name}"}
        self._on_host = dict.fromkeys(own, best_beneath(one_mount=True)) if own else {}
        """Where no mounts of ours are: what is mounted below such a project is not part of it."""
        self._private = tuple(private)
        self._descriptors: dict[str, int] = {}
        try:
            for root in self.paths.own:
                self._descriptors[root.name] = _open_root(directories[root.name])
            for name, project in self._projects.items():
                self._descriptors[name] = _open_project(project)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the roots. Idempotent."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    @property
    def open_projects(self) -> list[tuple[int, Project]]:
        """The projects, each with its open directory, as long as this is open."""
        return [(self._descriptors[name], each) for name, each in self._projects.items()]

    def require_room(self, location: Location, size: int) -> None:
        """Check that a new file of `size` bytes leaves the disk what the memory needs.

        Raises:
            ToolError: It does not; with the figures and the largest file.
        """
        missing = shortage(os.fstatvfs(self._descriptors[location.root.name]), size)
        if not missing:
            return
        largest, most = "", 0
        own = () if location.root.is_project else VIRTUAL_ROOTS
        for root in (root for root in own if root.writable):
            with suppress(OSError):
                path, taken = largest_file(self._descriptors[root.name])
                if taken > most:
                    largest, most = visible_name(f"{root.path}/{path}"), taken
        named = f"; the largest file is {largest} ({most / 2**20:.1f} MiB)" if largest else ""
        raise ToolError(
            f"the disk is full, so nothing is written: {missing}{named}; delete what is not needed",
            Code.RESOURCE_EXHAUSTED,
        )

    @contextmanager
    def file(self, location: Location) -> Iterator[int]:
        """An existing regular file, opened for reading. A pipe or device is never opened."""
        with self._opened(location, os.O_PATH) as found:
            self._must_be_regular(location, os.fstat(found))
            descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
        with held(descriptor):
            yield descriptor

    def text(self, path: str, most: int) -> str | None:
        """The beginning of a text file; None where there is none, or only over a link."""
        with suppress(OSError, ToolError):
            location = self.paths.parse(path)
            os.close(self._open(location, os.O_PATH))  # fails without a look for similar names
            with self.file(location) as descriptor:
                if self._real(location, descriptor) == location.relative:
                    head = os.read(descriptor, most)
                    return None if b"\0" in head else head.decode(errors="replace")
        return None

    def mark(self, path: str, project: str = "") -> str:
        """What is another text when a file, or the names in a directory, have changed; empty where
        there is nothing. Raises `ToolError`, `OSError`."""
        with suppress(FileNotFoundError):
            location = self.paths.parse(self.paths.of_session(project).anchored(path))
            with held(self._open(location, os.O_PATH)) as descriptor:
                found = os.fstat(descriptor)
            return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"
        return ""

    @contextmanager
    def directory(self, location: Location) -> Iterator[int]:
        try:
            with self._opened(location, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
                yield descriptor
        except NotADirectoryError:
            raise NotDirectoryError(f"not a directory: {location.given}") from None

    @contextmanager
    def parent(self, location: Location, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that contains `location` and the name in it, to change the entry.

        Args:
            create: Make missing directories.

        Raises:
            ToolError: The root is read-only, or `location` is a root itself.
        """
        if not location.root.writable:
            raise ToolError(f"{location.root.path} is read-only: {location.given}")
        if not location.parts:
            raise ToolError(f"{location.given} is a root and cannot be changed itself")
        name = location.parts[-1]
        if name == "..":
            raise self.paths.outside(location.given)
        above = Location(location.given, location.root, location.parts[:-1])
        if create:
            self._make_directories(above)
        with self.directory(above) as descriptor:
            self.must_be_changeable(location, descriptor, name)
            yield descriptor, name

    def existing(self, location: Location, directory: int, name: str) -> os.stat_result | None:
        """The status of `name` in `directory`, without following it; None if it does not exist.

        Raises:
            ToolError: It is a hard link to a private file, or a symlink that leads out.
        """
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            with suppress(FileNotFoundError):
                os.close(self._open(location, os.O_PATH))
        self._must_not_be_private(location, status)
        return status

    def must_be_changeable(self, location: Location, directory: int, name: str) -> None:
        """Raises `ToolError` if `name` in the open `directory` is, or lies below, what nobody
        changes in a project."""
        project = self._projects.get(location.root.name, _NONE)
        shut = (*project.walls, *project.hidden)
        if not shut:
            return
        inodes = self._inodes(location.root, shut)
        real = PurePosixPath(self._real(location, directory), name)
        met = [os.stat("../" * n or ".", dir_fd=directory) for n in range(len(real.parts) - 1)]
        with suppress(FileNotFoundError):
            met.append(os.stat(name, dir_fd=directory, follow_symlinks=False))
        if is_below(shut, str(real)) or not inodes.isdisjoint(map(_identity, met)):
            raise ToolError(
                f"{location.given} is not changed: {', '.join(map(visible_name, shut))} cannot be "
                "written in this project"
            )

    def _make_directories(self, location: Location) -> None:
        for depth in range(1, len(location.parts) + 1):
            part = Location(location.given, location.root, location.parts[:depth])
            above = Location(location.given, location.root, location.parts[: depth - 1])
            if part.parts[-1] == "..":
                continue
            with self.directory(above) as descriptor:
                self.must_be_changeable(location, descriptor, part.parts[-1])
                try:
                    os.mkdir(part.parts[-1], 0o755, dir_fd=descriptor)
                except FileExistsError:
                    continue

    def _opened(self, location: Location, flags: int) -> AbstractContextManager[int]:
        try:
            return held(self._open(location, flags))
        except FileNotFoundError:
            raise NoSuchFileError(self._missing(location)) from None

    def _open(self, location: Location, flags: int) -> int:
        project = self._projects.get(location.root.name, _NONE)
        before = self._inodes(location.root, project.hidden)
        descriptor = self._opened_beneath(location, flags)
        try:
            if project.hidden:  # its owner may replace it meanwhile
                hidden = before | self._inodes(location.root, project.hidden)
                real = self._real(location, descriptor)
                if _identity(os.fstat(descriptor)) in hidden or is_below(project.hidden, real):
                    raise ToolError(f"{location.given} is hidden in this project by its owner")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _inodes(self, root: VirtualRoot, names: Iterable[str]) -> set[tuple[int, int]]:
        """What is at these paths of a project now, and where links there lead."""
        found = set()
        for name in names:
            for follow in (False, True):
                with suppress(OSError):
                    at = self._descriptors[root.name]
                    found.add(_identity(os.stat(name, dir_fd=at, follow_symlinks=follow)))
        return found

    def _real(self, location: Location, descriptor: int) -> str:
        """Where an open file is below its root, without links. Raises `ToolError` if it is no
        longer there."""
        top, path = (
            Path(f"/proc/self/fd/{each}").readlink()
            for each in (self._descriptors[location.root.name], descriptor)
        )
        if not path.is_relative_to(top):
            raise ToolError(f"{location.given} was moved just now; try again")
        return str(path.relative_to(top)).removesuffix(" (deleted)")

    def _opened_beneath(self, location: Location, flags: int) -> int:
        try:
            beneath = self._on_host.get(location.root.name, self._beneath)
            return beneath.open(self._descriptors[location.root.name], location.relative, flags)
        except PathEscapeError:
            raise self.paths.outside(location.given) from None
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise ToolError(f"not a regular file: {location.given}") from None
            if error.errno == errno.ENAMETOOLONG:
                raise ToolError(f"path is too long: {location.given[:200]}…") from None
            if error.errno == errno.EACCES:
                raise ToolError(f"permission denied: {location.given}") from None
            if error.errno == errno.ENOTDIR and not flags & os.O_DIRECTORY:
                raise FileNotFoundError(error.errno, error.strerror) from None
            raise

    def _missing(self, location: Location) -> str:
        message = f"no such file: {location.given}"
        above = Location(location.given, location.root, location.parts[:-1])
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY
            with held(self._open(above, flags)) as descriptor, os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries]
            similar = difflib.get_close_matches(location.parts[-1], names, n=1)
        except (OSError, ToolError, IndexError):
            return message
        if not similar:
            return message
        return f"{message}; did you mean {visible_name(f'{above.path}/{similar[0]}')}?"

    def _must_be_regular(self, location: Location, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(f"is a directory: {location.given}; use file_list")
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"not a regular file: {location.given}")
        self._must_not_be_private(location, status)

    def _must_not_be_private(self, location: Location, status: os.stat_result) -> None:
        """Do not rely on the link count: a name that was just removed is no longer counted."""
        if not stat.S_ISREG(status.st_mode):
            return
        if _identity(status) in self._private_files():
            raise self.paths.outside(location.given)

    def _private_files(self) -> set[tuple[int, int]]:
        found = set()
        for directory in self._private:
            for path in directory.rglob("*"):
                with suppress(FileNotFoundError):
                    found.add(_identity(path.lstat()))
        return found


_NONE = Project()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def is_below(names: Iterable[str], path: str) -> bool:
    """Whether `path` is one of `names` or below it, as a file system may compare them that does not
    tell capitals, or kinds of writing, apart."""
    folded = f"{_folded(path)}/"
    return any(folded.startswith(f"{_folded(name)}/") for name in names)


def _folded(path: str) -> str:
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
    return "".join(each for each in plain if unicodedata.category(each) != "Cf")


def _open_project(project: Project) -> int:
    descriptor = _open_root(Path(project.path))
    meant = project.directory
    found = _identity(os.fstat(descriptor))
    if project.HasField("directory") and found != (meant.device, meant.inode):
        os.close(descriptor)
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"the project {project.name} is another directory than the runner has checked",
            details="between its check and its use, something was put in its place",
            resolution="look who else can change the directory above it, then: runner restart",
        )
    return descriptor


def _open_root(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        is_link = path.is_symlink()
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"cannot open the workspace directory {path}",
            details="it is a link, which a command may have put there"
            if is_link
            else str(error.strerror),
            resolution="remove the link, then: runner restart"
            if is_link
            else "runner restart sets the workspace up again",
        ) from None
