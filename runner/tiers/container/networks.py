"""The networks of guests: created when one is needed, removed when nobody uses it any more.

INTERNAL is a bridge without a way out and without an address of the host. OUTBOUND is a bridge
whose guests cannot reach each other.
"""

import contextlib
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import docker
import docker.errors
from wire.errors import Code

from runner.errors import TierError
from runner.tiers.base import Network
from runner.tiers.container.names import LABEL_WORKSPACE, Place

_OPTIONS: Final[dict[Network, dict[str, str]]] = {
    Network.INTERNAL: {
        "com.docker.network.bridge.inhibit_ipv4": "true",
        "com.docker.network.bridge.enable_icc": "false",
    },
    Network.OUTBOUND: {"com.docker.network.bridge.enable_icc": "false"},
}
_FULL: Final = ("non-overlapping", "fully subnetted")
"""What an engine answers when all its address ranges are in use."""
_YOUNG: Final = timedelta(minutes=5)


def network_name(place: Place, network: Network) -> str:
    """The network mode of a container: "none", or the name of one of the user's networks."""
    return "none" if network is Network.NONE else f"{place.prefix}-{network}"


class Networks:
    """Which launches use which network. Its calls block, so use it in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[str, set[str]] = {}

    def acquire(
        self, client: docker.APIClient, place: Place, network: Network, launch_id: str
    ) -> str:
        """The name of a network that exists until `release`.

        Raises `TierError` if the name is taken or the engine has no addresses left.
        """
        name = network_name(place, network)
        if network is Network.NONE:
            return name
        with self._lock:
            if not _is_ours(client, name, place):
                _create(client, name, place, network)
            self._users.setdefault(name, set()).add(launch_id)
        return name

    def release(self, client: docker.APIClient, place: Place, launch_id: str) -> None:
        """Remove the networks that nobody uses any more."""
        with self._lock:
            for users in self._users.values():
                users.discard(launch_id)
            for network in (Network.INTERNAL, Network.OUTBOUND):
                name = network_name(place, network)
                if not self._users.get(name):
                    self._users.pop(name, None)
                    with contextlib.suppress(docker.errors.APIError):  # gone, or still in use
                        if _is_ours(client, name, place):
                            client.remove_network(name)


def remove_networks(client: docker.APIClient, place: Place) -> list[str]:
    """Remove all networks of `place`, whose containers must be gone. Returns their names."""
    found: list[dict[str, Any]] = client.networks(filters=place.filters)
    for network in found:
        with contextlib.suppress(docker.errors.NotFound):
            client.remove_network(network["Id"])
    return sorted(network["Name"] for network in found)


def _is_ours(client: docker.APIClient, name: str, place: Place) -> bool:
    """False if there is none of that name. Raises `TierError` if it is somebody else's."""
    try:
        found = client.inspect_network(name)
    except docker.errors.NotFound:
        return False
    place.require_own("network", name, found.get("Labels"))
    return True


def _create(client: docker.APIClient, name: str, place: Place, network: Network) -> None:
    try:
        client.create_network(
            name,
            driver="bridge",
            internal=network is Network.INTERNAL,
            options=_OPTIONS[network],
            labels=place.labels,
            check_duplicate=True,
        )
    except docker.errors.APIError as error:
        if not any(words in str(error) for words in _FULL):
            raise
        if sweep_unused(client):
            return _create(client, name, place, network)
        raise TierError(
            Code.RESOURCE_EXHAUSTED,
            "the container engine has no addresses left for another network",
            details=str(error.explanation),
            resolution='docker network prune, or widen "default-address-pools" in '
            "/etc/docker/daemon.json",
        ) from None


def sweep_unused(client: docker.APIClient) -> bool:
    """Remove unused networks that killed runners of any workspace left. Returns whether it removed
    any.

    New ones are kept: another runner may be about to start its guest.
    """
    swept = False
    found: list[dict[str, Any]] = client.networks(filters={"label": [LABEL_WORKSPACE]})
    for network in found:
        made = datetime.fromisoformat(network["Created"][:19]).replace(tzinfo=UTC)
        if datetime.now(UTC) - made > _YOUNG:
            with contextlib.suppress(docker.errors.APIError):  # in use
                client.remove_network(network["Id"])
                swept = True
    return swept
