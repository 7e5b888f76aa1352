"""Disks on which somebody else writes: walks through their directories, however deep and wide, the
room on them, what is kept free for the memory, and who listens on a socket there."""

import errno
import os
import secrets
import socket
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CLOSED: Final = (errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_COSTLY: Final = 10


@contextmanager
def held(descriptor: int) -> Iterator[int]:
    """Close what is open when the body ends."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path | str, directory: int | None = None) -> Iterator[BinaryIO]:
    """Yield a file, readable only for us, that becomes `path`, which may be relative to an open
    directory, when the body ends; if the body raises, nothing is left of it."""
    draft = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.partial")  # noqa: PTH118, PTH120
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600, dir_fd=directory), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(draft, path, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)
        raise


def store(path: Path, content: str | bytes) -> None:
    """Let `path` be a file with this content, as `whole_file` makes it."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


class MovedError(OSError):
    """Directories were moved during a walk, so that its rest cannot be found."""


class Entry(NamedTuple):
    """What was found, and the open directory that holds it. `above` are the names of the
    directories from the start of the walk to that one; the list is used again for the next
    entry."""

    directory: int
    found: "os.DirEntry[str]"
    above: Sequence[str]

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def path(self) -> str:
        """Relative to the start of the walk."""
        return "/".join((*self.above, self.name))

    @property
    def is_plain(self) -> bool:
        """Whether it is a file or a link."""
        return self.found.is_file(follow_symlinks=False) or self.found.is_symlink()

    @property
    def cost(self) -> int:
        """How much work it is to look at it. Files and links only have to be counted."""
        return 1 if self.is_plain else _COSTLY


def walk(start: int) -> Iterator[Entry]:
    """Everything below an open directory.

    Links are not followed, and directories that are closed to the caller are passed over. Needs
    three descriptors and no recursion, and keeps the names of directories that are still to be
    walked. Raises `MovedError`, and `OSError` where the file system fails.
    """
    here = os.open(".", _FLAGS, dir_fd=start)
    try:
        names: list[str] = []
        inside: list[str] = []
        yield from _listed(here, names, inside)
        levels = [(_identity(here), inside)]
        while levels:
            if inside := levels[-1][1]:
                name = inside.pop()
                if (below := _entered(here, name)) < 0:
                    continue
                names.append(name)
                try:
                    further: list[str] = []
                    yield from _listed(below, names, further)
                    if further and _may_be_searched(below):
                        levels.append((_identity(below), further))
                        here, below = below, here
                    else:
                        names.pop()
                finally:
                    os.close(below)
                continue
            levels.pop()
            if levels:
                names.pop()
                above = _above(here, levels[-1][0], start, names)
                os.close(here)
                here = above
    finally:
        os.close(here)


def _listed(here: int, names: Sequence[str], inside: list[str]) -> Iterator[Entry]:
    """The entries of one directory; those that are directories go into `inside`."""
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inside.append(entry.name)
            yield Entry(here, entry, names)


def _entered(here: int, name: str) -> int:
    """The descriptor of a directory; -1 if it is closed or gone."""
    try:
        return os.open(name, _FLAGS, dir_fd=here)
    except OSError as error:
        if error.errno in _CLOSED:
            return -1
        raise


def _may_be_searched(directory: int) -> bool:
    """Whether its entries can be opened, and the parent from it again."""
    try:
        os.close(os.open(".", os.O_PATH | os.O_CLOEXEC, dir_fd=directory))
    except PermissionError:
        return False
    return True


def _above(here: int, expected: tuple[int, int], start: int, names: Sequence[str]) -> int:
    """The directory above `here`, by `..` or, if somebody has moved that, by its `names`."""
    for way in ((here, ("..",)), (start, (".", *names))):
        found = _opened(*way)
        if found >= 0 and _identity(found) == expected:
            return found
        if found >= 0:
            os.close(found)
    raise MovedError(errno.ESTALE, "directories were moved meanwhile")


def _opened(start: int, names: Sequence[str]) -> int:
    found, here = -1, start
    for name in names:
        try:
            below = os.open(name, _FLAGS, dir_fd=here)
        except OSError:
            return -1
        finally:
            if found >= 0:
                os.close(found)
        found = here = below
    return found


def _identity(directory: int) -> tuple[int, int]:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


RESERVE_MAX_BYTES: Final = 16 * 1024 * 1024
_RESERVE_SHARE: Final = 20
"""The reserve is at most this fraction of a disk (1/20), so that small disks stay usable."""
_INODES_SHARE: Final = 100
_LOOKED_AT_MAX: Final = 100_000
_MIB: Final = 1024 * 1024


def free_bytes(disk: os.statvfs_result) -> int:
    return disk.f_bavail * disk.f_frsize


def reserve_bytes(disk: os.statvfs_result) -> int:
    """How much is kept for the memory on a disk: as its reserve, and free beside it."""
    return min(RESERVE_MAX_BYTES, disk.f_blocks * disk.f_frsize // _RESERVE_SHARE)


def shortage(disk: os.statvfs_result, size: int) -> str:
    """What would be missing on a disk after `size` more bytes in one more file; "" if nothing."""
    kept = reserve_bytes(disk)
    if (free := free_bytes(disk)) < kept + size:
        return f"the disk has {free / _MIB:.1f} MiB left, and {kept / _MIB:.1f} MiB are kept free"
    if disk.f_favail < disk.f_files // _INODES_SHARE:
        kept = disk.f_files // _INODES_SHARE
        return f"the disk has room for {disk.f_favail} files, and {kept} are kept free"
    return ""


def largest_file(directory: int) -> tuple[str, int]:
    """The path below an open directory and the size of the file that takes the most room, of the
    first 100,000 entries; ("", 0) if there is none."""
    largest, size = "", 0
    for count, entry in enumerate(walk(directory)):
        if count >= _LOOKED_AT_MAX:
            break
        try:
            found = entry.found.stat(follow_symlinks=False)
        except OSError:
            continue
        taken = found.st_blocks * 512
        if stat.S_ISREG(found.st_mode) and taken > size:
            largest, size = entry.path, taken
    return largest, size


_CONNECT_S: Final = 0.1
_CREDENTIALS: Final = struct.Struct("iII")


def listener(address: str) -> int:
    """The number of the process that listens on the stream socket at `address`, by connecting to
    it; 0 if that process lies outside this one's namespace of processes. Raises `OSError` if it
    could not be connected to within 0.1 s."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        client.connect(address)
        sent = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(sent)[0])
