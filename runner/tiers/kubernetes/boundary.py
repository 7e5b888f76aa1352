"""The boundary self-test of one user's pods, with the targets that the cluster has at that moment,
and its repetition for as long as they run: policies may go as they came."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from wire.boundary import POLICED_CHECKS, BoundarySpec
from wire.errors import Code
from wire.network_probe import Target
from wire.v1 import control_pb2

from runner.boundary.check import check_boundary, check_network
from runner.errors import TierError
from runner.tiers.base import Boundary, Confinement, LaunchSpec
from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.cluster_network import (
    OTHERS_MAX,
    ClusterAddresses,
    Neighbours,
    pod_network_spec,
    pod_spec,
)
from runner.tiers.kubernetes.enforcement import require_enforced, until_enforced, watch_policies
from runner.tiers.kubernetes.names import EMBEDDER, LABEL_USER, OURS, Owner, selector
from runner.tiers.kubernetes.pods import role_in
from runner.tiers.kubernetes.watching import Pod
from runner.workspace.mounts import Role

_FROM_MEMORY: Final = "0"
"""What the API server has in memory will do; its store would read all pods of the namespace."""
_RESOLVERS: Final = Path("/etc/resolv.conf")
_TLS_PORT: Final = 443


class PodBoundary(Boundary):
    """See `Boundary`. `promises` says what the tier promises for a launch."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Callable[[LaunchSpec], Confinement],
        user_id: str,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._cluster = cluster
        self._promises = promises
        self._owner = Owner(user_id)
        self._environ = environ

    async def of_shell(
        self, channel: grpc.aio.Channel, launch: LaunchSpec, tokens: Mapping[str, str], canary: str
    ) -> control_pb2.BoundaryReport:
        """Again and again for a while where policies may still come. See `pod_spec`."""

        async def run() -> control_pb2.BoundaryReport:
            return await check_boundary(channel, await self._spec(launch, tokens, canary))

        return await until_enforced(run)

    async def of_agent(
        self, channel: grpc.aio.Channel, launch: LaunchSpec
    ) -> control_pb2.BoundaryReport:
        """In the same manner."""
        return await until_enforced(lambda: self._network(channel))

    def require_passed(self, report: control_pb2.BoundaryReport, role: Role) -> None:
        require_enforced(report, role)

    async def until_open(
        self, role: Role, channel: grpc.aio.Channel, launch: LaunchSpec, changed: asyncio.Event
    ) -> control_pb2.BoundaryReport:
        """Of the shell's pod, only what policies shut."""

        async def run() -> control_pb2.BoundaryReport:
            if role is Role.AGENT:
                return await self._network(channel)
            spec = await self._spec(launch, {}, "")
            return await check_boundary(channel, spec._replace(checks=POLICED_CHECKS))

        return await watch_policies(run, changed=changed)

    async def _spec(
        self, launch: LaunchSpec, tokens: Mapping[str, str], canary: str
    ) -> BoundarySpec:
        promised, around = self._promises(launch), await self._around(Role.SHELL)
        return pod_spec(launch, promised, tokens=tokens, canary=canary, addresses=around)

    async def _network(self, channel: grpc.aio.Channel) -> control_pb2.BoundaryReport:
        return await check_network(channel, pod_network_spec(await self._around(Role.AGENT)))

    async def _around(self, role: Role) -> ClusterAddresses:
        """What there is besides the user's guest of `role`, as the API server knows it now."""
        others = f"{selector(OURS)},{LABEL_USER}!={self._owner.slug}"
        api, own, strangers, embedders = await asyncio.gather(
            asyncio.to_thread(self._api),
            self._cluster.pods(selector(self._owner.labels), resource_version=_FROM_MEMORY),
            self._cluster.pods(others, limit=OTHERS_MAX),
            self._cluster.pods(selector(EMBEDDER), resource_version=_FROM_MEMORY),
        )
        guests: dict[Role, tuple[str, ...]] = {
            Role.EMBEDDER: tuple(each for pod in embedders for each in _addresses(pod))
        }
        for pod in own:
            with suppress(ValueError):
                guests[Role(role_in(pod))] = tuple(_addresses(pod))
        found = Neighbours(
            api=api,
            names=tuple(_name_servers()),
            nodes=tuple(dict.fromkeys(node for pod in own for node in _node(pod))),
            guests=guests,
            others=tuple(each for pod in strangers for each in _addresses(pod)),
        )
        try:
            return found.of(role)
        except ValueError as error:
            raise TierError(
                Code.FAILED_PRECONDITION,
                "the network of this cluster cannot be tried",
                details=str(error),
                resolution="run the runner as a pod: deploy/kubernetes",
            ) from None

    def _api(self) -> tuple[Target, ...]:
        """Where the API server is for the runner, and where pods are told that it is. Blocks."""
        asked = urlsplit(self._cluster.host)
        told = self._environ.get("KUBERNETES_SERVICE_HOST", "")
        port = self._environ.get("KUBERNETES_SERVICE_PORT", "")
        places = [(asked.hostname or "", asked.port or _TLS_PORT)]
        places += [(told, int(port))] if told and port.isdecimal() else []
        found = [Target(each, port) for host, port in places for each in _resolved(host)]
        return tuple(dict.fromkeys(found))


def _resolved(host: str) -> Iterator[str]:
    """The addresses of a host that are not this machine's own alone."""
    with suppress(OSError):
        for *_, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            if not ipaddress.ip_address(str(place[0]).partition("%")[0]).is_loopback:
                yield str(place[0])


def _name_servers() -> Iterator[str]:
    """Those of the runner, which are the cluster's in a pod."""
    with suppress(OSError):
        for line in _RESOLVERS.read_text().splitlines():
            words = line.split()
            if words[:1] == ["nameserver"] and len(words) > 1:
                with suppress(ValueError):
                    if not ipaddress.ip_address(words[1]).is_loopback:
                        yield words[1]


def _addresses(pod: Pod) -> Iterator[str]:
    status: dict[str, Any] = pod.get("status") or {}
    found = [each["ip"] for each in status.get("podIPs") or ()] or [status.get("podIP")]
    yield from filter(None, found)


def _node(pod: Pod) -> Iterator[str]:
    if found := (pod.get("status") or {}).get("hostIP"):
        yield str(found)
