"""Names of the images, and where their Dockerfiles are."""

import sys
from enum import StrEnum
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.errors import TierError

OFFICIAL_BASE: Final = f"python:3.{sys.version_info.minor}-slim-bookworm"
"""Has the Python version of the host, because that one makes the wheels."""


class ImageRole(StrEnum):
    AGENT = "agent"
    SHELL = "shell"
    SHELL_POD = "shell-pod"
    """The shell's image for pods; built only when named."""
    EGRESS = "egress"
    EMBEDDER = "embedder"
    RUNNER = "runner"
    """For deploy/compose only; built only when named."""


USUAL_ROLES: Final = (ImageRole.AGENT, ImageRole.SHELL, ImageRole.EGRESS, ImageRole.EMBEDDER)
"""The images that every host with guests in containers needs."""


def image_name(images: str, role: ImageRole) -> str:
    """The name that drivers look for, with the version; `images`: `container.images`."""
    return f"{images}-{role}:{installed_version('oxydra')}"


def checkout() -> Path | None:
    """The source tree that this program runs from; None if it was installed from a wheel."""
    root = Path(__file__).parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "deploy").is_dir() else None


def _place(role: ImageRole) -> Path:
    """What a role's image is made from, in the source tree or the installed package."""
    root = checkout()
    return (root / "deploy/images" if root else Path(__file__).with_name("deploy")) / role


def requirements(role: ImageRole, *, any_model: bool = False) -> Path:
    """The exact versions and hashes of what is in a role's image; with `any_model`, in an embedder
    that takes other models than the default one."""
    any_model = any_model and role is ImageRole.EMBEDDER
    role = ImageRole.SHELL if role is ImageRole.SHELL_POD else role
    return _place(role) / ("any-model.txt" if any_model else "requirements.txt")


def dockerfile(role: ImageRole) -> str:
    """The text of a role's Dockerfile, from the source tree or the installed package.

    Raises `TierError` (INTERNAL) if neither has it.
    """
    try:
        return (_place(role) / "Dockerfile").read_text()
    except OSError as error:
        raise TierError(
            Code.INTERNAL,
            f"the {role} image's Dockerfile is missing",
            details=str(error),
            resolution="install oxydra again",
        ) from None
