"""Guests of the container tier for tests: the project's images with the stand-in guest in them."""

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import docker as docker_sdk
import pytest
from wire.settings import ContainerSettings

from runner.images.naming import USUAL_ROLES, ImageRole
from runner.tiers.container.names import LABEL_WORKSPACE, ObjectNames
from runner.workspace.directories import Owner

IMAGES = "oxydra-standin"
GUEST_UID = 10_001
_STANDIN = Path(__file__).with_name("standin_guest.py")
_INSIDE = "/opt/standin_guest.py"
_CLASSIC_BUILDER = {**os.environ, "DOCKER_BUILDKIT": "0"}


def bridge_address() -> str:
    """The engine's host as its containers see it."""
    shown = subprocess.run(
        ["docker", "network", "inspect", "bridge"], capture_output=True, check=True
    )
    subnet = ipaddress.ip_network(json.loads(shown.stdout)[0]["IPAM"]["Config"][0]["Subnet"])
    return str(next(iter(subnet.hosts())))


def owner() -> Owner:
    """To whom the workspaces of container guests belong here."""
    if os.geteuid() != 0:
        return Owner.ours()
    return Owner(GUEST_UID, GUEST_UID, frozenset({0, GUEST_UID}))


def docker(*words: str) -> str:
    """What the engine's command says; it must succeed."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}\n{done.stderr}"
    return done.stdout.strip()


def engine_objects(root: Path) -> list[str]:
    """Containers that mount something below `root`, and networks of workspaces there."""
    found = []
    with contextlib.closing(docker_sdk.from_env()) as client:
        for container in client.api.containers(all=True):
            sources = [Path(mount.get("Source", "/")) for mount in container["Mounts"]]
            if any(source.is_relative_to(root) for source in sources):
                found.append(container["Names"][0])
        workspaces = {ObjectNames.of("", path).digest for path in (root / "w").glob("*")}
        for network in client.api.networks():
            if (network["Labels"] or {}).get(LABEL_WORKSPACE) in workspaces:
                found.append(network["Name"])
    return found


def command_inside(behaviour: str) -> tuple[str, ...]:
    """The stand-in guest in its image; see `standin_guest` for the behaviours."""
    return ("/opt/oxydra/bin/python", "-P", _INSIDE, behaviour)


@cache
def standin_images() -> ContainerSettings:
    """Settings whose images hold the stand-in guest; built once."""
    for role in (*USUAL_ROLES, ImageRole.SHELL_POD):
        base = f"oxydra-{role}:{version('oxydra')}"
        known = subprocess.run(["docker", "image", "inspect", base], capture_output=True)
        if known.returncode != 0:
            pytest.fail(f"no image {base}: runner images build")
        with tempfile.TemporaryDirectory() as context:
            shutil.copy(_STANDIN, context)
            steps = f"FROM {base}\nCOPY {_STANDIN.name} {_INSIDE}\n"
            Path(context, "Dockerfile").write_text(steps)
            Path(context, _STANDIN.name).chmod(0o644)
            name = f"{IMAGES}-{role}:{version('oxydra')}"
            build = ["docker", "build", "--quiet", "--tag", name, context]
            done = subprocess.run(build, capture_output=True, text=True, env=_CLASSIC_BUILDER)
            assert done.returncode == 0, done.stderr
    return ContainerSettings(images=IMAGES)
