"""The images of all three guests with this checkout's programs in them."""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.support.guests.engine import GUEST_UID

_PREFIX: Final = "oxydra-internet-test"
_REPOSITORY: Final = Path(__file__).parents[3]
_PROGRAMS: Final = {
    "agent": ("guest",),
    "shell": ("shell_daemon", "reader"),
    "egress": ("egress",),
}
_SITE: Final = "/opt/oxydra/lib/python3.11/site-packages"
_CLASSIC_BUILDER = {**os.environ, "DOCKER_BUILDKIT": "0"}


@cache
def images_of_this_checkout() -> str:
    """What the settings call them; built once."""
    for role, programs in _PROGRAMS.items():
        base = f"oxydra-{role}:{version('oxydra')}"
        known = subprocess.run(["docker", "image", "inspect", base], capture_output=True)
        if known.returncode != 0:
            pytest.fail(f"no image {base}: runner images build")
        with tempfile.TemporaryDirectory() as context:
            for directory, name in (*zip(programs, programs, strict=True), ("proto/wire", "wire")):
                shutil.copytree(
                    _REPOSITORY / directory,
                    Path(context, "new", name),
                    ignore=shutil.ignore_patterns("__pycache__"),
                )
            steps = (
                f"FROM {base}",
                "USER 0",
                f"RUN cd {_SITE} && rm -rf {' '.join(programs)} wire",
                f"COPY new {_SITE}",
                f"USER {GUEST_UID}",
            )
            Path(context, "Dockerfile").write_text("\n".join(steps))
            name = f"{_PREFIX}-{role}:{version('oxydra')}"
            build = ["docker", "build", "--quiet", "--tag", name, context]
            done = subprocess.run(build, capture_output=True, text=True, env=_CLASSIC_BUILDER)
            assert done.returncode == 0, done.stderr
    return _PREFIX
