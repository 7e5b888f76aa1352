"""Which hosts are intercepted, and how the connection of a client is read."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from egress.interception.authority import Authority

_HANDSHAKE_S: Final = 15.0


class Interception:
    """Ends clients' TLS for the hosts with these ports, so that the requests can be read."""

    def __init__(
        self, hosts: Iterable[tuple[str, int]] = (), before: "Interception | None" = None
    ) -> None:
        """The authority of `before` goes on if it is for the same hosts: programs that run have
        read it."""
        self.hosts = frozenset(hosts)
        names = frozenset(host for host, _ in self.hosts)
        self._authority: Authority | None = before._authority if before is not None else None
        if not names:
            self._authority = None
        elif self._authority is None or self._authority.hosts != names:
            self._authority = _authority_for(names)

    @property
    def authority_pem(self) -> str:
        """What clients are to trust; empty if nothing is intercepted."""
        return self._authority.pem if self._authority else ""

    def wants(self, host: str, port: int) -> bool:
        """Whether requests to `host`, a DNS name in lower case, are read."""
        return (host, port) in self.hosts

    async def serve(
        self, transport: asyncio.Transport, host: str, server: Callable[[], asyncio.Protocol]
    ) -> None:
        """Serve as `host` on a connection, on which nothing has come yet of the client's TLS, until
        it is closed. `server` makes what answers, once the client has begun. Raises `OSError` if it
        does not accept this, or has asked for another name."""
        assert self._authority is not None
        loop = asyncio.get_running_loop()
        client = _Client()
        carrier = _Carrier(transport)
        secured = await loop.start_tls(
            cast(asyncio.Transport, carrier),
            client,
            self._authority.context(host),
            server_side=True,
            ssl_handshake_timeout=_HANDSHAKE_S,
        )
        if secured is None:
            raise ConnectionResetError("the client has left")
        try:
            client.begin(server(), secured)
            await client.closed
        finally:
            secured.abort()
        if isinstance(carrier.failure, ssl.SSLError):
            raise carrier.failure


def _authority_for(names: Iterable[str]) -> "Authority":
    from egress.interception.authority import Authority  # 8 MB, for those who need it

    return Authority(names)


class _Carrier:
    """A transport that carries TLS, and may be one of TLS itself: Python's own, up to 3.11.7, fails
    in another way when what it carries fails."""

    _start_tls_compatible = True

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.failure: BaseException | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _force_close(self, failure: BaseException | None) -> None:
        self.failure = failure
        self._transport.abort()


class _Client(asyncio.Protocol):
    """A connection whose first bytes may come before there is a server for them."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self._server: asyncio.Protocol | None = None
        self._early = b""

    def begin(self, server: asyncio.Protocol, transport: asyncio.Transport) -> None:
        if self.closed.done():
            return
        self._server = server
        server.connection_made(transport)
        if self._early:
            server.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        if self._server is None:
            self._early += data
        else:
            self._server.data_received(data)

    def pause_writing(self) -> None:
        if self._server:
            self._server.pause_writing()

    def resume_writing(self) -> None:
        if self._server:
            self._server.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._server:
            self._server.connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)
