"""A base image made from Debian's packages, for hosts without a registry."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import docker
from wire.errors import Code

from runner.errors import TierError
from runner.images.archive import inspected
from runner.images.wheels import run_program

RELEASE: Final = "bookworm"
PYTHON: Final = (3, 11)
"""The Python of that release."""
BASE_NAME: Final = f"oxydra-base:{RELEASE}"
_MIRROR: Final = "http://deb.debian.org/debian"
"""The base's own packages are installed from here; apt checks their signatures."""
_SECURITY: Final = "http://deb.debian.org/debian-security"
_PACKAGES: Final = "python3,python3-venv,ca-certificates"
_TLS_TRY_S: Final = 20.0
_SURPLUS: Final = (
    "var/cache/apt/*",
    "var/lib/apt/lists/*",
    "var/log/*.log",
    "usr/share/doc/*/*[!t]",
    "usr/share/info/*",
    "usr/share/man/*",
    "usr/share/locale/*",
)


@dataclass(frozen=True)
class Archive:
    """Where packages come from. They must be signed by a key of `keyring`; they are fetched from
    `mirror`, or from `without_tls` where that cannot be reached."""

    mirror: str
    without_tls: str
    keyring: Path


DEBIAN: Final = Archive(
    mirror="https://deb.debian.org/debian",
    without_tls=_MIRROR,
    keyring=Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
)


def bootstrap_base(
    engine: docker.APIClient,
    say: Callable[[str], None],
    *,
    own_wheels: bool = True,
    archive: Archive = DEBIAN,
) -> str:
    """Make a base image with debootstrap, unless it exists. Returns its name.

    `say` receives progress messages; `own_wheels`: wheels of this Python will be installed in it.
    Raises `TierError`: PERMISSION_DENIED without root, FAILED_PRECONDITION without debootstrap,
    without what checks signatures or if the wheels would not fit, INTERNAL with debootstrap's last
    lines if it fails, which it does where a signature is not right.
    """
    if own_wheels and sys.version_info[:2] != PYTHON:
        have, want = (".".join(map(str, pair)) for pair in (sys.version_info[:2], PYTHON))
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"wheels of Python {have} do not fit Debian {RELEASE}, which has {want}",
            resolution=f"run the runner with Python {want}, or give wheels for {want}: "
            "runner images build --bootstrap-base --wheelhouse DIR",
        )
    if inspected(engine, BASE_NAME) is not None:
        say(f"{BASE_NAME} exists already")
        return BASE_NAME
    _check(archive.keyring)
    with tempfile.TemporaryDirectory(prefix="oxydra-base-") as scratch:
        root = Path(scratch) / "root"
        say(f"debootstrap of Debian {RELEASE}; about a minute")
        _debootstrap(root, archive, say)
        _slim(root)
        say("importing it")
        _import(engine, root)
    return BASE_NAME


def _check(keyring: Path) -> None:
    again = "runner images build --bootstrap-base"
    if os.geteuid() != 0:
        raise TierError(
            Code.PERMISSION_DENIED,
            "only root can bootstrap a base image",
            details="debootstrap makes device nodes and changes its root directory",
            resolution=f"sudo {again}",
        )
    if shutil.which("debootstrap") is None:
        raise TierError(
            Code.FAILED_PRECONDITION,
            "debootstrap is not installed",
            resolution=f"apt-get install debootstrap && {again}",
        )
    if not keyring.is_file() or shutil.which("gpgv") is None:
        raise TierError(
            Code.FAILED_PRECONDITION,
            "the signatures of Debian's packages cannot be checked",
            details=f"{keyring} or the program gpgv is missing",
            resolution=f"apt-get install debian-archive-keyring gpgv && {again}",
        )


def _debootstrap(root: Path, archive: Archive, say: Callable[[str], None]) -> None:
    mirror = archive.mirror
    if not _reached(f"{mirror}/dists/{RELEASE}/InRelease"):
        mirror = archive.without_tls
        say(f"{archive.mirror} cannot be reached; from {mirror}, with signatures checked too")
    command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}"]
    command += ["--force-check-gpg", f"--keyring={archive.keyring}"]
    run_program(
        [*command, RELEASE, str(root), mirror],
        "debootstrap failed",
        f"check that {mirror} can be reached, that it is Debian's and that there is free space",
    )


def _reached(url: str) -> bool:
    try:
        with urlopen(url, timeout=_TLS_TRY_S):  # noqa: S310 - a constant
            return True
    except OSError:
        return False


def _slim(root: Path) -> None:
    """Remove what no image needs, except licences, and configure the security archive."""
    for pattern in _SURPLUS:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    (root / "etc/apt/sources.list").write_text(
        f"deb {_MIRROR} {RELEASE} main\n"
        f"deb {_MIRROR} {RELEASE}-updates main\n"
        f"deb {_SECURITY} {RELEASE}-security main\n"
    )


def _import(engine: docker.APIClient, root: Path) -> None:
    packed = root.with_name("root.tar")
    run_program(
        ["tar", "--numeric-owner", "-C", str(root), "-cf", str(packed), "."],
        "the base image cannot be packed",
        "make room in the directory for temporary files",
    )
    repository, tag = BASE_NAME.split(":")
    engine.import_image_from_file(str(packed), repository=repository, tag=tag)
    engine.tag(BASE_NAME, repository, "latest")
