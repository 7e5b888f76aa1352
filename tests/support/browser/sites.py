"""A small internet for a browser: sites by name, served by the proxy that leads to them."""

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Asked(NamedTuple):
    """One request as it arrived; the method of a tunnel is CONNECT."""

    method: str
    url: str
    body: str = ""
    cookie: str = ""


class Page(NamedTuple):
    """What a site answers."""

    body: str = ""
    headers: Mapping[str, str] = {"Content-Type": "text/html"}
    status: int = 200


class Sites:
    """Serves `pages`, by URL without options; what else is asked for is an empty page. A tunnel
    ends at a WebSocket, which says "hello". `asked` are all requests, `arrival` is told
    of each, and `proxy` is where they are."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self.asked: list[Asked] = []
        self.arrival = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.proxy = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def until(self, method: str, url: str) -> Asked:
        """The first such request; waits for it."""
        async with asyncio.timeout(20), self.arrival:
            await self.arrival.wait_for(lambda: self.got(method, url))
        return self.got(method, url)[0]

    def got(self, method: str, url: str = "") -> list[Asked]:
        """The requests with this method, to URLs that begin so."""
        return [each for each in self.asked if each.method == method and each.url.startswith(url)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            method, url, headers = await _head(reader)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            said = body.decode(errors="replace")
            async with self.arrival:
                self.asked.append(Asked(method, url, said, headers.get("cookie", "")))
                self.arrival.notify_all()
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                _, _, headers = await _head(reader)
                key = headers["sec-websocket-key"].encode()
                accept = base64.b64encode(hashlib.sha1(key + _MAGIC).digest())
                writer.write(
                    b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello"
                )
                await writer.drain()
                await reader.read()
                return
            page = self.pages.get(url.partition("?")[0], Page())
            content = page.body.encode()
            sent = {**page.headers, "Content-Length": str(len(content)), "Connection": "close"}
            lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
            writer.write(f"HTTP/1.1 {page.status} So\r\n{lines}\r\n".encode() + content)
            await writer.drain()


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    method, url, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    return method, url, {name.lower(): value.strip() for name, _, value in pairs}
