"""What must hold inside the guests of one user whose guests are pods.

The runner knows nothing of the node's files, so that nothing is compared with them: a pod has the
mounts that are listed here and no others. What it can connect to is up to the network of the
cluster; it is tried with targets that the runner knows.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wire.boundary import CHECKS, POLICIES, BoundarySpec, SharedDirectory
from wire.ways_out import Spec, Target

from runner.boundary.spec import absent, boot_id, host_tmpfs, marks, namespaces
from runner.tiers.base import Confinement, LaunchSpec

_VOLUME: Final = SharedDirectory("/work", True, 0, 0)
"""The claim that agent and shell share. `/run`, the other one, is in memory."""
_ABSENT: Final = ("/egress", "/ipc", "/state")
"""What guests of other tiers, and the other guests of this one, have."""


@dataclass(frozen=True)
class Surroundings:
    """What one guest has around it in the cluster.

    `forbidden` are the targets that it must not reach, besides public addresses, the metadata
    service and its gateway, which it knows itself. At least one of them should be known to listen,
    as the API server is: nobody can tell a dropped connection from one to nobody. `door` is the
    endpoint (`tcp:HOST:PORT`) of egress that it may reach; empty if there is none yet.

    Raises `ValueError` if there is nothing to try, or for a target that is no IP address: a pod
    resolves no names.
    """

    forbidden: tuple[Target, ...]
    door: str = ""

    def __post_init__(self) -> None:
        if not self.forbidden:
            raise ValueError("there is no forbidden target to try, so that nothing would be proven")
        for target in self.forbidden:
            ipaddress.ip_address(target.address)


def pod_spec(
    launch: LaunchSpec,
    confinement: Confinement,
    *,
    tokens: Mapping[str, str],
    canary: str,
    surroundings: Surroundings,
) -> BoundarySpec:
    """The specification for one shell pod.

    `tokens` are by a description such as "the gateway's token"; only their marks are told. The
    numbers of this machine's kernel are in it for a pod that runs on it.
    """
    return BoundarySpec(
        uid=confinement.uid,
        gid=confinement.gid,
        groups=(),
        seccomp=confinement.seccomp,
        own_kernel=confinement.own_kernel,
        boot_id=boot_id(),
        namespaces=namespaces(),
        network=str(launch.network),
        shared=(_VOLUME,),
        read_only=confinement.read_only,
        absent=(*absent(), *_ABSENT),
        private=(),
        other_users=(),
        host_tmpfs=() if confinement.own_kernel else tuple(host_tmpfs()),
        host_addresses=(),
        socket="",
        marks=marks(tokens, canary),
        door=surroundings.door,
        remote=True,
        forbidden=surroundings.forbidden,
        checks=(*CHECKS, POLICIES),
    )


def pod_ways_out(surroundings: Surroundings) -> Spec:
    """The specification for one agent pod."""
    return Spec(door=surroundings.door, policed=True, forbidden=surroundings.forbidden)
