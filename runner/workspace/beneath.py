"""Opens paths beneath a directory and never outside it, so that nobody who may rename or replace
what lies below that directory can lead the runner elsewhere; and makes way there for a socket or a
log, whatever stands in its place."""

import errno
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath

from wire.disk import held
from wire.kernel.beneath import Beneath, PathEscapeError, best_beneath


def open_beneath(directory: int, path: PurePath, flags: int, mode: int = 0o600) -> int:
    """Open the relative `path` beneath an open directory; no part of it may be a symbolic link.

    Args and what is raised are those of `os.open`, also where the path holds NUL. A link is ELOOP,
    or ENOTDIR where a directory is asked for.
    """
    if path.is_absolute() or ".." in path.parts:
        raise OSError(errno.EXDEV, "it leads out of its directory", str(path))
    try:
        return _without_links().open(directory, str(path), flags | os.O_NOFOLLOW, mode)
    except PathEscapeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def status_beneath(directory: int, path: PurePath, flags: int = 0) -> os.stat_result:
    """The status of what is there, opened as a place. Raises `OSError` as `open_beneath`."""
    with held(open_beneath(directory, path, os.O_PATH | flags)) as place:
        return os.fstat(place)


@cache
def _without_links() -> Beneath:
    return best_beneath(links=False)


@contextmanager
def directory_beneath(home: Path, path: Path) -> Iterator[int]:
    """A descriptor of the directory `path`, which lies in `home`, for use as `dir_fd`.

    `home` is a directory that only the runner can replace, such as a workspace. Raises `OSError`.
    """
    flags = os.O_PATH | os.O_DIRECTORY
    with held(os.open(home, flags | os.O_NOFOLLOW | os.O_CLOEXEC)) as anchor:
        found = open_beneath(anchor, path.relative_to(home), flags)
    with held(found):
        yield found


log = logging.getLogger(__name__)


def clear(path: Path, home: Path, *, keep_file: bool = False) -> str:
    """Free the place `path`, which lies in `home`; with `keep_file` unless it holds a plain file.

    A directory is moved aside, not emptied, so its size does not matter. Links are not followed.
    Returns what was moved where, in words, or "". Idempotent. Raises `OSError`.
    """
    try:
        with directory_beneath(home, path.parent) as directory:
            return clear_in(directory, path, keep_file=keep_file)
    except FileNotFoundError:
        return ""


def clear_in(directory: int, path: Path, *, keep_file: bool = False) -> str:
    """The same where the directory of `path` is open already."""
    try:
        found = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if keep_file and stat.S_ISREG(found.st_mode):
            return ""
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(path.name, dir_fd=directory)
            return ""
        aside = f"{path.name}.aside-{secrets.token_hex(4)}"
        os.rename(path.name, aside, src_dir_fd=directory, dst_dir_fd=directory)
    except FileNotFoundError:
        return ""
    notice = f"{path} was a directory; it was moved aside to {path.with_name(aside)}"
    log.warning("%s", notice)
    return notice
