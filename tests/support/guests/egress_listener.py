"""A listener of egress that tests play themselves: what callers send, and an answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wire import tls
from wire.identity import Identity, Party
from wire.v1 import shell_pb2

from tests.support import parties

TOKEN = "the-token-of-egress"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWER)


@dataclass
class FakeEgress:
    """What came in: the greetings, and how many connections are open. `serve` does the rest."""

    socket: Path
    serve: Serve = _answer
    greetings: list[str] = field(default_factory=list)
    open: int = 0

    def request(self, **fields: Any) -> shell_pb2.SetEgressRequest:
        """That lets commands out here."""
        return shell_pb2.SetEgressRequest(door=f"unix:{self.socket}", token=TOKEN, **fields)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            self.greetings.append((await reader.readline()).decode())
            await self.serve(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def fake_egress(
    directory: Path, serve: Serve = _answer, identity: Identity | None = None
) -> AsyncIterator[FakeEgress]:
    """Serve at `http.sock` of the directory."""
    listener = FakeEgress(directory / "http.sock", serve)
    context = tls.server_context(identity or parties.identity(Party.EGRESS))
    server = await asyncio.start_unix_server(listener.accept, listener.socket, ssl=context)
    try:
        yield listener
    finally:
        server.close()
        with contextlib.suppress(FileNotFoundError):
            listener.socket.unlink()
