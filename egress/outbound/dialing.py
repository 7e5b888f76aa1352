"""Connections to the outside: a name is resolved once, and what it is connected to was checked."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from wire.egress import hosts
from wire.egress.hosts import PRIVATE, Network, refusal
from wire.identity import Party

from egress.outbound.upstreams import Upstream
from egress.refusals import Refused

if TYPE_CHECKING:
    from aiodns import DNSResolver

RESOLVE_S: Final = 10.0
CONNECT_S: Final = 10.0
FRESH_S: Final = 30.0
"""How long the addresses of a name count, so that a client's many requests ask for it once."""
NAMES_MAX: Final = 1_000
ADDRESSES_MAX: Final = 16
"""How many addresses of a name count, of the thousands that an answer may have."""
POOLED_S: Final = 30.0
"""How long a connection to a server stays open for its next request."""
READ_BYTES: Final = 32 * 1024
HEAD_MAX: Final = 128 * 1024
"""How large all headers of an answer may be, with those of the informational ones before it."""
INFORMATIONAL_MAX: Final = 8
"""How many informational answers (1xx) may come before an answer."""
_HEAD_PIECE: Final = 2 * 1024
_TRIES: Final = 5
"""How often a name server is asked. It gets a quarter of a second at first if it was quick before,
and then twice as long each time."""
_REPLY_MAX: Final = 16 * 1024

checked_addresses: ContextVar[tuple[str, ...]] = ContextVar("checked_addresses")
"""Where the host of this task's request lies. A name is not resolved again for its connection:
another answer, or a configuration that counts no more, would decide then."""

_Lookup = Callable[[str], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, repr=False)
class Proxy:
    """A proxy behind this one, to which everything goes on."""

    host: str
    port: int
    authorization: str

    @property
    def url(self) -> str:
        return f"http://{hosts.shown(self.host, self.port)}"

    @property
    def auth(self) -> aiohttp.BasicAuth | None:
        return aiohttp.BasicAuth.decode(self.authorization) if self.authorization else None


@dataclass(eq=False)
class _Question:
    """A question to name servers, for as many as are `waiting` for it."""

    answer: asyncio.Task[tuple[str, ...] | str]
    waiting: int = 0


