"""What must hold inside the guests of one user whose guests are pods.

The runner knows nothing of the node's files, so that nothing is compared with them: a pod has the
mounts that are listed here and no others. What it can connect to is up to the network of the
cluster; it is tried with targets that the runner knows.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from wire.boundary import CHECKS, POLICIES, BoundarySpec, SharedDirectory
from wire.network_probe import Spec, Target, node

from runner.boundary.spec import (
    absent,
    boot_id,
    host_addresses,
    host_tmpfs,
    marks,
    namespaces,
)
from runner.tiers.base import Confinement, LaunchSpec, Port
from runner.workspace.mounts import Role

_VOLUME: Final = SharedDirectory("/work", True, 0, 0)
"""The claim that agent and shell share. `/run`, the other one, is in memory."""
_ABSENT: Final = ("/egress", "/ipc", "/state")
"""What guests of other tiers, and the other guests of this one, have."""
_OF_A_POD: Final = "/volumes/kubernetes.io~empty-dir/"
"""In the mount points of in-memory file systems that a kubelet has made for its pods."""
_DNS: Final = 53
_PORTS: Final = (
    (Role.AGENT, Port.GATEWAY),
    (Role.SHELL, Port.SHELL),
    (Role.EGRESS, Port.EGRESS),
    (Role.EGRESS, Port.AGENT_LISTENER),
    (Role.SHELL_EGRESS, Port.EGRESS),
    (Role.SHELL_EGRESS, Port.SHELL_LISTENER),
    (Role.EMBEDDER, Port.EMBEDDER),
)
_GUEST_PORTS: Final = tuple(
    dict.fromkeys(port for guest, port in _PORTS if guest is not Role.EMBEDDER)
)
_LISTENERS: Final = {
    Role.AGENT: (Role.EGRESS, Port.AGENT_LISTENER),
    Role.SHELL: (Role.SHELL_EGRESS, Port.SHELL_LISTENER),
}
_ALLOWED: Final = {
    Role.AGENT: (Port.SHELL, Port.AGENT_LISTENER, Port.EMBEDDER),
    Role.SHELL: (Port.SHELL_LISTENER,),
}
"""The ports of a user's guests that policies open: see `policies`."""
OTHERS_MAX: Final = 16
"""Some of a crowd are as good as all: no policy names one of them."""


@dataclass(frozen=True)
class ClusterAddresses:
    """What one guest has around it in the cluster.

    `forbidden` are the targets that it must not reach, besides public addresses, the metadata
    service, its gateway, which it knows itself, and the runner, which listens during the test. At
    least one of them must answer the runner, as the API server does: nobody can tell a dropped
    connection from one to nobody. `listener` is the endpoint (`tcp:HOST:PORT`) of egress that it
    may reach; empty if there is none yet.

    Raises `ValueError` if there is nothing to try, or for a target that is no IP address: a pod
    resolves no names.
    """

    forbidden: tuple[Target, ...]
    listener: str = ""

    def __post_init__(self) -> None:
        if not self.forbidden:
            raise ValueError("there is no forbidden target to try, so that nothing would be proven")
        for target in self.forbidden:
            ipaddress.ip_address(target.address)


@dataclass(frozen=True)
class Neighbours:
    """The addresses of what a pod could find in its cluster: all of them, of both families.

    `api` are those of the API server as pods have it and as the runner has it, `names` those of the
    name servers, `nodes` those of the machines that the pods are on. `guests` are the user's own,
    by their role, with the embedder; `others` are guests of other users. What is not known yet, or
    not there, is left out.
    """

    api: tuple[Target, ...]
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    guests: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def of(self, role: Role) -> ClusterAddresses:
        """What the user's agent or shell has around it."""
        egress, own_port = _LISTENERS[role]
        found = [target._replace(label="the API server") for target in self.api]
        found += [Target(address, _DNS, "the cluster's DNS") for address in self.names]
        found += [target for address in self.nodes for target in node(address)]
        for guest, port in _PORTS:
            if guest is not role and port not in _ALLOWED[role]:
                found += _at(self.guests.get(guest, ()), (port,), f"the {guest}")
        found += _at(self.others[:OTHERS_MAX], _GUEST_PORTS, "another user's guest")
        listeners = [own_port.at(address) for address in self.guests.get(egress, ())[:1]]
        return ClusterAddresses(tuple(dict.fromkeys(found)), *listeners)


def _at(addresses: Iterable[str], ports: Iterable[Port], label: str) -> list[Target]:
    return [Target(address, port.value, label) for address in addresses for port in ports]


def pod_spec(
    launch: LaunchSpec,
    confinement: Confinement,
    *,
    tokens: Mapping[str, str],
    canary: str,
    addresses: ClusterAddresses,
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
        host_tmpfs=() if confinement.own_kernel else tuple(host_tmpfs(besides=_OF_A_POD)),
        host_addresses=tuple(host_addresses()),
        socket="",
        marks=marks(tokens, canary),
        egress_listener=addresses.listener,
        remote=True,
        forbidden=addresses.forbidden,
        checks=(*CHECKS, POLICIES),
    )


def pod_network_spec(addresses: ClusterAddresses) -> Spec:
    """The specification for one agent pod."""
    return Spec(
        host_addresses=tuple(host_addresses()),
        egress_listener=addresses.listener,
        policed=True,
        forbidden=addresses.forbidden,
    )
