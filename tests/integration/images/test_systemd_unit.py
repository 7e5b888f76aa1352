"""deploy/systemd, by the commands that the unit's own head gives: in a container with systemd as
its first process and the wheel installed, the service brings up a user's pair, and stops it in
order.

The engine is that of the host, which mounts /var/lib/oxydra by its path there.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.guests.siblings import docker, guests

pytestmark = [pytest.mark.docker, pytest.mark.root]

UNIT: Final = Path(__file__).resolve().parents[3] / "deploy/systemd/oxydra.service"
IMAGES: Final = os.environ.get("TESTS_IMAGES", "oxydra")
HOME: Final = Path("/var/lib/oxydra")
LIMIT_S: Final = 240.0
CGROUPS: Final = "/sys/fs/cgroup"

DOCKERFILE: Final = f"""
FROM {IMAGES}-runner:{version("oxydra")}
USER root
RUN apt-get update -qq \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends systemd
CMD ["/lib/systemd/systemd"]
"""
SETTINGS: Final = f"OXYDRA_CONTAINER__IMAGES={IMAGES}\nOXYDRA_EMBEDDER__BACKEND=hashing\n"


def recipe() -> list[str]:
    """What the unit's head tells an operator to do, when the wheel and the images are there."""
    lines = re.findall(r"^#   (.+)$", UNIT.read_text(), re.MULTILINE)
    done_by_the_image = ("python3 -m venv", "/opt/oxydra/bin/pip", "/opt/oxydra/bin/runner images")
    return [line for line in lines if not line.startswith(done_by_the_image)]


@pytest.fixture
def machine() -> Iterator[str]:
    """The name of a container with systemd, and with nothing of ours but the wheel."""
    assert not HOME.exists(), f"{HOME} exists: a service runs on this machine, or a test was killed"
    name = f"oxydra-systemd-test-{os.getpid()}"
    subprocess.run(
        ["docker", "build", "--quiet", "--network", "host", "--tag", name, "-"],
        input=DOCKERFILE.encode(),
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        check=True,
    )
    named = Path(CGROUPS, "systemd")
    writable = named if named.exists() else Path(CGROUPS)
    try:
        HOME.mkdir()
        docker(
            *("run", "--detach", "--name", name, "--network", "none", "--cgroupns", "host"),
            *("--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined"),
            *("--security-opt", "apparmor=unconfined", "--env", "container=docker"),
            *("--tmpfs", "/run", "--tmpfs", "/tmp", f"--volume={CGROUPS}:{CGROUPS}:ro"),
            *(f"--volume={writable}:{writable}", f"--volume={HOME}:{HOME}"),
            *("--volume=/var/run/docker.sock:/var/run/docker.sock", name),
        )
        yield name
    finally:
        docker("rm", "--force", "--volumes", name, check=False)
        for left in guests(HOME):
            docker("rm", "--force", left, check=False)
        docker("rmi", "--force", name, check=False)
        shutil.rmtree(HOME)


def systemctl(machine: str, *words: str) -> str:
    return docker("exec", machine, "systemctl", *words, check=False).strip()


def journal(machine: str) -> str:
    return docker("exec", machine, "journalctl", "--no-pager", "--unit", "oxydra", check=False)


def status(machine: str) -> dict[str, Any]:
    said = docker(
        *("exec", machine, "/opt/oxydra/bin/runner", "--config", "/etc/oxydra/runner.toml"),
        *("status", "--json"),
        check=False,
    )
    found: dict[str, Any] = json.loads(said) if said.startswith("{") else {}
    return found


def test_the_recipe_brings_up_an_agent_that_remembers_and_stops_it_in_order(machine: str) -> None:
    until = time.monotonic() + LIMIT_S
    while systemctl(machine, "is-system-running") not in ("running", "degraded"):
        assert time.monotonic() < until, systemctl(machine, "list-jobs")
        time.sleep(0.1)
    *steps, chat = recipe()
    prepare = f"install -d /etc/oxydra && printf '{SETTINGS}' >/etc/oxydra/environment"
    docker("exec", machine, "sh", "-euxc", "\n".join([prepare, *steps]))

    while {guest["state"] for guest in status(machine).get("guests", [])} != {"ready", "disabled"}:
        assert time.monotonic() < until, (status(machine), journal(machine))
        time.sleep(0.2)
    assert status(machine)["boundary"]["passed"] is True
    assert systemctl(machine, "show", "oxydra", "--property=NRestarts") == "NRestarts=0"
    turn = f"echo 'remember that tea is at five' | {chat}"
    assert "✓ saved" in docker("exec", machine, "sh", "-c", turn)
    assert len(guests(HOME)) == 3

    systemctl(machine, "stop", "oxydra")
    ended = systemctl(machine, "show", "oxydra", "--property=Result,ExecMainStatus,ActiveState")
    assert sorted(ended.split()) == ["ActiveState=inactive", "ExecMainStatus=0", "Result=success"]
    assert "default: stopped" in journal(machine)
    assert guests(HOME) == []
    assert status(machine)["running"] is False
