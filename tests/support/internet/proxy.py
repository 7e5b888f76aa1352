"""Another proxy: a company's, or one that a command would like to use on its way out."""

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable

from tests.support.internet.arrivals import Arrival, Arrivals

Connect = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Proxy:
    """Carries CONNECT and requests in absolute form to where `connect` says; who shows `user` and
    password as Basic authorization, if one is set."""

    def __init__(self, name: str, connect: Connect, arrivals: Arrivals, user: str = "") -> None:
        self._name = name
        self._connect = connect
        self._arrivals = arrivals
        self._wanted = f"Basic {base64.b64encode(user.encode()).decode()}" if user else ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (each.partition(":") for each in lines)
            }
            method, target, _ = line.split(" ")
            self._arrivals.add(Arrival("request", self._name, f"{method} {target}", headers))
            if self._wanted and headers.get("proxy-authorization") != self._wanted:
                writer.write(b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n")
            elif method == "CONNECT":
                await self._carry(reader, writer, target, b"")
            else:
                host = target.removeprefix("http://").partition("/")[0]
                path = target.removeprefix(f"http://{host}") or "/"
                rest = head.partition(b"\r\n")[2]
                first = f"{method} {path} HTTP/1.1\r\n".encode() + rest
                await self._carry(reader, writer, host if ":" in host else f"{host}:80", first)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str, first: bytes
    ) -> None:
        host, _, port = to.rpartition(":")
        try:
            from_there, to_there = await self._connect(host, int(port))
        except (OSError, LookupError):
            writer.write(b"HTTP/1.1 502 No way\r\ncontent-length: 0\r\n\r\n")
            return
        if first:
            to_there.write(first)
        else:
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        there = asyncio.create_task(_pump(reader, to_there))
        await _pump(from_there, writer)
        there.cancel()
        to_there.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
