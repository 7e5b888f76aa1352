"""The gateway's methods over HTTP, as `runner serve` answers them: see `runner.serve.bridge`."""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, cast
from urllib.parse import quote

import httpx2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from wire.errors import Code, WireError
from wire.limits import GRPC_MESSAGE_MAX_BYTES
from wire.text import parsed_json

from runner.client.calls import IGNORED_HEADER, CallChannel, body_max_bytes
from runner.client.gateway import GatewayLost

log = logging.getLogger(__name__)

_ANSWER_MAX_BYTES: Final = 6 * GRPC_MESSAGE_MAX_BYTES
"""A message of the largest size, if JSON writes every character of it as an escape."""
_CONNECT_S: Final = 20.0
_SILENT_S: Final = 60.0
"""A stream says every fifteen seconds that it is open."""
_KEPT_S: Final = 2.0
"""How long a connection without a call is kept; the server closes it after five seconds."""
_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_AWAY: Final = frozenset({502, 503, 504})
_WHERE: Final = "ask the person who runs the agent for another access file"


def over_http(
    address: str, server_name: str, certificate: str, token: str, user_id: str
) -> CallChannel:
    """The agent of `user_id` behind the server at `address`, and behind no other: nothing is sent
    to one that does not prove to be `server_name` by a certificate of the authority `certificate`
    (empty: those that the world trusts).

    Calls raise `GatewayLost` if the connection is gone, FAILED_PRECONDITION for another server.
    """
    path = address.removeprefix("unix:") if address.startswith("unix:") else None
    transport = httpx2.AsyncHTTPTransport(
        verify=_trusting(certificate),
        uds=path,
        socket_options=None if path else _ALIVE,
        limits=httpx2.Limits(keepalive_expiry=_KEPT_S),
    )
    name = server_name or ("localhost" if path else address)
    try:
        http = httpx2.AsyncClient(
            transport=transport,
            base_url=f"https://{name if path else address}/api/users/{quote(user_id, safe='')}/",
            headers={"Host": name, "Authorization": f"Bearer {token}"},
            trust_env=False,
        )
    except httpx2.InvalidURL as error:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"the access file names no address: {address}",
            details=str(error),
            resolution=_WHERE,
        ) from None
    extensions = {"sni_hostname": server_name} if server_name else {}

    def begin(method: MethodDescriptor, request: Message) -> _Replies:
        return _Replies(_messages(http, address, method, request, extensions))

    return CallChannel(begin, http.aclose)


class _Replies:
    """Replies as they come, one at most ahead, read by a task that can be ended from anywhere."""

    def __init__(self, messages: AsyncGenerator[Message, None]) -> None:
        self._messages = messages
        self._read: asyncio.Queue[Message | WireError | None] = asyncio.Queue(1)
        self._reading: asyncio.Task[None] | None = None

    async def read(self) -> Message | None:
        self._reading = self._reading or asyncio.create_task(self._run())
        if isinstance(found := await self._read.get(), WireError):
            raise found
        return found

    def cancel(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _run(self) -> None:
        last: WireError | None = None
        try:
            async with aclosing(self._messages) as messages:
                async for message in messages:
                    await self._read.put(message)
        except WireError as error:
            last = error
        except Exception as error:
            log.exception("unexpected failure in a call")
            last = WireError(Code.INTERNAL, "internal error", details=repr(error))
        await self._read.put(last)


async def _messages(
    http: httpx2.AsyncClient,
    address: str,
    method: MethodDescriptor,
    request: Message,
    extensions: Mapping[str, Any],
) -> AsyncGenerator[Message, None]:
    body = json.dumps(
        MessageToDict(request, preserving_proto_field_name=True), ensure_ascii=False
    ).encode()
    if len(body) > (most := body_max_bytes(method)):
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"the request {method.name} is too large",
            details=f"{len(body):,} bytes; at most {most:,} are accepted",
        )
    timeout = httpx2.Timeout(
        _CONNECT_S, read=_SILENT_S if method.server_streaming else None, pool=None
    )
    sending = http.stream(
        "POST",
        method.name,
        content=body,
        headers={"Content-Type": "application/json"},
        timeout=timeout,
        extensions=dict(extensions),
    )
    try:
        async with sending as answer:
            if ignored := answer.headers.get(IGNORED_HEADER):
                log.warning("the server at %s is older, and has ignored %s", address, ignored)
            if answer.status_code != 200:
                raise _refusal(address, answer.status_code, await _whole(answer))
            if not method.server_streaming:
                yield _reply(method, _object(await _whole(answer)))
                return
            async with aclosing(_lines(answer)) as lines:
                async for line in lines:
                    if (message := _of_stream(method, line)) is not None:
                        yield message
    except httpx2.TransportError as error:
        if (unproven := _unproven(error)) is not None:
            raise WireError(
                Code.FAILED_PRECONDITION,
                f"somebody else answers at {address}: it did not prove to be who it must",
                details=str(unproven),
                resolution=_WHERE,
            ) from None
        raise GatewayLost(str(error) or type(error).__name__) from None


