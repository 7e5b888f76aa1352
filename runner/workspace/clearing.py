"""Makes room for a socket or a log, whatever stands in its place."""

import logging
import os
import secrets
import stat
from pathlib import Path

from runner.workspace.beneath import directory_beneath

log = logging.getLogger(__name__)


def clear(path: Path, home: Path) -> str:
    """Free the place `path`, which lies in `home`.

    A directory is moved aside, not emptied, so its size does not matter. Links are not followed.
    Returns what was moved where, in words, or "". Idempotent. Raises `OSError`.
    """
    try:
        with directory_beneath(home, path.parent) as directory:
            return clear_in(directory, path)
    except FileNotFoundError:
        return ""


def clear_unless_file(path: Path, home: Path) -> str:
    """Free the place `path` unless it holds a plain file; otherwise like `clear`."""
    try:
        with directory_beneath(home, path.parent) as directory:
            return clear_in(directory, path, keep_file=True)
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
