"""The transport between the SDK's client and a server that has an address, through egress.

As with servers in the shell, the client is shown answers and requests, and nothing else. An answer
that is too long breaks the request off, and a server that says too much unasked is hung up on.

An answer of HTTP that is no message becomes one that says what it is and what to do. A redirect is
followed as far as egress leads there: below the address that is configured.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from wire.text import parsed_json, visible

from guest.egress_client import REFUSED, EgressClient, refusal, refusal_in, url_of
from guest.tools.mcp.connection import MESSAGE_MAX_BYTES, Connection, not_the_sdks
from guest.tools.shell.program import ProgramLostError

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
    401: "it wants a login (401): name a variable that holds one in {setting}.headers_env",
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
        self._answers = _Bounded(self._egress.transport(), self._name, self._url, self._lose)
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
                self._lose(refused.brief)
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
                self._lose(self._answers.refused or "it has closed the connection")
            except ProgramLostError as lost:
                self._lose(str(lost))
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
        self._url = url
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
        with suppress(KeyError, ValueError):
            there = urljoin(self._url, response.headers["location"])
            if status in (307, 308) and there.startswith(self._url.rstrip("/") + "/"):
                response.headers["location"] = _at_egress(self._name, self._url, there)
                if response.headers["location"] != str(request.url):
                    return response
            there = visible(urlsplit(there)._replace(query="", fragment="").geturl())
            said = f"it redirects to {there[:_SHOWN_MAX_CHARS]}: correct {{setting}}.url"
        code = None
        with suppress(httpx2.HTTPError, httpx2.StreamError, ValueError, TypeError, KeyError):
            code = parsed_json(await response.aread())["error"]["code"]
        await response.aclose()
        said = said.replace("{setting}", f"mcp.servers.{self._name}")
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
    """The error, or the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
