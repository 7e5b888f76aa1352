"""The transport between the SDK's client and a server in the shell guest: JSON-RPC, one message a
line, bounded against a server that floods.

The client is shown answers to what it asked, and the server's requests, which it refuses; nothing
else. A line that is too long answers every open request with an error. A server that says too much
unasked is hung up on.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from wire.text import parsed_json

from guest.tools.arguments import nested_deeper
from guest.tools.shell.program import Program, ProgramLostError

MESSAGE_MAX_BYTES: Final = 1024 * 1024
LINE_MAX_BYTES: Final = 32 * 1024 * 1024
"""After so much without an end of line there is none to wait for: the server is ended."""
NESTED_MAX: Final = 100
UNASKED_MAX: Final = 500
UNASKED_MAX_BYTES: Final = 4 * 1024 * 1024
"""How much a server may say in `_WINDOW_S` that answers nothing."""
_WINDOW_S: Final = 10.0
TOOLS_CHANGED: Final = "notifications/tools/list_changed"

_Incoming = MemoryObjectSendStream[SessionMessage | Exception]
_Outgoing = MemoryObjectReceiveStream[SessionMessage]


class UnsolicitedLimit:
    """What a server has said lately that answers nothing."""

    def __init__(self) -> None:
        self._messages = self._bytes = 0
        self._window_ends = 0.0

    def count(self, size: int) -> None:
        """Count a message. Raises `ProgramLostError` if it is too much."""
        now = time.monotonic()
        if now > self._window_ends:
            self._messages = self._bytes = 0
            self._window_ends = now + _WINDOW_S
        self._messages += 1
        self._bytes += size
        if self._messages > UNASKED_MAX or self._bytes > UNASKED_MAX_BYTES:
            raise ProgramLostError("it said too much that nobody had asked for")


class Connection:
    """One connection. `lost` is resolved with the reason when it has ended; `on_tools_changed` is
    called when the server says that its tools are others."""

    def __init__(self, on_tools_changed: Callable[[], None]) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_tools_changed = on_tools_changed
        self._unasked = UnsolicitedLimit()

    def transport(self) -> Transport:
        """What the SDK's client takes. It must be entered and left in one task."""
        raise NotImplementedError

    async def _hear(self, said: SessionMessage, to_client: _Incoming, size: int) -> None:
        """Take a message of so many bytes that answers nothing."""
        match said.message:
            case types.JSONRPCRequest():
                await to_client.send(said)
            case types.JSONRPCNotification(method=method) if method == TOOLS_CHANGED:
                self._on_tools_changed()
        self._unasked.count(size)

    def _lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)


class ProgramConnection(Connection):
    """A connection to a program in the shell guest."""

    def __init__(self, program: Program, on_tools_changed: Callable[[], None]) -> None:
        super().__init__(on_tools_changed)
        self._program = program
        self._open: set[types.RequestId] = set()

    @asynccontextmanager
    async def transport(
        self,
    ) -> AsyncIterator[
        tuple[
            MemoryObjectReceiveStream[SessionMessage | Exception],
            MemoryObjectSendStream[SessionMessage],
        ]
    ]:
        to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, to_client)
            tasks.start_soon(self._write, from_client, to_client)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()

    async def _read(self, to_client: _Incoming) -> None:
        async with to_client:
            line, dropped = bytearray(), 0
            try:
                async with aclosing(self._program.output()) as output:
                    async for data in output:
                        *whole, rest = data.split(b"\n")
                        for end in whole:
                            await self._take(bytes(line) + end, to_client, dropped)
                            line.clear()
                            dropped = 0
                        line += rest
                        if len(line) > MESSAGE_MAX_BYTES:
                            dropped += len(line)
                            line.clear()
                        if dropped > LINE_MAX_BYTES:
                            most = LINE_MAX_BYTES // 1024 // 1024
                            raise ProgramLostError(f"it wrote a line of over {most} MiB")
            except ProgramLostError as lost:
                self._lose(str(lost))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the client has left

    async def _write(self, from_client: _Outgoing, to_client: _Incoming) -> None:
        try:
            async for sent in from_client:
                message = sent.message
                if isinstance(message, types.JSONRPCRequest):
                    self._open.add(message.id)
                text = message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._program.write(text.encode() + b"\n")
        except ProgramLostError as lost:
            self._lose(str(lost))
            await to_client.aclose()

    async def _take(self, line: bytes, to_client: _Incoming, dropped: int) -> None:
        if dropped or len(line) > MESSAGE_MAX_BYTES:
            self._unasked.count(len(line) if self._open else len(line) + dropped)
            said = f"the answer is longer than {MESSAGE_MAX_BYTES // 1024} KiB"
            for request in list(self._open):
                await to_client.send(SessionMessage(_unusable(request, said)))
            self._open.clear()
            return
        message = _message(line)
        match message:
            case types.JSONRPCResponse(id=asked) | types.JSONRPCError(id=asked) if (
                asked is not None and asked in self._open
            ):
                self._open.discard(asked)
                not_the_sdks(message, types.REQUEST_TIMEOUT, types.CONNECTION_CLOSED)
                await to_client.send(SessionMessage(message))
            case None:
                self._unasked.count(len(line))
            case _:
                await self._hear(SessionMessage(message), to_client, len(line))


def _message(line: bytes) -> types.JSONRPCMessage | None:
    """The message in a line; None if it is not one. One that is nested too deeply for what reads it
    later is an error."""
    try:
        value = parsed_json(line)
        if isinstance(value, dict) and nested_deeper(value, NESTED_MAX):
            return _unusable(value.get("id"), "the answer is nested too deeply")
        return types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValueError:
        return None


def not_the_sdks(message: types.JSONRPCMessage, *codes: int) -> None:
    """Give a server's error another code than those by which the SDK tells what it met itself."""
    if isinstance(message, types.JSONRPCError) and message.error.code in codes:
        message.error.code = types.INTERNAL_ERROR


def _unusable(request: Any, said: str) -> types.JSONRPCError:
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=said)
    return types.JSONRPCError(jsonrpc="2.0", id=request, error=error)


def size_of(value: object) -> int:
    """The characters of a value's JSON."""
    return len(json.dumps(value, ensure_ascii=False))
