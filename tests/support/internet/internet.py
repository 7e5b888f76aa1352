"""A small internet of our own: names, servers under an authority, and what arrived there.

Nothing of it is on the real one. A guest finds it by `settings`, the same way as any other guest
would find the servers of a company: by its name servers and its authority.
"""

import asyncio
import secrets
import socket
import ssl
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from aiohttp import web

from tests.support.internet import packets
from tests.support.internet.arrivals import Arrival, Arrivals
from tests.support.internet.names import Names
from tests.support.internet.network import METADATA, Network
from tests.support.internet.packages import FILES, PYPI, Package
from tests.support.internet.proxy import Proxy
from tests.support.internet.repositories import Repositories
from tests.support.internet.sites import Sites
from tests.support.scratch import SCRATCH
from tests.support.servers.authority import Authority
from tests.support.servers.openai_server import OpenAIServer, Reply

_NAMES, _WEB, _OTHER_WEB, _PROXY, _PROVIDER, _RAW = 2, 10, 11, 13, 14, 15
PROXY_PORT: Final = 3128
PROXY_USER: Final = "oxydra:of-the-company"
PROVIDER: Final = "api.openai.com"
"""Where agents ask their model, by the name of the real one."""

_Got = TypeVar("_Got")


class Internet:
    """One that runs, on a thread of its own. `arrivals` is what came.

    Names: `*.example.org` lie on one server, `*.example.net` on another; the exceptions are told by
    their names (`loopback.example.org` is 127.0.0.1, and so on).
    """

    def __init__(self, network: Network, directory: Path) -> None:
        self.network = network
        self.arrivals = Arrivals(lambda: self.run(self._read_the_cable()))
        self.authority = Authority(directory)
        self.ca_file = directory / "authorities.pem"
        self.ca_file.write_text(self.authority.pem)
        self.package = Package.build("requests", "2.99.1")
        self.git = Repositories(directory, f"ghp_{secrets.token_hex(16)}")
        self.names = Names(self._zone(), self.arrivals)
        self.provider = OpenAIServer([])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()

    def _zone(self) -> dict[str, list[str]]:
        address, private = self.network.address, self.network.private
        web_, other = [address(_WEB)], [address(_OTHER_WEB)]
        return {
            **{f"{name}.example.org": web_ for name in ("www", "files", "api", "git", "unlisted")},
            **{f"{name}.example.net": other for name in ("www", "files", "elsewhere")},
            **dict.fromkeys((PYPI, FILES, "raw.githubusercontent.com"), other),
            PROVIDER: [address(_PROVIDER)],
            "proxy.example.org": [address(_PROXY)],
            "raw.example.org": [address(_RAW)],
            "private.example.org": [private],
            "metadata.example.org": [METADATA],
            "loopback.example.org": ["127.0.0.1"],
            "loopback6.example.org": ["::1"],
            "mapped.example.org": ["::ffff:127.0.0.1"],
            "mixed.example.org": [address(_WEB), private],
            "rebind-*": [address(_WEB), private],
        }

    @property
    def name_server(self) -> str:
        return self.network.address(_NAMES)

    @property
    def web(self) -> str:
        """The address of `*.example.org`."""
        return self.network.address(_WEB)

    @property
    def raw(self) -> str:
        """An address that takes any bytes, at any of `RAW_PORTS`."""
        return self.network.address(_RAW)

    @property
    def proxy(self) -> str:
        """A company's, which wants `PROXY_USER`."""
        return f"http://{self.network.address(_PROXY)}:{PROXY_PORT}"

    @property
    def settings(self) -> dict[str, Any]:
        """Of `[egress]`, by which a guest finds all this."""
        return {"name_servers": [self.name_server], "ca_file": str(self.ca_file)}

    def said_by_provider(self, *replies: Reply) -> None:
        """What it answers from now on, the last for ever."""
        self.provider.replies[:] = replies

    def let_pieces_through(self, count: int) -> None:
        """Of the answers of /stream."""
        for _ in range(count):
            self._loop.call_soon_threadsafe(self.sites.pieces.release)

    def start(self) -> None:
        self._thread.start()
        self.run(self._serve())

    def stop(self) -> None:
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, step: Coroutine[Any, Any, _Got]) -> _Got:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(60)

    async def _serve(self) -> None:
        self.sites = Sites(self.arrivals, self.authority, self.package, self.git)
        await self._watch_the_cable()
        await self._serve_names()
        await self._serve_sites()
        await self._listen(
            self.network.address(_PROVIDER), 443, self.provider.handle, self._provider_tls()
        )
        proxy = Proxy("proxy.example.org", self._connect, self.arrivals, PROXY_USER)
        await self._listen(self.network.address(_PROXY), PROXY_PORT, proxy.serve)
        for port in RAW_PORTS:
            await self._listen(self.raw, port, self._take)

    async def _watch_the_cable(self) -> None:
        cable = self.network.within(packets.open_cable)
        cable.setblocking(False)
        self._loop.add_reader(cable, packets.read, cable, self.arrivals)
        self._stack.callback(cable.close)
        self._stack.callback(self._loop.remove_reader, cable)
        self._cable = cable

    async def _read_the_cable(self) -> None:
        packets.read(self._cable, self.arrivals)

    async def _serve_names(self) -> None:
        sock = self.network.datagrams(self.name_server, 53)
        sock.setblocking(False)
        transport, _ = await self._loop.create_datagram_endpoint(lambda: self.names, sock=sock)
        self._stack.callback(transport.close)
        await self._listen(self.name_server, 53, self.names.serve)

    async def _serve_sites(self) -> None:
        server = web.Server(self.sites.answer, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        context = self.sites.context()
        last = (_WEB, _OTHER_WEB)
        for address in (*map(self.network.address, last), self.network.private, METADATA):
            for port, tls in ((80, None), (443, context), (8443, context)):
                sock = self.network.listen(address, port)
                await web.SockSite(runner, sock, ssl_context=tls).start()

    def _provider_tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority.certificate_for(PROVIDER))
        return context

    async def _listen(
        self, address: str, port: int, serve: Any, tls: ssl.SSLContext | None = None
    ) -> None:
        sock = self.network.listen(address, port)
        server = await asyncio.start_server(serve, sock=sock, ssl=tls, limit=2**20)
        self._stack.callback(server.close)

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """From inside, by the names that there are."""
        found = self.names.addresses(host) or []
        address = found[0] if found else host

        def make() -> socket.socket:
            return socket.create_connection((address, port), timeout=5)

        sock = await asyncio.to_thread(self.network.within, make)
        return await asyncio.open_connection(sock=sock)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                port = writer.get_extra_info("sockname")[1]
                self.arrivals.add(Arrival("bytes", f"{self.raw}:{port}", "tcp", body=data))
                writer.write(b"taken\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


RAW_PORTS: Final = (22, 25, 80, 443, 853, 4444)


@contextmanager
def internet() -> Iterator[Internet]:
    """One that is there until the end."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="net-") as directory, Network() as network:
        made = Internet(network, Path(directory))
        made.start()
        try:
            yield made
        finally:
            made.stop()