@dataclass(repr=False, eq=False)
class Dialer:
    """Connects to hosts whose every address may be connected to.

    Where one of a name's addresses may not, nobody connects to any. With a `proxy`, it is the proxy
    that resolves names; only addresses that are written as such are checked then.

    In `private_networks` hosts may lie besides public addresses; the `own_addresses` of the host
    count as private. `name_servers` are ADDRESS or ADDRESS:PORT; those of /etc/resolv.conf, if
    there are none. /etc/hosts comes first. By `context` the others, and by `runner` the runner's
    sockets, are believed to be who they say.
    """

    private_networks: Sequence[Network]
    name_servers: Sequence[str]
    context: ssl.SSLContext
    proxy: Proxy | None = None
    own_addresses: Sequence[str] = ()
    runner: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self._resolver: DNSResolver | None = None
        self._asked: dict[str, _Question] = {}
        self._fresh: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def resolve(self, host: str) -> tuple[str, ...]:
        """The addresses of a host in its one spelling, each of which may be connected to. None with
        a proxy. Raises `Refused`."""
        if not hosts.is_address(host):
            if self.proxy is not None:
                return ()
            addresses = await self.lookup(host)
        else:
            addresses = (host,)
        self.check(host, addresses)
        return addresses

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Raises `Refused` if one of a host's addresses may not be connected to."""
        for address in addresses:
            if why := refusal(address, self.private_networks, self.own_addresses):
                shown = host if address == host else f"{host} is {address}, and"
                if why.endswith(PRIVATE):
                    why += "; egress.private_networks can name its network"
                raise Refused(403, "address", f"{shown} may not be reached: {why}")

    async def lookup(self, host: str) -> tuple[str, ...]:
        """The addresses of a name, unchecked. Raises `Refused` if it has none.

        However many ask for a name, name servers are asked once; no longer than somebody waits.
        """
        until, addresses = self._fresh.get(host, (0.0, ()))
        if time.monotonic() < until:
            return addresses
        if host not in self._asked:
            self._asked[host] = _Question(asyncio.create_task(self._ask(host)))
        question = self._asked[host]
        question.waiting += 1
        try:
            found = await asyncio.shield(question.answer)
        finally:
            question.waiting -= 1
            if not question.waiting:
                question.answer.cancel()
                self._asked.pop(host)
        if isinstance(found, str):
            raise Refused(502, "unreachable", found)
        return found

    async def _ask(self, host: str) -> tuple[str, ...] | str:
        """The addresses of a name, or why there are none."""
        import aiodns  # not for those who need no name

        if self._resolver is None:
            # Not `lookups`: pycares frees that text before it is read.
            self._resolver = aiodns.DNSResolver(self.name_servers or None, timeout=2, tries=_TRIES)
        try:
            async with asyncio.timeout(RESOLVE_S):
                answer = await self._resolver.getaddrinfo(host, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            if error.args[0] in (aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA):
                return f"the name {host} is not found"
            return f"no name server answers about {host}: {error.args[-1]}"
        except TimeoutError:
            return f"no name server answers about {host} within {RESOLVE_S:g} seconds"
        found = dict.fromkeys(node.addr[0].decode() for node in answer.nodes)
        addresses = tuple(found)[:ADDRESSES_MAX]
        if not addresses:
            return f"the name {host} has no address"
        if len(self._fresh) >= NAMES_MAX:
            self._fresh.clear()
        self._fresh[host] = (time.monotonic() + FRESH_S, addresses)
        return addresses

    async def connect(
        self, host: str, port: int, addresses: Iterable[str], protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        """Connect `protocol` to a host, at one of the `addresses` from `resolve`. Raises
        `Refused`."""
        if self.proxy is not None:
            return await self._connect_by_proxy(self.proxy, host, port, protocol)
        why = ""
        for address in addresses:
            try:
                return await _connect(address, port, lambda: protocol)
            except (OSError, TimeoutError) as error:
                why = _words(error)
        raise Refused(502, "unreachable", f"{hosts.shown(host, port)} cannot be reached: {why}")

    def client(
        self, *, checked: bool, pooled: bool, host_socket: str = ""
    ) -> aiohttp.ClientSession:
        """A client for requests; the caller closes it. If `checked`, it goes to `checked_addresses`
        only; to a `host_socket` of the runner each request goes by a connection of its own."""
        if host_socket:
            assert self.runner is not None
            return _session(_HostConnector(host_socket, self.runner))
        resolver = _Resolver(_checked if checked and self.proxy is None else self.lookup)
        lasting = {"keepalive_timeout": POOLED_S} if pooled else {"force_close": True}
        connector = _Connector(resolver=resolver, limit=0, use_dns_cache=False, **lasting)
        if self.proxy is None:
            return _session(connector)
        return _session(connector, proxy=self.proxy.url, proxy_auth=self.proxy.auth)

    async def _connect_by_proxy(
        self, proxy: Proxy, host: str, port: int, protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        reply = _ProxyReply()
        try:
            address, *_ = (
                (proxy.host,) if hosts.is_address(proxy.host) else await self.lookup(proxy.host)
            )
            transport = await _connect(address, proxy.port, lambda: reply)
        except (OSError, TimeoutError) as error:
            raise _no_proxy(_words(error)) from None
        shown = hosts.shown(host, port)
        head = [f"CONNECT {shown} HTTP/1.1", f"Host: {shown}"]
        if proxy.authorization:
            head.append(f"Proxy-Authorization: {proxy.authorization}")
        transport.write("\r\n".join([*head, "", ""]).encode())
        try:
            async with asyncio.timeout(CONNECT_S):
                status = await reply.status
        except (OSError, TimeoutError) as error:
            transport.abort()
            raise _no_proxy(_words(error)) from None
        if status != 200:
            transport.abort()
            raise Refused(
                502, "proxy", f"the proxy behind egress does not connect to {shown}: {status}"
            )
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return transport


def _session(connector: aiohttp.BaseConnector, **options: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=READ_BYTES,
        max_line_size=32 * 1024,
        max_field_size=32 * 1024,
        **options,
    )


class _HostConnector(aiohttp.UnixConnector):
    """Connects to a socket of the runner, which proves that it is the runner's."""

    def __init__(self, path: str, context: ssl.SSLContext) -> None:
        super().__init__(path, force_close=True, limit=0)
        self._factory = cast(Any, partial(_Receiver, loop=self._loop))
        self._context = context

    async def _create_connection(self, req: Any, *_: object) -> ResponseHandler:
        try:
            async with asyncio.timeout(CONNECT_S):
                connected = await self._loop.create_unix_connection(
                    self._factory, self._path, ssl=self._context, server_hostname=Party.RUNNER
                )
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return connected[1]


class _Connector(aiohttp.TCPConnector):
    """Connects with `_Receiver`s."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast(Any, partial(_Receiver, loop=self._loop))


class _Receiver(ResponseHandler):
    """Receives answers. One whose head does not come to an end is an error.

    aiohttp reads informational answers (1xx) before an answer for as long as they come, without
    letting anybody else go on, and bounds each header of a head but not all together. So a head is
    taken in small pieces here, and counted, and so is what follows a body.
    """

    _awaited = False
    _content: StreamReader = EMPTY_PAYLOAD
    _head_bytes = 0
    _informational = 0

    def set_response_params(self, **params: Any) -> None:
        self._awaited = True
        self._head_bytes, self._informational = HEAD_MAX, INFORMATIONAL_MAX
        super().set_response_params(**params)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        if 100 <= data[0].code < 200 and data[0].code != 101:
            self._informational -= 1  # and nobody here wants to know them
        elif not self._awaited:
            self.close()  # an answer to nothing, which the next request would take for its own
        elif self._informational >= 0:
            self._awaited, self._content = False, data[1]
            super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        while self._awaited and data and self.is_connected():
            piece, data = data[:_HEAD_PIECE], data[_HEAD_PIECE:]
            self._head_bytes -= len(piece)
            super().data_received(piece)
            if self._awaited and (self._head_bytes < 0 or self._informational < 0):
                self.abort()
                self.set_exception(aiohttp.ClientPayloadError("the head of its answer has no end"))
                return
        if self.is_connected():  # also without data: what was read before is read on
            before = self._content.total_bytes
            super().data_received(data)
            without_body = self._content.total_bytes == before
            self._head_bytes = self._head_bytes - len(data) if without_body else HEAD_MAX
            if self._head_bytes < 0 and self.transport is not None:
                self.transport.abort()


class _ProxyReply(asyncio.Protocol):
    """Reads a proxy's answer to CONNECT: `status` is its number. What follows it cannot be there
    yet."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.status.done():
            return
        if b"\r\n\r\n" not in self._head:
            if len(self._head) > _REPLY_MAX:
                self.status.set_exception(OSError("its answer is too large"))
            return
        words = self._head.split(b"\r\n", 1)[0].split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            self.status.set_exception(OSError("its answer is not HTTP"))
        elif words[1] == b"200" and not self._head.endswith(b"\r\n\r\n"):
            self.status.set_exception(OSError("it sent data before the tunnel was open"))
        else:
            self.status.set_result(int(words[1]))

    def connection_lost(self, _: Exception | None) -> None:
        if not self.status.done():
            self.status.set_exception(OSError("it has closed the connection"))


class _Resolver(AbstractResolver):
    """Lets aiohttp's client connect to what `addresses` returns and to nothing else."""

    def __init__(self, addresses: _Lookup) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._addresses(host)
            if family in (socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET)
        ]

    async def close(self) -> None:
        pass


async def _checked(_: str) -> tuple[str, ...]:
    return checked_addresses.get()


async def _connect(
    address: str, port: int, protocol: Callable[[], asyncio.Protocol]
) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_S):
        transport, _ = await loop.create_connection(protocol, address, port)
    return transport


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return (os.strerror(error.errno) if error.errno else str(error)) or type(error).__name__


def _no_proxy(why: str) -> Refused:
    return Refused(502, "proxy", f"the proxy behind egress cannot be used: {why}")


class OutboundClients:
    """The clients for HTTP of one configuration, made when they are first used.

    The agent's connections are kept for later requests, and so are those to upstreams, which
    nobody else uses; a command's are not. When another configuration counts, they are closed as
    soon as nobody uses them.
    """

    def __init__(self, dialer: Dialer) -> None:
        self.dialer = dialer
        self._clients: dict[tuple[str, bool, str], aiohttp.ClientSession] = {}
        self._users = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def client(
        self, role: str, addresses: tuple[str, ...], *, upstream: Upstream | None
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """The client for a request of `role` to a host at `addresses`. An `upstream` was named by
        the operator, so its addresses are not checked."""
        checked_addresses.set(addresses)
        host_socket = upstream.host_socket if upstream is not None else ""
        key = (role, upstream is not None, host_socket)
        if key not in self._clients:
            self._clients[key] = self.dialer.client(
                checked=upstream is None, pooled=role == Party.AGENT, host_socket=host_socket
            )
        self._users += 1
        try:
            yield self._clients[key]
        finally:
            self._users -= 1
            self._close_if_done()

    def retire(self) -> None:
        """Close everything when the last one who uses it is done."""
        self._retired = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._retired and not self._users and self._closing is None:
            self._closing = asyncio.create_task(self.close())

    async def close(self) -> None:
        """Close everything now. Idempotent."""
        for client in self._clients.values():
            await client.close()
