"""A place for workspaces while a part runs."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory with a short path, for sockets, that guests of another uid can enter.

    It is removed at the end, with the files that guests own.
    """
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxb-"))
    root.chmod(0o711)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
