"""The images that deploy/compose describes for memory servers and their proxy, built once."""

import os
import subprocess
from functools import cache
from pathlib import Path

from runner.images.bootstrap import RELEASE
from tests.support.servers import sqld

COMPOSE = Path(__file__).parents[3] / "deploy/compose"


@cache
def build() -> str:
    return _built("oxydra-sqld-test", "sqld.Dockerfile", sqld.BINARY.parent)


def digest() -> str:
    """The same image, by what no tag can move."""
    command = ["docker", "image", "inspect", "--format", "{{.Id}}", build()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@cache
def build_proxy() -> str:
    return _built("oxydra-memory-proxy-test", "proxy.Dockerfile", COMPOSE, "--network", "host")


def _built(name: str, dockerfile: str, context: Path, *options: str) -> str:
    command = ["docker", "build", "--quiet", "--tag", name, *options]
    command += ["--build-arg", f"BASE_IMAGE=oxydra-base:{RELEASE}"]
    command += ["--file", str(COMPOSE / dockerfile), str(context)]
    classic = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=classic)
    assert done.returncode == 0, done.stderr
    return name