def _of_stream(method: MethodDescriptor, line: bytes) -> Message | None:
    """A reply of a stream; None for a line that says that the stream is open."""
    content = _object(line)
    if (error := _error(content)) is not None:
        if error.code is Code.UNAVAILABLE:  # the server ends, or the agent: follow again
            raise GatewayLost(error.brief)
        raise error
    return _reply(method, content) if content else None


def _reply(method: MethodDescriptor, content: dict[str, Any]) -> Message:
    try:
        return ParseDict(content, GetMessageClass(method.output_type)(), ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise _no_server(str(error)[:200]) from None


def _object(text: bytes) -> dict[str, Any]:
    try:
        content = parsed_json(text)
    except ValueError as error:
        raise _no_server(str(error)[:200]) from None
    if not isinstance(content, dict):
        raise _no_server("an answer is not a JSON object")
    return content


def _error(content: Mapping[str, Any]) -> WireError | None:
    told = content.get("error")
    if len(content) != 1 or not isinstance(told, dict):
        return None
    try:
        return WireError.of(told)
    except (ValueError, KeyError):
        return _no_server("an error has other fields than expected")


def _refusal(address: str, status: int, body: bytes) -> WireError:
    """What a request was refused with, by the server or by something before it."""
    try:
        error = _error(_object(body))
    except WireError:
        error = None
    if error is not None:
        return error
    if status in _AWAY:
        return GatewayLost(f"HTTP status {status}")
    return _no_server(f"{address} answered with the HTTP status {status}")


def _no_server(details: str) -> WireError:
    return WireError(
        Code.FAILED_PRECONDITION,
        "the server is not one of agents, or has another version",
        details=details,
        resolution=_WHERE,
    )


async def _whole(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        _check_size(body)
    return bytes(body)


async def _lines(answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
    held = bytearray()
    async for piece in cast(AsyncIterator[bytes], answer.aiter_raw()):
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield bytes(held + line)
            held.clear()
        held += rest
        _check_size(held)
    if held:
        raise GatewayLost("the answer ended in the middle of a line")


def _check_size(held: bytearray) -> None:
    if len(held) > _ANSWER_MAX_BYTES:
        raise _no_server(f"an answer has more than {_ANSWER_MAX_BYTES} bytes")


def _trusting(certificate: str) -> ssl.SSLContext:
    """Raises `WireError` (INVALID_ARGUMENT) for an invalid `certificate`."""
    try:
        context = ssl.create_default_context(cadata=certificate or None)
    except (ssl.SSLError, ValueError) as error:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "the access file has no certificate that can be read",
            details=str(error),
            resolution=_WHERE,
        ) from None
    if certificate:  # a runner's own authority leaves out what public ones must have
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _unproven(error: BaseException | None) -> ssl.SSLError | None:
    """The failure of a handshake behind `error`, if there is one."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return error
        error = error.__cause__ or error.__context__
    return None
