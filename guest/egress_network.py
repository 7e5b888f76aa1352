"""Connections to egress for the HTTP client of models, which leads them to the hosts of URLs."""

import ssl
from collections.abc import Iterable
from typing import Any, Protocol

import httpcore2
from wire.endpoint import Endpoint, notice_loss
from wire.identity import Peer


class EgressConnector(Protocol):
    """The part of `guest.egress_client.EgressClient` that is needed here."""

    peer: Peer
    moves: int

    @property
    def tls(self) -> ssl.SSLContext: ...

    @property
    def place(self) -> Endpoint: ...


class EgressNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to where egress is now, whatever host is asked for."""

    def __init__(self, egress: EgressConnector) -> None:
        self._egress = egress
        self._system = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - the interface's
        port: int,  # noqa: ARG002
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        egress, place = self._egress, self._egress.place
        began = _Stream(egress)
        if place.path:
            stream = await self._system.connect_unix_socket(place.path, timeout)
        else:
            stream = await self._system.connect_tcp(place.host, place.port, timeout)
        notice_loss(stream.get_extra_info("socket"))
        began.stream = stream
        return began


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection to egress. Once that has moved, what is under way here ends well, and nothing
    else begins."""

    stream: httpcore2.AsyncNetworkStream

    def __init__(self, egress: EgressConnector) -> None:
        self._egress = egress
        self._moves = egress.moves
        self._tls = egress.tls
        self._name = egress.peer.name

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self.stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self.stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self.stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,  # noqa: ARG002 - the interface's
        server_hostname: str | None = None,  # noqa: ARG002
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.stream = await self.stream.start_tls(self._tls, self._name, timeout)
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and self._moves != self._egress.moves:
            return True  # which says of an idle connection that it is of no use
        return self.stream.get_extra_info(info)
