"""The networks with a way out: a user's is created when a guest needs it, and removed when nobody
uses it any more. It is a bridge whose guests cannot reach each other."""

import contextlib
import hashlib
import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

import docker
import docker.errors
import docker.types
from wire.errors import Code

from runner.errors import TierError
from runner.tiers.container.names import LABEL_WORKSPACE, ObjectNames

_OPTIONS: Final = {"com.docker.network.bridge.enable_icc": "false"}
_FULL: Final = ("non-overlapping", "fully subnetted")
"""What an engine answers when all its address ranges are in use."""
_OVERLAPS: Final = "overlap"
"""In what it answers when another network has taken a range."""
_YOUNG: Final = timedelta(minutes=5)
_RANGE: Final = IPv4Network("198.18.0.0/15")
"""Of our own, because an engine has about thirty ranges by default, and one may be needed for each
user. Set aside for measurements of networks (RFC 2544), so that no machine to talk to is in it."""
_PREFIX: Final = 28
"""One guest, the next one while the first still ends, and the bridge itself need an address."""
_TRIES: Final = 64
_EVERYWHERE: Final = 8
"""Routes with a shorter prefix lead to no network: VPNs take all traffic with two or more such
ones instead of a default route."""
_ROUTES: Final = Path("/proc/net/route")


def network_name(place: ObjectNames) -> str:
    return f"{place.prefix}-outbound"


class Networks:
    """Which launches use which network. Its calls block, so use it in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[str, set[str]] = {}

    def acquire(self, client: docker.APIClient, place: ObjectNames, launch_id: str) -> str:
        """The name of a network that exists until `release`.

        Raises `TierError` if the name is taken or the engine has no addresses left.
        """
        name = network_name(place)
        with self._lock:
            if not _is_ours(client, name, place):
                _create(client, name, place)
            self._users.setdefault(name, set()).add(launch_id)
        return name

    def release(self, client: docker.APIClient, place: ObjectNames, launch_id: str) -> None:
        """Remove the network of `place` if nobody uses it any more."""
        name = network_name(place)
        with self._lock:
            users = self._users.get(name, set())
            users.discard(launch_id)
            if users:
                return
            self._users.pop(name, None)
            with contextlib.suppress(docker.errors.APIError):  # gone, or still in use
                if _is_ours(client, name, place):
                    client.remove_network(name)


def remove_networks(client: docker.APIClient, place: ObjectNames) -> list[str]:
    """Remove all networks of `place`, whose containers must be gone. Returns their names."""
    found: list[dict[str, Any]] = client.networks(filters=place.filters)
    for network in found:
        with contextlib.suppress(docker.errors.NotFound):
            client.remove_network(network["Id"])
    return sorted(network["Name"] for network in found)


def _is_ours(client: docker.APIClient, name: str, place: ObjectNames) -> bool:
    """False if there is none of that name. Raises `TierError` if it is somebody else's."""
    try:
        found = client.inspect_network(name)
    except docker.errors.NotFound:
        return False
    place.require_own("network", name, found.get("Labels"))
    return True


def _create(client: docker.APIClient, name: str, place: ObjectNames) -> None:
    """Create a network in a range of the engine's choice, or of ours if all of those are in use."""
    try:
        return _create_in(client, name, place)
    except docker.errors.APIError as error:
        if not any(words in str(error) for words in _FULL):
            raise
        full = error
    if sweep_unused(client):
        return _create(client, name, place)
    for subnet in free_subnets(name):
        try:
            return _create_in(client, name, place, subnet)
        except docker.errors.APIError as error:
            if _OVERLAPS not in str(error):
                raise
    raise TierError(
        Code.RESOURCE_EXHAUSTED,
        "the container engine has no addresses left for another network",
        details=str(full.explanation),
        resolution='docker network prune; or set "default-address-pools": [{"base": '
        '"172.16.0.0/12", "size": 24}] in /etc/docker/daemon.json, then: sudo systemctl restart '
        "docker",
    )


def _create_in(
    client: docker.APIClient, name: str, place: ObjectNames, subnet: IPv4Network | None = None
) -> None:
    ranges = None
    if subnet is not None:
        pools = [docker.types.IPAMPool(subnet=str(subnet))]
        ranges = docker.types.IPAMConfig(pool_configs=pools)
    client.create_network(
        name,
        driver="bridge",
        options=_OPTIONS,
        ipam=ranges,
        labels=place.labels,
        check_duplicate=True,
    )


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


def free_subnets(name: str, routes: Path = _ROUTES) -> Iterator[IPv4Network]:
    """Small ranges for the network `name` to which this machine has no route yet, in an order that
    few other names share."""
    networks = (each for each in _routed(routes) if each.prefixlen >= _EVERYWHERE)
    taken = [each for each in networks if each.overlaps(_RANGE)]
    size = 2 ** (32 - _PREFIX)
    count = _RANGE.num_addresses // size
    first = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % count
    found = (
        IPv4Network((int(_RANGE.network_address) + (first + step) % count * size, _PREFIX))
        for step in range(count)
    )
    free = (each for each in found if not any(each.overlaps(other) for other in taken))
    return itertools.islice(free, _TRIES)


def _routed(routes: Path) -> list[IPv4Network]:
    """Where this machine has routes to; the kernel writes addresses as little-endian numbers."""
    found = []
    with contextlib.suppress(OSError):
        for line in routes.read_text().splitlines()[1:]:
            _, destination, _, _, _, _, _, mask, *_ = line.split()
            address, bits = (bytes.fromhex(word)[::-1] for word in (destination, mask))
            found.append(IPv4Network((address, int.from_bytes(bits).bit_count())))
    return found
