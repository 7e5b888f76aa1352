"""The wheel of this program itself, from its source tree or from its installed files."""

import base64
import hashlib
import os
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from runner.errors import TierError, file_errors

_TIME: Final = (2020, 2, 2, 0, 0, 0)
_METADATA: Final = ("METADATA", "WHEEL", "entry_points.txt", "licenses")
"""What belongs to the wheel in the directory of metadata; an installer has added the rest."""


def packed_again(directory: Path) -> Path:
    """Make the wheel in `directory` again from the files that were installed from one.

    The same files always give the same wheel, and so the same images. Raises `TierError`
    (FAILED_PRECONDITION) if a file is missing.
    """
    distribution = metadata.distribution("oxydra")
    name = f"oxydra-{distribution.version}"
    wheel = directory / f"{name}-py3-none-any.whl"
    record = f"{name}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, source in sorted(_members(distribution, name)):
            with file_errors(
                "a file of this installation is missing",
                "install oxydra again",
                because=f"{source}: ",
                kind=TierError,
            ):
                content = source.read_bytes()
                executable = os.access(source, os.X_OK)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{path},sha256={digest.decode()},{len(content)}\n")
            archive.writestr(_entry(path, executable=executable), content)
        archive.writestr(_entry(record), "".join([*lines, f"{record},,\n"]))
    return wheel


def _members(distribution: metadata.Distribution, name: str) -> Iterator[tuple[str, Path]]:
    """Each file's path in the wheel, and where it is installed. Programs are left out: an installer
    writes them from entry_points.txt."""
    information, data = f"{name}.dist-info", f"{name}.data/data"
    for file in distribution.files or ():
        source = Path(os.path.normpath(str(distribution.locate_file(file))))
        if file.parts[0] == "..":
            below = Path(*(part for part in file.parts if part != ".."))
            if below.parts[0] == "share":
                yield f"{data}/{below}", source
        elif file.suffix == ".pyc":
            continue
        elif file.parts[0] != information or file.parts[1] in _METADATA:
            yield str(file), source


def _entry(path: str, *, executable: bool = False) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(path, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    return entry
