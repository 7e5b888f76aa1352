"""Calls of the gateway's methods that go through no connection of gRPC.

`CallChannel` stands where generated code and `GatewayClient` expect a channel. What makes a call is
a function: in this process that of `Callers`, from another account or machine that of `over_http`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, Protocol, Self

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

IGNORED_HEADER: Final = "X-Oxydra-Ignored"
"""In an answer over HTTP: the fields of the request that the server does not know."""
SERVICE: Final = gateway_pb2.DESCRIPTOR.services_by_name["Gateway"]
_LARGEST: Final = 24 * 1024 * 1024
"""A message of the largest size that gateways take, with its bytes as base64."""
_BODY_BYTES: Final[Mapping[str, int]] = {
    "ImportMemory": _LARGEST,
    "WriteFile": _LARGEST,
    "StartTurn": 4 * 1024 * 1024,
    "CallTool": 4 * 1024 * 1024,
    "AnswerCall": 4 * 1024 * 1024,
}
_BODY_BYTES_OTHERWISE: Final = 256 * 1024


def body_max_bytes(method: MethodDescriptor) -> int:
    """How large a request may be over HTTP."""
    return _BODY_BYTES.get(method.name, _BODY_BYTES_OTHERWISE)


class Replies(Protocol):
    """The replies to one call, which begins with the first `read`."""

    async def read(self) -> Message | None:
        """The next reply; None after the last one. Raises `WireError`."""

    def cancel(self) -> None:
        """End the call. Idempotent."""


Begin = Callable[[MethodDescriptor, Message], Replies]
"""A call of a method with a request, of which nothing was sent yet. Raises `WireError`."""


class Call:
    """A call as generated code and `GatewayClient` use calls."""

    def __init__(self, replies: Replies, timeout: float | None) -> None:
        self._replies = replies
        self._timeout = timeout

    def __await__(self) -> Any:
        return self._only().__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    async def read(self) -> Any:
        """The next message, or `grpc.aio.EOF`."""
        reply = await self._replies.read()
        return grpc.aio.EOF if reply is None else reply

    def cancel(self) -> None:
        self._replies.cancel()

    async def _only(self) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await self.read()
        except TimeoutError:
            raise WireError(
                Code.TIMEOUT,
                f"the agent has not answered for {self._timeout:.0f} seconds",
                resolution="try again; runner logs says what it does",
            ) from None
        finally:
            self.cancel()


class CallChannel(grpc.aio.Channel):
    """A channel whose calls `begin` makes; `end` closes what they go over."""

    def __init__(self, begin: Begin, end: Callable[[], Awaitable[None]] | None = None) -> None:
        self._begin = begin
        self._end = end

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Any:
        described = SERVICE.methods_by_name[method.rpartition("/")[2]]

        def call(request: Message, timeout: float | None = None, **_: Any) -> Call:
            return Call(self._begin(described, request), timeout)

        return call

    unary_stream = unary_unary

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:  # noqa: ARG002 - as gRPC has it
        """Calls that run end by themselves."""
        if self._end is not None:
            await self._end()

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        """Nobody outside streams requests; generated code asks for the method nevertheless."""
        return self._not_here

    stream_unary = stream_stream

    def _not_here(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("this channel only makes calls of the gateway's methods")

    get_state = wait_for_state_change = channel_ready = _not_here
