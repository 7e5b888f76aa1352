"""Servers on loopback that stand for those outside, and the names that lead to them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from tests.support.internet.arrivals import Arrivals
from tests.support.internet.names import Names
from tests.support.servers.authority import Authority

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
MIB = bytes(range(256)) * 4096
SETTINGS = """
[embedder]
backend = "none"
[egress]
private_networks = ["127.0.0.0/8"]
name_servers = ["{name_server}"]
[egress.shell]
{shell}
"""
"""Those of a user whose commands reach such servers as `shell` says."""


@dataclass
class Origin:
    """One server: its port, and the requests that arrived."""

    port: int
    requests: list[web.BaseRequest] = field(default_factory=list)
    connections: int = 0


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    """/bytes?N: so many mebibytes; /forever: without end; /redirect?URL; else what was sent."""
    match request.path:
        case "/bytes" | "/forever":
            count = int(request.query_string) if request.path == "/bytes" else 10**9
            response = web.StreamResponse()
            if request.path == "/bytes":
                response.content_length = count * len(MIB)
            await response.prepare(request)
            for _ in range(count):
                await response.write(MIB)
            await response.write_eof()
            return response
        case "/redirect":
            return web.Response(status=302, headers={"Location": request.query_string})
        case _:
            body = await request.read()
            return web.Response(body=b"you sent " + body + b" to " + request.raw_path.encode())


@asynccontextmanager
async def origin(
    context: ssl.SSLContext | None = None,
    handle: Handler = answer,
    address: str = "127.0.0.1",
) -> AsyncIterator[Origin]:
    """A web server; with a context by HTTPS."""
    made = Origin(0)

    async def noted(request: web.BaseRequest) -> web.StreamResponse:
        made.requests.append(request)
        return await handle(request)

    served = web.Server(noted)

    def connected() -> asyncio.Protocol:
        made.connections += 1
        return served()

    server = await asyncio.get_running_loop().create_server(connected, address, 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await served.shutdown(0.1)


class Certificates:
    """Contexts of servers, of one authority."""

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        self.pem = self._authority.pem

    def server(self, name: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._authority.certificate_for(name))
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.pem)


@asynccontextmanager
async def names(
    zone: Mapping[str, Sequence[str]], address: str = "127.0.0.1"
) -> AsyncIterator[tuple[str, Arrivals]]:
    """A name server: its address, and what it was asked."""
    arrivals = Arrivals()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Names(zone, arrivals), (address, 0)
    )
    try:
        yield "{}:{}".format(*transport.get_extra_info("sockname")), arrivals
    finally:
        transport.close()
