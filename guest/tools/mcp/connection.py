"""The transport between the SDK's client and a server in the shell guest: JSON-RPC, one message a
line, bounded against a server that floods.

The client is shown answers to what it asked, and the server's requests, which it refuses; nothing
else. A line that is too long answers every open request with an error. A server that says too much
unasked is hung up on.

A server that has an address is reached through egress, in the same way. An answer of HTTP that is
no message becomes one that says what it is and what to do. A redirect is followed as far as egress
leads there: below the address that is configured.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from wire.text import parsed_json, visible

from guest.egress_client import REFUSED, EgressClient, refusal, refusal_in, url_of
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
_LAST_WORDS_S: Final = 2.0
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

    def lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)


class ProgramConnection(Connection):
    """A connection to a program in the shell guest."""

    def __init__(self, program: Program, on_tools_changed: Callable[[], None]) -> None:
        super().__init__(on_tools_changed)
        self._program = program
        self._open: set[types.RequestId] = set()

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
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
                self.lose(str(lost))
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
            await asyncio.wait((self.lost,), timeout=_LAST_WORDS_S)  # for why it has ended
            self.lose(str(lost))
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


_CONNECT_S: Final = 10.0
_EVENTS: Final = "text/event-stream"
HTTP_ERROR: Final = -32_801
"""The code of an error that is an answer of HTTP; its data is the status."""
FORGOTTEN: Final = -32_802
"""The code of the error that the server knows the session no more: what was asked was not done."""
_TOGETHER_S: Final = 0.2
"""After that a forgotten session is ended: calls that were sent together are told the same."""
_SESSION: Final = "mcp-session-id"
_SHOWN_MAX_CHARS: Final = 500
_MEANINGS: Final = {
    401: "it wants a login (401): runner tools login {name}; or name a variable that holds one in "
    "{setting}.headers_env",
    403: "it refuses that login (403): correct the variable in {setting}.headers_env",
    **dict.fromkeys((404, 405), "there is no MCP server at this address: correct {setting}.url"),
    429: "it limits how often it is asked (429): wait a little",
}


class HttpConnection(Connection):
    """A connection to the server `name` at `url`, its own address."""

    def __init__(
        self, egress: EgressClient, name: str, url: str, on_tools_changed: Callable[[], None]
    ) -> None:
        super().__init__(on_tools_changed)
        self._name = name
        self._url = url
        self._egress = egress

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._answers = _Bounded(self._egress.transport(), self._name, self._url, self.lose)
        client = httpx2.AsyncClient(
            transport=self._answers,
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            trust_env=False,
        )
        http = streamable_http_client(
            _at_egress(self._name, self._url),
            http_client=client,
            max_sse_event_size=MESSAGE_MAX_BYTES,
        )
        try:
            async with client, http as (said, to_server), anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, said, to_client)
                try:
                    yield incoming, to_server
                finally:
                    tasks.cancel_scope.cancel()
        except BaseException as error:
            if (refused := refusal_in(first_of(error))) is not None:
                self.lose(refused.brief)
            raise

    async def _read(self, said: Any, to_client: Any) -> None:
        async with to_client:
            try:
                async for each in said:
                    if isinstance(each, Exception):
                        continue
                    message = each.message
                    if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                        not_the_sdks(message, types.REQUEST_TIMEOUT)
                        await to_client.send(each)
                    else:
                        await self._hear(each, to_client, len(message.model_dump_json()))
                self.lose(self._answers.refused or "it has closed the connection")
            except ProgramLostError as lost:
                self.lose(str(lost))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the client has left


class _Bounded(httpx2.AsyncBaseTransport):
    """Reads no more than one message of an answer, says what other answers mean, and hears when the
    egress refuses. `refused` is what the last answer means, if it was no success."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, name: str, url: str, lose: Callable[[str], None]
    ) -> None:
        self.refused = ""
        self._inner = inner
        self._name = name
        self._url = str(httpx2.URL(url))
        self._lose = lose

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if kind := response.headers.get(REFUSED):
            why = (await response.aread()).decode("utf-8", "replace")
            self._lose(refusal(response.status_code, kind, why).brief)
        elif not response.headers.get("content-type", "").startswith(_EVENTS):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Cut(response.stream)
            if request.method == "POST":
                kind = response.headers.get("content-type", "no type")[:_SHOWN_MAX_CHARS]
                self.refused = f"its answer is not an MCP message ({visible(kind)})"
                if response.status_code >= 300:
                    return await self._told(request, response)
        return response

    async def _told(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The message for an answer that is not a success."""
        status = response.status_code
        said = _MEANINGS.get(status, f"it fails (HTTP {status}): see its own log")
        with suppress(KeyError, ValueError, httpx2.InvalidURL):
            there = urljoin(self._url, response.headers["location"])
            plain = str(httpx2.URL(there))  # with no ".." that leads to another server at egress
            if status in (307, 308) and plain.startswith(self._url.rstrip("/") + "/"):
                response.headers["location"] = _at_egress(self._name, self._url, plain)
                if response.headers["location"] != str(request.url):
                    return response
            there = visible(urlsplit(there)._replace(query="", fragment="").geturl())
            said = f"it redirects to {there[:_SHOWN_MAX_CHARS]}: correct {{setting}}.url"
        code = None
        with suppress(httpx2.HTTPError, httpx2.StreamError, ValueError, TypeError, KeyError):
            code = parsed_json(await response.aread())["error"]["code"]
        await response.aclose()
        said = said.replace("{setting}", f"mcp.servers.{self._name}").replace("{name}", self._name)
        error = types.ErrorData(code=HTTP_ERROR, message=said, data=status)
        if status == 404 and _SESSION in request.headers and code != types.METHOD_NOT_FOUND:
            error = types.ErrorData(code=FORGOTTEN, message="it has forgotten the session")
            asyncio.get_running_loop().call_later(_TOGETHER_S, self._lose, error.message)
        self.refused = error.message
        if error.code == HTTP_ERROR and code is not None and status not in (401, 403):
            return response
        message = {"jsonrpc": "2.0", "id": None, "error": error.model_dump(exclude_none=True)}
        return httpx2.Response(status if status >= 400 else 502, json=message, request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Cut(httpx2.AsyncByteStream):
    """A body, as far as it is no longer than a message may be."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if size > MESSAGE_MAX_BYTES:
                raise httpx2.StreamError(f"longer than {MESSAGE_MAX_BYTES // 1024} KiB")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _at_egress(name: str, url: str, below: str = "") -> str:
    """The address at egress of `below`, which is below `url`; without it, of `url` itself."""
    base = url.rstrip("/")
    return url_of(f"mcp-{name}") + (below or url)[len(base) :]


def first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
