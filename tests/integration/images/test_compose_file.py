"""deploy/compose, brought up with the real engine: the runner in a container starts a user's
pair, knows a secret that nobody can read from outside, and takes everything along.

The compose plugin is no part of every engine, so the service is handed to `docker run`.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.guests.siblings import docker, guests
from tests.support.scratch import SCRATCH

pytestmark = [pytest.mark.docker, pytest.mark.root]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
IMAGES = os.environ.get("TESTS_IMAGES", "oxydra")
SECRET = "sk-compose-secret-0123456789"
LIMIT_S = 240.0


def as_run_options(service: dict[str, Any], home: Path) -> list[str]:
    """The service as options of `docker run`, with `home` for /var/lib/oxydra. Fails for
    a key it does not know, so that none is forgotten."""
    made = []
    for key, value in service.items():
        match key:
            case "command" | "image" | "restart" | "stop_grace_period":
                continue
            case "user" | "pid":
                made.append(f"--{key}={value}")
            case "network_mode":
                made.append(f"--network={value}")
            case "read_only" | "init":
                made.append(f"--{key.replace('_', '-')}")
            case "cap_drop" | "cap_add" | "security_opt" | "tmpfs":
                made += [f"--{key.replace('_', '-')}={each}" for each in value]
            case "environment":
                made += [f"--env={name}={_filled(text)}" for name, text in value.items()]
            case "volumes":
                moved = [each.replace("/var/lib/oxydra", str(home)) for each in value]
                made += [f"--volume={each.replace('../', f'{home}/')}" for each in moved]
            case _:
                raise AssertionError(f"no translation of {key}")
    return made


def _filled(text: str) -> str:
    return text.replace("${OXYDRA_IMAGES:-oxydra}", IMAGES)


@pytest.fixture
def home() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="oxc-", dir=SCRATCH))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def composed(home: Path) -> Iterator[str]:
    """The name of the runner's container."""
    settings = (DEPLOY / "runner.toml").read_text().replace("/var/lib/oxydra", str(home))
    settings += (
        '[embedder]\nbackend = "hashing"\n[agent]\nprovider = "openai"\nmodel = "none"\n'
        'base_url = "http://127.0.0.1:9"\napi_key_env = "MODEL_KEY"\n'
    )
    (home / "runner.toml").write_text(settings)
    (home / "MODEL_KEY").write_text(f"{SECRET}\n")
    service = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]["runner"]
    name = f"oxydra-compose-test-{os.getpid()}"
    docker(
        *("run", "--detach", "--name", name, *as_run_options(service, home)),
        f"--volume={home}/MODEL_KEY:/run/secrets/MODEL_KEY:ro",
        f"{IMAGES}-runner:{version('oxydra')}",
        *(word.replace("$$", "$") for word in service["command"]),
    )
    try:
        yield name
    finally:
        docker("stop", "--time", "90", name, check=False)
        for left in guests(home):
            docker("rm", "--force", left, check=False)
        docker("rm", "--force", name, check=False)


def status(name: str) -> dict[str, Any]:
    said = docker("exec", name, "runner", "--user", "default", "status", "--json", check=False)
    found: dict[str, Any] = json.loads(said) if said.startswith("{") else {}
    return found


def test_a_pair_comes_up_with_its_secret_and_goes_with_the_runner(
    composed: str, home: Path
) -> None:
    until = time.monotonic() + LIMIT_S
    while {
        guest["state"]
        for guest in status(composed).get("guests", [])
        if guest["state"] != "disabled"  # nothing is let out for commands
    } != {"ready"}:
        assert time.monotonic() < until, (status(composed), docker("logs", composed))
        time.sleep(0.5)
    running = guests(home)
    assert len(running) == 4, running
    for each in (composed, *running):
        assert SECRET not in docker("inspect", each)
    docker("stop", "--time", "90", composed)
    assert guests(home) == []
    assert json.loads(docker("inspect", composed))[0]["State"]["ExitCode"] == 0
