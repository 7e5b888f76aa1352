"""The image of the memory server that deploy/compose describes, built once."""

import os
import subprocess
from functools import cache
from pathlib import Path

from runner.images.bootstrap import RELEASE
from tests.support.servers import sqld

COMPOSE = Path(__file__).parents[3] / "deploy/compose"
NAME = "oxydra-sqld-test"


@cache
def build() -> str:
    command = ["docker", "build", "--quiet", "--tag", NAME]
    command += ["--build-arg", f"BASE_IMAGE=oxydra-base:{RELEASE}"]
    command += ["--file", str(COMPOSE / "sqld.Dockerfile"), str(sqld.BINARY.parent)]
    classic = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=classic)
    assert done.returncode == 0, done.stderr
    return NAME
