"""Guests that a runner in a container has started beside itself, and the engine's command line."""

import json
import subprocess
from pathlib import Path


def docker(*words: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"docker {words}: {done.stderr}"
    return done.stdout


def guests(home: Path) -> list[str]:
    """Names of containers that have a mount below `home`, but for the runner's own."""
    found = []
    for each in docker("ps", "--all", "--quiet").split():
        try:
            seen = json.loads(docker("inspect", each))[0]
        except AssertionError:  # another test's, gone meanwhile
            continue
        if seen["Config"]["Labels"].get("oxydra.role") == "runner":
            continue
        if any(mount["Source"].startswith(f"{home}/") for mount in seen["Mounts"]):
            found.append(seen["Name"].removeprefix("/"))
    return sorted(found)
