"""Removing containers, and making room for a name."""

import contextlib
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import docker
import docker.errors
import requests
from wire.errors import Code

from runner.errors import TierError
from runner.tiers.container_names import LABEL_LAUNCH, Place

_PATIENCE_S: Final = 45.0
_PAUSE_S: Final = 0.1
_SETTLED: Final = timedelta(minutes=1)
"""A runner that lives removes its guests within moments."""


def remove(client: docker.APIClient, container: str) -> None:
    """Kill and remove it with its anonymous volumes; returns when it is gone.

    Raises `TierError` where the engine does not get it done.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            client.remove_container(container, v=True, force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:  # its removal is under way
                raise
            time.sleep(_PAUSE_S)
    raise TierError(
        Code.UNAVAILABLE,
        f"the container {container[:12]} does not go away",
        details=f"the engine has been removing it for {_PATIENCE_S:g} s",
        resolution=f"docker rm --force {container[:12]}",
    )


def sweep_ended(client: docker.APIClient) -> None:
    """Remove the guests of every place that ended a while ago and are still there: their
    runner was killed, and where its workspace is gone too no other start would find them."""
    latest = datetime.now(UTC) - _SETTLED
    for found in client.containers(all=True, filters={"label": LABEL_LAUNCH, "status": "exited"}):
        with contextlib.suppress(docker.errors.NotFound):
            ended = client.inspect_container(found["Id"])["State"]["FinishedAt"]
            if datetime.fromisoformat(f"{ended[:19]}+00:00") < latest:
                remove(client, found["Id"])


def make_room(client: docker.APIClient, name: str, place: Place) -> None:
    """Remove what an earlier runner of `place` left under `name`.

    Raises `TierError` where the name is a stranger's.
    """
    try:
        found = client.inspect_container(name)
    except docker.errors.NotFound:
        return
    if not place.labels.items() <= (found["Config"].get("Labels") or {}).items():
        raise TierError(
            Code.ALREADY_EXISTS,
            f"the container name {name} is taken",
            details="a container that the runner did not make bears it",
            resolution=f"docker rm --force {name}",
        )
    remove(client, found["Id"])
