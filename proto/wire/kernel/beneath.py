"""Opens a path beneath a directory and never outside it.

`KernelBeneath` lets the kernel resolve the whole path (`openat2`), so that no race can lead out.
`WalkingBeneath` is for kernels without that call: it opens component by component and holds a
descriptor of every directory on the way, so that `..` leads back to the directory it came from
even after a rename.
"""

import ctypes
import errno
import os
import stat
import sys
from typing import Final, Protocol

_SYS_OPENAT2: Final = 437
_RESOLVE_NO_XDEV: Final = 0x01
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_TRIES_MAX: Final = 16
_PATH_MAX_BYTES: Final = 4096
"""The kernel's limit for a path, with the NUL at its end."""
_SYMLINKS_MAX: Final = 40
_ESCAPES: Final = frozenset({errno.EXDEV, errno.ELOOP})


class PathEscapeError(Exception):
    """The path leads out of its root, or has symlinks that form a circle or are not allowed."""


class Beneath(Protocol):
    """Opens paths relative to a root."""

    def open(self, root: int, path: str, flags: int, mode: int = 0o600) -> int:
        """Open the relative `path` beneath the open directory `root`, as `os.open` does.

        Raises `PathEscapeError` if the path, or a symlink on it, leaves the root, as every symlink
        with an absolute target does, and `ValueError` if it holds NUL.
        """


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class KernelBeneath:
    """`openat2` with RESOLVE_BENEATH; Linux 5.6 and later. Symlinks are followed if `links`,
    and what is mounted below the root is outside of it with `one_mount`."""

    def __init__(self, *, links: bool = True, one_mount: bool = False) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
        self._resolve |= 0 if links else _RESOLVE_NO_SYMLINKS
        self._resolve |= _RESOLVE_NO_XDEV if one_mount else 0

    def open(self, root: int, path: str, flags: int, mode: int = 0o600) -> int:
        name = os.fsencode(path)
        if b"\0" in name:  # where it would end for the kernel
            raise ValueError("embedded null byte")
        how = _OpenHow(
            flags=flags | os.O_CLOEXEC,
            mode=mode if flags & os.O_CREAT else 0,
            resolve=self._resolve,
        )
        for _ in range(_TRIES_MAX):
            descriptor = self._libc.syscall(
                _SYS_OPENAT2, root, name, ctypes.byref(how), ctypes.sizeof(how)
            )
            if descriptor >= 0:
                return int(descriptor)
            number = ctypes.get_errno()
            if number in _ESCAPES:
                raise PathEscapeError(path)
            if number != errno.EAGAIN:
                raise OSError(number, os.strerror(number), path)
        raise PathEscapeError(path)


class WalkingBeneath:
    """Opens component by component and resolves symlinks itself, if `links`. With
    `one_mount` another file system below the root is outside of it."""

    def __init__(self, *, links: bool = True, one_mount: bool = False) -> None:
        self._links = links
        self._one_mount = one_mount

    def open(self, root: int, path: str, flags: int, mode: int = 0o600) -> int:
        if len(os.fsencode(path)) >= _PATH_MAX_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        directories = [os.dup(root)]
        try:
            found = self._walk(directories, path, flags, mode)
            places = (*directories, found)
            if self._one_mount and len({os.fstat(each).st_dev for each in places}) > 1:
                os.close(found)
                raise PathEscapeError(path)
            return found
        finally:
            for descriptor in directories:
                os.close(descriptor)

    def _walk(self, directories: list[int], path: str, flags: int, mode: int) -> int:
        pending = _components(path)[::-1]
        followed = 0
        while pending:
            name = pending.pop()
            here = directories[-1]
            if name == ".":
                continue
            if name == "..":
                if len(directories) == 1:
                    raise PathEscapeError(path)
                os.close(directories.pop())
                continue
            if not pending and flags & os.O_CREAT:
                return _open_at(path, name, flags, here, mode)
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                followed += 1
                target = os.readlink(name, dir_fd=here)
                if not self._links or followed > _SYMLINKS_MAX or target.startswith("/"):
                    raise PathEscapeError(path)
                pending += _components(target)[::-1]
            elif pending:
                directories.append(_open_at(path, name, os.O_PATH | os.O_DIRECTORY, here))
            else:
                return _open_at(path, name, flags, here)
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=directories[-1])


def _open_at(path: str, name: str, flags: int, directory: int, mode: int = 0o600) -> int:
    """Open an entry that was just seen not to be a symlink; refuse it if it has become one."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PathEscapeError(path) from None
        raise


def _components(path: str) -> list[str]:
    """The components of `path`; the last is "." if it ends in a slash: it must be a directory."""
    *above, last = path.split("/")
    return [part for part in above if part not in ("", ".")] + [last or "."]


def best_beneath(*, links: bool = True, one_mount: bool = False) -> Beneath:
    """`KernelBeneath` if the kernel has the call and permits it, else `WalkingBeneath`."""
    if sys.platform != "linux":
        return WalkingBeneath(links=links, one_mount=one_mount)
    kernel = KernelBeneath(links=links, one_mount=one_mount)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(kernel.open(root, ".", os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return WalkingBeneath(links=links, one_mount=one_mount)
    finally:
        os.close(root)
    return kernel
