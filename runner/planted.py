"""What a guest may have put in the place of a socket or of its own log."""

import secrets
import stat
from pathlib import Path


def clear(path: Path) -> None:
    """Make `path` free. A directory, however full or deep, is moved aside, not emptied; links
    are not followed. Idempotent."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # which one depends on the system
        path.rename(path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))


def clear_unless_file(path: Path) -> None:
    """Make `path` free where something else than a plain file stands. Links are not followed."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            clear(path)
    except FileNotFoundError:
        return
