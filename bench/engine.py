"""The container engine of this machine, for the parts that measure against it."""

import asyncio
import os
import shutil
import subprocess
from typing import Final

from wire.errors import WireError
from wire.settings import ContainerSettings

from runner.config.tiers import TierName
from runner.images.archive import Image, list_images
from runner.tiers.container.engine import Engine, find_socket, judge

SETTINGS: Final = ContainerSettings(runtime="runsc")
"""The container tier's, and the micro_vm tier's on gVisor's kernel."""


async def missing(tier: TierName = "container") -> str:
    """Why guests of a tier of containers cannot be measured here, in one line; empty if they
    can."""
    try:
        return await asyncio.to_thread(_missing, SETTINGS.runtime if tier == "micro_vm" else None)
    except WireError as error:
        return f"{error.brief} ({error.resolution})"


def images() -> list[Image]:
    """The images of this version. Blocks; raises `WireError` without an engine."""
    with Engine(SETTINGS.engine).client() as client:
        return list_images(client, SETTINGS.images)


def docker(*arguments: str) -> None:
    """Run the docker command against the engine that the runner uses. Blocks.

    Raises `CalledProcessError`.
    """
    environment = {**os.environ, "DOCKER_HOST": f"unix://{find_socket(SETTINGS.engine)}"}
    subprocess.run(["docker", *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)


def _missing(runtime: str | None) -> str:
    judge(Engine(SETTINGS.engine).facts(), runtime)
    if absent := [each.name for each in images() if each.image_id is None]:
        return f"there is no image {absent[0]} (runner images build)"
    if shutil.which("docker") is None:
        return "the docker command, which is the yardstick, is not installed"
    return ""
