"""Address ranges of our own for networks: an engine has about thirty by default, and one may be
needed for each user."""

import contextlib
import hashlib
import ipaddress
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_RANGE: Final = ipaddress.IPv4Network("198.18.0.0/15")
"""Set aside for measurements of networks (RFC 2544), so that no machine to talk to is in it."""
_PREFIX: Final = 28
"""One guest, the next one while the first still ends, and the bridge itself need an address."""
_TRIES: Final = 64
_EVERYWHERE: Final = 8
"""Routes with a shorter prefix lead to no network: VPNs take all traffic with two or more such
ones instead of a default route."""
_ROUTES: Final = Path("/proc/net/route")


def free_subnets(name: str, routes: Path = _ROUTES) -> Iterator[ipaddress.IPv4Network]:
    """Small ranges for the network `name` to which this machine has no route yet, in an order that
    few other names share."""
    networks = (each for each in _routed(routes) if each.prefixlen >= _EVERYWHERE)
    taken = [each for each in networks if each.overlaps(_RANGE)]
    size = 2 ** (32 - _PREFIX)
    count = _RANGE.num_addresses // size
    first = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % count
    found = (
        ipaddress.IPv4Network(
            (int(_RANGE.network_address) + (first + step) % count * size, _PREFIX)
        )
        for step in range(count)
    )
    free = (each for each in found if not any(each.overlaps(other) for other in taken))
    return itertools.islice(free, _TRIES)


def _routed(routes: Path) -> list[ipaddress.IPv4Network]:
    """Where this machine has routes to; the kernel writes addresses as little-endian numbers."""
    found = []
    with contextlib.suppress(OSError):
        for line in routes.read_text().splitlines()[1:]:
            _, destination, _, _, _, _, _, mask, *_ = line.split()
            address, bits = (bytes.fromhex(word)[::-1] for word in (destination, mask))
            found.append(ipaddress.IPv4Network((address, int.from_bytes(bits).bit_count())))
    return found
