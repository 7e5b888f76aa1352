"""The name server of a cluster: it knows the pods behind each Service.

It answers at an address of the pods' network, and policies take it for a pod of the cluster.
"""

import asyncio
import contextlib
import socket
from typing import Any, Final

from tests.support.internet.arrivals import Arrivals
from tests.support.internet.names import Names
from tests.support.kubernetes.policies import Policies

Object = dict[str, Any]
DOMAIN: Final = "svc.cluster.local"
_LABELS: Final = {"k8s-app": "kube-dns"}
_PORT: Final = 53


class ClusterNames:
    """Served at `address` between `open` and `close`. `take` tells what Services lead to."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._zone: dict[str, list[str]] = {}
        self._stack = contextlib.AsyncExitStack()

    async def open(self, policies: Policies) -> None:
        names = Names(self._zone, Arrivals())
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: names, local_addr=(self._address, _PORT), family=socket.AF_INET
        )
        self._stack.callback(transport.close)
        server = await asyncio.start_server(names.serve, self._address, _PORT)
        self._stack.callback(server.close)
        pod = {"metadata": {"namespace": "kube-system", "labels": _LABELS}}
        await policies.add("names", pod, self._address)

    async def close(self) -> None:
        await self._stack.aclose()

    def take(self, endpoints: list[Object]) -> None:
        """Take the place of all that was known."""
        self._zone.clear()
        for each in endpoints:
            meta, subsets = each["metadata"], each.get("subsets") or ()
            self._zone[f"{meta['name']}.{meta['namespace']}.{DOMAIN}"] = [
                address["ip"] for subset in subsets for address in subset.get("addresses") or ()
            ]


def resolv_conf(address: str, namespace: str) -> str:
    """What a pod of `namespace` asks for names with."""
    domain = DOMAIN.partition(".")[2]
    return f"nameserver {address}\nsearch {namespace}.{DOMAIN} {DOMAIN} {domain}\noptions ndots:5\n"
