"""Guests that a runner in a container has started beside itself, and the engine's command line."""

import json
import subprocess
from pathlib import Path
from typing import Any


def docker(*words: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"docker {words}: {done.stderr}"
    return done.stdout


def containers(home: Path, *, ended: bool = False) -> list[dict[str, Any]]:
    """What the engine tells of each container that has a mount below `home`; with `ended`, also of
    those that do not run."""
    found = []
    for each in docker("ps", "--quiet", *(["--all"] if ended else [])).split():
        for seen in json.loads(docker("inspect", each, check=False)):  # another test's may be gone
            if any(mount["Source"].startswith(f"{home}/") for mount in seen["Mounts"]):
                found.append(seen)
    return found


def role_of(container: dict[str, Any]) -> str:
    """The role of a guest; empty for a container that is none."""
    return str(container["Config"]["Labels"].get("oxydra.role", ""))


def guests(home: Path) -> list[str]:
    """Names of containers that have a mount below `home`, but for the runner's own."""
    return sorted(
        each["Name"].removeprefix("/")
        for each in containers(home, ended=True)
        if role_of(each) != "runner"
    )
