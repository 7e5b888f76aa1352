"""A network that misbehaves between a guest and its memory server.

Bytes pass unchanged until a fault is chosen. Every fault counts how often it struck.
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Final

SLOW_S: Final = 0.15
_WORD: Final = re.compile(rb'"[0-9a-f]{16}"')
"""What differs between a request and its repetition."""


class Fault(StrEnum):
    """What happens to a request."""

    DROP = "reset on the way there"
    """The connection ends, and the request with it."""
    CUT = "cut on the way there"
    """Half of the request arrives."""
    SWALLOW_REQUEST = "swallowed on the way there"
    """The request never arrives, and the connection stays open."""
    SLOW = "slow"
    """The answer comes late, piece by piece."""
    RESET = "reset in mid-answer"
    LOSE = "reset before the answer"
    SWALLOW = "answer swallowed"
    """The server does it, no answer comes, and the connection stays open."""
    GARBAGE = "answer garbled"
    ERROR = "answered 502"
    TWICE = "answered twice"
    """The answer comes, and once more when the client has read the first one."""
    REPEAT = "asked twice"
    """The server gets the request twice; its second answer is passed on."""


class BadNetwork:
    """A proxy on a port of its own; `fault` strikes each request while it is set."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self.port = 0
        self.fault: Fault | None = None
        self.left: int | None = None
        """How many requests the fault still strikes; None for all."""
        self.struck: Counter[Fault] = Counter()
        self._spared: set[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def strike(self, fault: Fault | None, times: int | None = None) -> None:
        self.fault, self.left = fault, times

    def spare_repetitions(self) -> None:
        """Strike no request twice: who asks again, whoever it is, gets through."""
        self._spared = set()

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _next(self, request: bytes) -> Fault | None:
        fault = self.fault
        if fault is None or self.left == 0:
            return None
        if self._spared is not None:
            asked = _WORD.sub(b"", request)
            if asked in self._spared:
                return None
            self._spared.add(asked)
        if self.left is not None:
            self.left -= 1
        self.struck[fault] += 1
        return fault

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = await _message(reader)
                fault = self._next(request)
                if not await self._pass_on(request, writer, fault):
                    break
        writer.transport.abort()

    async def _pass_on(
        self, request: bytes, writer: asyncio.StreamWriter, fault: Fault | None
    ) -> bool:
        """One request and its answer; whether the connection goes on."""
        if fault is Fault.DROP:
            return False
        if fault is Fault.SWALLOW_REQUEST:
            await asyncio.sleep(3600)
        if fault is Fault.CUT:
            await self._ask(request[: len(request) // 2], whole=False)
            return False
        answer = await self._ask(request)
        match fault:
            case Fault.LOSE:
                return False
            case Fault.SWALLOW:
                await asyncio.sleep(3600)
            case Fault.RESET:
                writer.write(answer[: len(answer) * 2 // 3])
                await writer.drain()
                return False
            case Fault.GARBAGE:
                head, _, body = answer.partition(b"\r\n\r\n")
                answer = (
                    head + b"\r\n\r\n" + body.replace(b"type", b"tpye").replace(b"null", b"nul1")
                )
            case Fault.ERROR:
                answer = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\nbad\n"
            case Fault.SLOW:
                half = len(answer) // 2
                for piece in (answer[:half], answer[half:]):
                    await asyncio.sleep(SLOW_S / 2)
                    writer.write(piece)
                    await writer.drain()
                return True
            case Fault.REPEAT:
                answer = await self._ask(request)
        writer.write(answer)
        await writer.drain()
        if fault is Fault.TWICE:
            await asyncio.sleep(0.02)
            writer.write(answer)
            await writer.drain()
        return True

    async def _ask(self, request: bytes, *, whole: bool = True) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            writer.write(request)
            await writer.drain()
            return await _message(reader) if whole else b""
        finally:
            writer.close()


@asynccontextmanager
async def between(port: int) -> AsyncIterator[BadNetwork]:
    """A network in front of the server on `port`, well at first."""
    network = BadNetwork(port)
    await network.start()
    try:
        yield network
    finally:
        await network.stop()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """One whole HTTP message, as it is."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    for line in lines:
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
        if line.startswith(b"transfer-encoding:") and b"chunked" in line:
            return head + await _chunks(reader)
    return head


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        chunks += size + await reader.readexactly(int(size, 16) + 2)
        if int(size, 16) == 0:
            return chunks
