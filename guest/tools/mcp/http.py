"""The transport between the SDK's client and a server that has an address, by the door.

As with servers in the shell, the client is shown answers and requests, and nothing else. An answer
that is too long breaks the request off, and a server that says too much unasked is hung up on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from guest.door import REFUSED, Door, refusal, refusal_in
from guest.tools.mcp.connection import MESSAGE_MAX_BYTES, TOOLS_CHANGED, Unasked
from guest.tools.shell.program import ProgramLostError

_CONNECT_S: Final = 10.0
_EVENTS: Final = "text/event-stream"


class HttpConnection:
    """One connection to the server at `url`, an address of `guest.door`. `lost` is resolved with
    the reason when it has ended; `on_tools_changed` is called when the server says that its tools
    are others."""

    def __init__(self, door: Door, url: str, on_tools_changed: Callable[[], None]) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._url = url
        self._door = door
        self._on_tools_changed = on_tools_changed
        self._unasked = Unasked()

    def transport(self) -> Transport:
        """What the SDK's client takes. It must be entered and left in one task."""
        return self._streams()

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        client = httpx2.AsyncClient(
            transport=_Bounded(self._door.transport(), self._lose),
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
            trust_env=False,
        )
        http = streamable_http_client(
            self._url, http_client=client, max_sse_event_size=MESSAGE_MAX_BYTES
        )
        try:
            async with client, http as (said, to_server), anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, said, to_client)
                try:
                    yield incoming, to_server
                finally:
                    tasks.cancel_scope.cancel()
        except BaseException as error:
            if (refused := refusal_in(_first(error))) is not None:
                self._lose(refused.brief)
            raise

    async def _read(self, said: Any, to_client: Any) -> None:
        async with to_client:
            try:
                async for each in said:
                    if isinstance(each, Exception):
                        continue
                    match message := each.message:
                        case types.JSONRPCResponse() | types.JSONRPCError():
                            await to_client.send(each)
                            continue
                        case types.JSONRPCRequest():
                            await to_client.send(each)
                        case types.JSONRPCNotification(method=method) if method == TOOLS_CHANGED:
                            self._on_tools_changed()
                    self._unasked.count(len(message.model_dump_json()))
                self._lose("it has closed the connection")
            except ProgramLostError as lost:
                self._lose(str(lost))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the client has left

    def _lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)


class _Bounded(httpx2.AsyncBaseTransport):
    """Reads no more than one message of an answer, and hears when the door refuses."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, lose: Callable[[str], None]) -> None:
        self._inner = inner
        self._lose = lose

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if kind := response.headers.get(REFUSED):
            why = (await response.aread()).decode("utf-8", "replace")
            self._lose(refusal(response.status_code, kind, why).brief)
        elif not response.headers.get("content-type", "").startswith(_EVENTS):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Cut(response.stream)
        return response

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


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
