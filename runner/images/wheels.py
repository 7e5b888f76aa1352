"""The wheels that go into an image, with that of this program itself. They are made on the host, so
that a build needs no package index, and no image contains an index or credentials."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.config.tiers import extras_of_tiers
from runner.errors import TierError, file_errors
from runner.images.naming import ImageRole, checkout, requirements

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


TORCH: Final = "2.13.0"
_CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
EXTRAS: Final[dict[ImageRole, str]] = {
    ImageRole.AGENT: "guest,remote,providers,mcp",
    ImageRole.SHELL: "shell,reader,shell-image",
    ImageRole.SHELL_POD: "shell,reader,shell-image",
    ImageRole.EGRESS: "egress",
    ImageRole.EMBEDDER: "embedder,multilingual",
    ImageRole.RUNNER: ",".join(("runner", "serve", "notices", *extras_of_tiers())),
}
ANY_MODEL: Final = "sentence-transformers"
"""The extra with which the embedder's image takes other models than the default one."""
_LAST_LINES: Final = 20


class Pip:
    """pip of this Python. Where there is none, as in the environments of uv, it is put into a
    virtual environment below `scratch`."""

    def __init__(self, scratch: Path) -> None:
        self._python = sys.executable
        if find_spec("pip") is None:
            venv.create(scratch / "pip", with_pip=True)
            self._python = str(scratch / "pip/bin/python")

    def wheel(self, directory: Path, *wanted: str) -> None:
        """Put the wheels of `wanted` into `directory`. Raises `TierError` with pip's last lines."""
        pip = [self._python, "-P", "-m", "pip", "--disable-pip-version-check"]
        run_program(
            [*pip, "wheel", "--wheel-dir", str(directory), *wanted],
            "the wheels for an image cannot be made",
            "check the network, or give the wheels: runner images build --wheelhouse DIR",
        )


def own_wheel(pip: Pip, directory: Path) -> Path:
    """Make this program's own wheel in `directory`: from the source tree, or else from what is
    installed. An index is not asked, where somebody else could own its name.

    Raises `TierError`.
    """
    if (root := checkout()) is None:
        return packed_again(directory)
    pip.wheel(directory, "--no-deps", str(root))
    return _own_in(directory)


def collect(
    pip: Pip, roles: Collection[ImageRole], own: Path, directory: Path, *, any_model: bool = False
) -> list[Path]:
    """Put `own` and the wheels of everything that `roles` need into `directory`; with `any_model`,
    also what the embedder needs for other models than the default one.

    Each file of an index or of pip's cache is one whose hash is known, but for PyTorch's.
    """
    if any_model and ImageRole.EMBEDDER in roles:
        torch = f"torch=={TORCH}+cpu"
        try:
            pip.wheel(directory, "--no-deps", torch)
        except TierError:  # not in the usual index; PyTorch's gives this one alone
            pip.wheel(directory, "--no-deps", torch, "--index-url", _CPU_INDEX)
    files = {str(requirements(role, any_model=any_model)) for role in roles}
    known = chain.from_iterable(("--requirement", each) for each in sorted(files))
    pip.wheel(directory, "--no-deps", "--require-hashes", *known)
    shutil.copy(own, directory)
    return sorted(directory.glob("*.whl"))


def given(directory: Path) -> list[Path]:
    """The wheels in a directory that the operator has prepared.

    Raises `TierError` (FAILED_PRECONDITION) if the wheel of this version is missing.
    """
    own = _own_in(directory)
    others = [wheel for wheel in directory.glob("*.whl") if not wheel.name.startswith("oxydra-")]
    return sorted([own, *others])


def _own_in(directory: Path) -> Path:
    version = installed_version("oxydra")
    found = sorted(directory.glob(f"oxydra-{version}-*.whl"))
    if not found:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"no wheel of oxydra {version} in {directory}",
            details="images carry the version of the runner that starts them",
            resolution=f"where a package index can be reached: runner images wheels {directory}",
        )
    return found[0]


def run_program(command: Sequence[str], brief: str, resolution: str) -> None:
    """Run a program to its end. Raises `TierError` (INTERNAL) with its last lines if it fails."""
    done = subprocess.run(  # noqa: S603 - our own words, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        details = "\n    ".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        raise TierError(Code.INTERNAL, brief, details=details, resolution=resolution)
