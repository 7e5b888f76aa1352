"""The build context of an image: its Dockerfile and its wheels, as one tar file."""

import io
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO


def build_context(dockerfile: str, wheels: Iterable[Path]) -> IO[bytes]:
    """An open, unnamed file at its beginning; the caller closes it.

    Owners, modes and times of the Dockerfile are fixed, so that equal input gives
    equal layers.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - handed to the caller
    try:
        with tarfile.open(fileobj=file, mode="w") as tar:
            entry = tarfile.TarInfo("Dockerfile")
            text = dockerfile.encode()
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
            for wheel in sorted(wheels):
                tar.add(wheel.resolve(), f"wheels/{wheel.name}", filter=_anonymous)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry
