"""A place for workspaces while a part runs."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory with a short path, because sockets live there, that guests of another uid
    can pass. What they own in it goes too."""
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxb-"))
    root.chmod(0o711)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
