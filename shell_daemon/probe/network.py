"""What a command can connect to: network addresses and Unix sockets."""

import errno
import select
import socket
import time
from functools import cache
from typing import Final, NamedTuple

from shell_daemon.probe.listeners import foreign_socket, is_served_outside
from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import BoundaryHit, World, require_tried

_LOOPBACK: Final = ("127.0.0.1", "::1")
METADATA: Final = ("169.254.169.254", "fd00:ec2::254")
_METADATA_PORT: Final = 80
_PUBLIC: Final = (("1.1.1.1", 443), ("2606:4700:4700::1111", 443))
_NAME_SERVERS: Final = ("8.8.8.8", "2001:4860:4860::8888")
_DNS_PORT: Final = 53
_PATIENCE_S: Final = 0.3
_GATEWAY_FLAG: Final = 0x2
_ABSTRACT_MAX: Final = 64


class Target(NamedTuple):
    """An address to connect to."""

    address: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET


def network(world: World) -> str:
    """The guest reaches only what its network policy allows.

    With `none` there is only the loopback interface and no route. With `outbound` the guest has
    a network of its own, from which the host's loopback cannot be reached.
    """
    spec = world.spec
    listeners = _listeners(world)
    outcomes = _outcomes(world)
    found = [
        f"what listens on the host's 127.0.0.1 can be reached at {target.address}"
        for target in listeners
        if outcomes.get(target) == "connected"
    ]
    if spec.network == "outbound":
        BoundaryHit.raise_if(found)
        return "a network of its own; the host's loopback is out of reach"
    lines = world.text("net/dev").splitlines()[2:]
    if others := sorted({line.partition(":")[0].strip() for line in lines} - {"lo"}):
        found.append(f"there are network interfaces: {', '.join(others)}")
    if _has_routes(world):
        found.append("there are routes")
    found += [
        f"{target.address} can be reached"
        for target, outcome in outcomes.items()
        if outcome in ("connected", "refused") and target.address not in _LOOPBACK
    ]
    found += [f"name server {name} can be asked" for name in _NAME_SERVERS if can_send(name)]
    BoundaryHit.raise_if(list(dict.fromkeys(found)))
    return f"none; {len(outcomes)} addresses out of reach"


def metadata_address(world: World) -> str:
    """The service that gives a cloud machine's credentials to any caller on it is unreachable."""
    outcomes = _outcomes(world)
    for address in METADATA:
        if outcomes[Target(address, _METADATA_PORT)] == "connected":
            raise BoundaryHit(f"{address} answers: commands could take the cloud's credentials")
    return "out of reach"


@cache
def _outcomes(world: World) -> dict[Target, str]:
    targets = [Target(address, _METADATA_PORT) for address in METADATA]
    targets += _listeners(world)
    if world.spec.network == "none":
        targets += [Target(*public) for public in _PUBLIC]
    return connect(targets)


def _listeners(world: World) -> list[Target]:
    """The addresses at which the host's loopback might be reachable."""
    port = world.spec.listener_port
    if not port:
        return []
    addresses = (*_LOOPBACK, *_gateways(world), *world.spec.host_addresses)
    return [Target(address, port) for address in dict.fromkeys(addresses)]


def connect(targets: list[Target], patience: float = _PATIENCE_S) -> dict[Target, str]:
    """Try all targets at once. The outcome of each is `connected`, `refused` (a host answered),
    `unreachable` (the kernel has no route) or `silent` (no answer within `patience` seconds)."""
    outcomes = dict.fromkeys(targets, "unreachable")
    waiting: dict[socket.socket, Target] = {}
    for target in targets:
        try:
            client = socket.socket(target.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            require_tried(error)
            continue
        number = client.connect_ex((target.address, target.port))
        if number == errno.EINPROGRESS:
            outcomes[target] = "silent"
            waiting[client] = target
        else:
            outcomes[target] = _outcome(number)
            client.close()
    deadline = time.monotonic() + patience
    while waiting and (left := deadline - time.monotonic()) > 0:
        for client in select.select([], list(waiting), [], left)[1]:
            number = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            outcomes[waiting.pop(client)] = _outcome(number)
            client.close()
    for client in waiting:
        client.close()
    return outcomes


def _outcome(number: int) -> str:
    if number == 0:
        return "connected"
    return "refused" if number in (errno.ECONNREFUSED, errno.ECONNRESET) else "unreachable"


def can_send(address: str) -> bool:
    """Whether the kernel has a route for a datagram; none is sent."""
    target = Target(address, _DNS_PORT)
    try:
        with socket.socket(target.family, socket.SOCK_DGRAM) as client:
            return client.connect_ex((address, _DNS_PORT)) == 0
    except OSError as error:
        require_tried(error)
        return False


def _has_routes(world: World) -> bool:
    if len(world.text("net/route").splitlines()) > 1:
        return True
    try:
        lines = world.text("net/ipv6_route").splitlines()
    except FileNotFoundError:
        return False
    return any(line.split()[-1] != "lo" for line in lines if line.strip())


def _gateways(world: World) -> list[str]:
    found = []
    for line in world.text("net/route").splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & _GATEWAY_FLAG:
            found.append(socket.inet_ntoa(int(fields[2], 16).to_bytes(4, "little")))
    return found


def unix_sockets(world: World) -> str:
    """Besides the shell's own socket there are only sockets that this guest's processes made.

    A socket that belongs to another user was made outside, too.
    """
    looked = walk(world)
    found = [*looked.unfinished.values(), *looked.foreign]
    # A directory listing does not show that something is mounted on an entry.
    points = {mount.point for mount in world.mounts if world.at(mount.point).is_socket()}
    for point in sorted(points - {world.spec.socket}):
        if finding := foreign_socket(None, str(world.at(point)), world.spec.uid):
            found.append(f"{point} is {finding}")
    names = _abstract(world)
    for name in [*names[:_ABSTRACT_MAX], world.spec.listener_name]:
        if name and is_served_outside(f"\0{name}"):
            found.append(f"the abstract socket {name} is served from outside the guest")
    BoundaryHit.raise_if(list(dict.fromkeys(found)))
    count = looked.sockets + len(points)
    return f"{count} in directories and {len(names)} abstract ones, all of this guest"


def _abstract(world: World) -> list[str]:
    lines = world.text("net/unix").splitlines()[1:]
    names = [fields[7] for line in lines if len(fields := line.split(maxsplit=7)) > 7]
    return sorted({name[1:] for name in names if name.startswith("@")})
