"""Opens virtual paths, or refuses them with one of a few fixed messages:

path is outside /shared, /tmp and /vault: <path>     every way out
/vault is read-only: <path>
no such file: <path>
<path> is a directory / not a regular file
"""

import difflib
import errno
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wire.disk import largest_file, shortage
from wire.errors import Code
from wire.kernel.beneath import Beneath, PathEscapeError, best_beneath
from wire.text import visible_name
from wire.tools import VIRTUAL_ROOTS, VirtualRoot

from guest.errors import GuestError, ToolError

_BY_NAME = {root.name: root for root in VIRTUAL_ROOTS}


@dataclass(frozen=True)
class Location:
    """A parsed virtual path.

    Attributes:
        given: The path as the caller wrote it, for messages.
        root: The virtual root.
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


def outside(path: str) -> ToolError:
    """The one error for every path that is not in a root or leads out of it."""
    return ToolError(f"path is outside /shared, /tmp and /vault: {visible_name(path)}")


def parse(path: str) -> Location:
    """Parse a virtual path; raises `ToolError` if it is in no virtual root."""
    if "\0" in path or not path.startswith("/") or path.startswith("//"):
        raise outside(path)
    name, *below = path[1:].split("/")
    root = _BY_NAME.get(name)
    if root is None:
        raise outside(path)
    return Location(
        visible_name(path), root, tuple(part for part in below if part not in ("", "."))
    )


def anchored(path: str) -> str:
    """A relative path as one below /shared, where commands begin: `notes.txt`, `./notes.txt`, and
    `shared/notes.txt`. Every other path as it is, also one with `..`, of another machine, of a
    home or of a URL."""
    parts = [part for part in path.split("/") if part != "."]
    if not path or path[0] in "/~\\" or (parts[:1] and ":" in parts[0]) or ".." in parts:
        return path
    return "/" + "/".join(parts if parts[:1] and parts[0] in _BY_NAME else ["shared", *parts])


class NoSuchFileError(ToolError):
    """There is nothing at this path."""


class NotDirectoryError(ToolError):
    """What is at this path is not a directory."""


class Roots:
    """The directories that file tools may use. A tool that changes a file holds `changing`.

    Args:
        directories: The real directory of each root, by its name.
        private: Directories of the workspace whose files must not be reached through hard links.
        beneath: How paths are opened; the best way on this system by default.

    Raises `GuestError` (FAILED_PRECONDITION) if one cannot be opened, or is a link: commands may
    write beside it, and whoever can put a link there would choose what the tools see.
    """

    def __init__(
        self,
        directories: Mapping[str, Path],
        private: Sequence[Path] = (),
        beneath: Beneath | None = None,
    ) -> None:
        self.changing = threading.Lock()
        self._beneath = beneath or best_beneath()
        self._private = tuple(private)
        self._descriptors: dict[str, int] = {}
        try:
            for name in _BY_NAME:
                self._descriptors[name] = _open_root(directories[name])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the roots. Idempotent."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def require_room(self, location: Location, size: int) -> None:
        """Check that a new file of `size` bytes leaves the disk what the memory needs.

        Raises:
            ToolError: It does not; with the figures and the largest file.
        """
        missing = shortage(os.fstatvfs(self._descriptors[location.root.name]), size)
        if not missing:
            return
        largest, most = "", 0
        for root in (root for root in VIRTUAL_ROOTS if root.writable):
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
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def directory(self, location: Location) -> Iterator[int]:
        """An existing directory, opened for listing."""
        try:
            with self._opened(location, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
                yield descriptor
        except NotADirectoryError:
            raise NotDirectoryError(f"not a directory: {location.given}") from None

    @contextmanager
    def parent(self, location: Location, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that contains `location` and the name in it, to change the entry.

        Args:
            location: The entry.
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
            raise outside(location.given)
        above = Location(location.given, location.root, location.parts[:-1])
        if create:
            self._make_directories(above)
        with self.directory(above) as descriptor:
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

    def _make_directories(self, location: Location) -> None:
        for depth in range(1, len(location.parts) + 1):
            part = Location(location.given, location.root, location.parts[:depth])
            above = Location(location.given, location.root, location.parts[: depth - 1])
            if part.parts[-1] == "..":
                continue
            with self.directory(above) as descriptor:
                try:
                    os.mkdir(part.parts[-1], 0o755, dir_fd=descriptor)
                except FileExistsError:
                    continue

    @contextmanager
    def _opened(self, location: Location, flags: int) -> Iterator[int]:
        try:
            descriptor = self._open(location, flags)
        except FileNotFoundError:
            raise NoSuchFileError(self._missing(location)) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, location: Location, flags: int) -> int:
        try:
            return self._beneath.open(
                self._descriptors[location.root.name], location.relative, flags
            )
        except PathEscapeError:
            raise outside(location.given) from None
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
            with self._opened_quietly(above) as descriptor, os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries]
            similar = difflib.get_close_matches(location.parts[-1], names, n=1)
        except (OSError, ToolError, IndexError):
            return message
        if not similar:
            return message
        return f"{message}; did you mean {visible_name(f'{above.path}/{similar[0]}')}?"

    @contextmanager
    def _opened_quietly(self, location: Location) -> Iterator[int]:
        descriptor = self._open(location, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

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
        if (status.st_dev, status.st_ino) in self._private_files():
            raise outside(location.given)

    def _private_files(self) -> set[tuple[int, int]]:
        found = set()
        for directory in self._private:
            for path in directory.rglob("*"):
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    found.add((status.st_dev, status.st_ino))
        return found


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
