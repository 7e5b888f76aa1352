"""Opens paths beneath a directory and never outside it, so that nobody who may rename or replace
what lies below that directory can lead the runner elsewhere."""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import Final

_SYS_OPENAT2: Final = 437
_NO_MAGICLINKS: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08
_TRIES_MAX: Final = 16
_MISSING: Final = (errno.ENOSYS, errno.EPERM)
"""What a kernel before 5.6 answers, and a system call filter that does not know the call."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: int, path: PurePath, flags: int, mode: int = 0o600) -> int:
    """Open the relative `path` beneath an open directory; no part of it may be a symbolic link.

    Args and what is raised are those of `os.open`, also where the path holds NUL. A link is ELOOP,
    or ENOTDIR where a directory is asked for.
    """
    if path.is_absolute() or ".." in path.parts:
        raise OSError(errno.EXDEV, "it leads out of its directory", str(path))
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    if not _kernel_has_openat2():
        return _walked(directory, path, flags, mode)
    how = _OpenHow(
        flags=flags,
        mode=mode if flags & os.O_CREAT else 0,
        resolve=_BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS,
    )
    for _ in range(_TRIES_MAX):
        found = _openat2(directory, path, how)
        if found >= 0:
            return found
        if found != -errno.EAGAIN:  # something was renamed at that moment
            raise OSError(-found, os.strerror(-found), str(path))
    raise OSError(errno.EAGAIN, "it is being renamed all the time", str(path))


@contextmanager
def directory_beneath(home: Path, path: Path) -> Iterator[int]:
    """A descriptor of the directory `path`, which lies in `home`, for use as `dir_fd`.

    `home` is a directory that only the runner can replace, such as a workspace. Raises `OSError`.
    """
    anchor = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = open_beneath(anchor, path.relative_to(home), os.O_PATH | os.O_DIRECTORY)
    finally:
        os.close(anchor)
    try:
        yield found
    finally:
        os.close(found)


def _openat2(directory: int, path: PurePath, how: _OpenHow) -> int:
    """A descriptor, or the error's number below zero."""
    name = os.fsencode(path)
    if b"\0" in name:  # where it would end for the kernel
        raise ValueError("embedded null byte")
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(_SYS_OPENAT2, directory, name, ctypes.byref(how), ctypes.sizeof(how))
    return int(found) if found >= 0 else -ctypes.get_errno()


@cache
def _kernel_has_openat2() -> bool:
    how = _OpenHow(flags=os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, resolve=_NO_MAGICLINKS)
    found = _openat2(-1, PurePath("/"), how)
    if found >= 0:
        os.close(found)
    return -found not in _MISSING


def _walked(directory: int, path: PurePath, flags: int, mode: int) -> int:
    """The same one component at a time, for kernels without `openat2`."""
    here = os.dup(directory)
    try:
        for name in path.parts[:-1]:
            above, here = (
                here,
                os.open(
                    name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here
                ),
            )
            os.close(above)
        return os.open(path.parts[-1] if path.parts else ".", flags, mode, dir_fd=here)
    finally:
        os.close(here)
