"""What a command can connect to: the ways out of the guest, and Unix sockets."""

from functools import cache
from typing import Final

from wire.network_probe import POLICED, Route, Spec, try_all

from shell_daemon.probe.walk import foreign_socket, is_served_outside, walk
from shell_daemon.probe.world import BoundaryHit, World

_METADATA: Final = "metadata"
_ABSTRACT_MAX: Final = 64


def network(world: World) -> str:
    """No way out leads anywhere: the guest has no network, and egress's listener hears it only with
    what the daemon has. What policies shut where it has one is another check."""
    policed = world.spec.policed
    ways = [way for way in _ways(world) if not (policed and way.name in POLICED)]
    given = [] if policed or world.spec.network == "none" else ["its tier has given it a network"]
    found = [*given, *(way.found for way in ways if not way.shut)]
    BoundaryHit.raise_if(list(dict.fromkeys(found)))
    return f"{'behind policies' if policed else 'none'}; {len(ways)} ways out are shut"


def policies(world: World) -> str:
    """Policies keep the guest from the outside, its gateway and what the runner forbids."""
    if not world.spec.policed:
        raise BoundaryHit("the guest has no network in which there could be policies")
    ways = [way for way in _ways(world) if way.name in POLICED and way.name != _METADATA]
    BoundaryHit.raise_if(list(dict.fromkeys(way.found for way in ways if not way.shut)))
    labels = dict.fromkeys(each.label or each.address for each in world.spec.forbidden)
    return f"out of reach: public addresses, {', '.join(labels)}"


def metadata_address(world: World) -> str:
    """The service that gives a cloud machine's credentials to any caller on it is unreachable."""
    ways = [way for way in _ways(world) if way.name == _METADATA]
    BoundaryHit.raise_if([way.found for way in ways if not way.shut])
    return "out of reach"


@cache
def _ways(world: World) -> list[Route]:
    spec = world.spec
    told = Spec(
        spec.listener_port,
        spec.listener_name,
        spec.host_addresses,
        spec.egress_listener,
        policed=spec.policed,
        forbidden=spec.forbidden,
    )
    return try_all(told, world.proc)


def unix_sockets(world: World) -> str:
    """Besides the shell's own socket and egress's listener there are only sockets that this guest's
    processes made.

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
    rest = "".join(f"; {why}" for why in looked.unseen)
    return f"{count} in directories and {len(names)} abstract ones, all of this guest{rest}"


def _abstract(world: World) -> list[str]:
    lines = world.text("net/unix").splitlines()[1:]
    names = [fields[7] for line in lines if len(fields := line.split(maxsplit=7)) > 7]
    return sorted({name[1:] for name in names if name.startswith("@")})
