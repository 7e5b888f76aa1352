"""Opening a path beneath a directory and never outside it, in two ways with one answer.

`KernelBeneath` lets the kernel resolve the whole path (`openat2`): no race can
lead it out. `WalkingBeneath` does the same component by component where there
is no such system call, holding a descriptor for every directory it passed, so
that `..` goes back to where it came from and not to where a rename put it.
"""

import ctypes
import errno
import os
import stat
import sys
from typing import Final, Protocol

_SYS_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_ATTEMPTS: Final = 16
_SYMLINKS_MAX: Final = 40
_ESCAPES: Final = frozenset({errno.EXDEV, errno.ELOOP})


class OutsideError(Exception):
    """The path leads out of its root, or in circles."""


class Beneath(Protocol):
    """How a path is opened relative to a root."""

    def open(self, root: int, path: str, flags: int) -> int:
        """A descriptor of `path`, resolved beneath the directory `root`.

        `path` is relative; symlinks are followed as long as they stay beneath
        the root (an absolute target does not). Raises `OutsideError` where it
        leaves the root, and `OSError` as `open` does otherwise. Creates nothing.
        """
        ...


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class KernelBeneath:
    """`openat2` with RESOLVE_BENEATH; Linux 5.6 and later."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def open(self, root: int, path: str, flags: int) -> int:
        how = _OpenHow(
            flags=flags | os.O_CLOEXEC, resolve=_RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
        )
        for _ in range(_ATTEMPTS):
            descriptor = self._libc.syscall(
                _SYS_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
            )
            if descriptor >= 0:
                return int(descriptor)
            number = ctypes.get_errno()
            if number in _ESCAPES:
                raise OutsideError(path)
            if number != errno.EAGAIN:
                raise OSError(number, os.strerror(number), path)
        raise OutsideError(path)


class WalkingBeneath:
    """Resolution by hand: every component opened without following it."""

    def open(self, root: int, path: str, flags: int) -> int:
        directories = [os.dup(root)]
        try:
            return self._walk(directories, path, flags)
        finally:
            for descriptor in directories:
                os.close(descriptor)

    def _walk(self, directories: list[int], path: str, flags: int) -> int:
        waiting = _components(path)[::-1]
        followed = 0
        while waiting:
            name = waiting.pop()
            here = directories[-1]
            if name == ".":
                continue
            if name == "..":
                if len(directories) == 1:
                    raise OutsideError(path)
                os.close(directories.pop())
                continue
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                followed += 1
                target = os.readlink(name, dir_fd=here)
                if followed > _SYMLINKS_MAX or target.startswith("/"):
                    raise OutsideError(path)
                waiting += _components(target)[::-1]
            elif waiting:
                directories.append(_open_at(path, name, os.O_PATH | os.O_DIRECTORY, here))
            else:
                return _open_at(path, name, flags, here)
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=directories[-1])


def _open_at(path: str, name: str, flags: int, directory: int) -> int:
    """Open what was no symlink a moment ago; if it is one now, somebody plays tricks."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OutsideError(path) from None
        raise


def _components(path: str) -> list[str]:
    """The parts of `path`; a last "." where it must be a directory, as after a slash."""
    *above, last = path.split("/")
    return [part for part in above if part not in ("", ".")] + [last or "."]


def best_beneath() -> Beneath:
    """The kernel's way where it exists and is permitted, else the walk."""
    if sys.platform != "linux":
        return WalkingBeneath()
    kernel = KernelBeneath()
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(kernel.open(root, ".", os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return WalkingBeneath()
    finally:
        os.close(root)
    return kernel
