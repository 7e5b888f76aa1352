"""Calls of any method of a real server, over its socket, by anybody.

Who does not prove to be somebody whom the server serves, or has no token, is refused, and nothing
of the call reaches the service. All others get an answer or a refusal of the contract: one that
names the field, shows nothing secret, and never is a failure that nobody has thought of.

Methods are those of the generated descriptors: a new one is called without being named here.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from wire.errors import Code, WireError
from wire.identity import Identity, Party
from wire.limits import TOKEN_METADATA_KEY
from wire.status import from_rpc_error
from wire.transport import Server

from runner.host.authority import Authority
from tests.fuzz.material import Choices, OneInput, chosen
from tests.fuzz.targets.rpc.messages import fill
from tests.support import parties

_DEADLINE_S: Final = 120.0
_NO_PATIENCE_S: Final = 0.2
_STREAM_MAX: Final = 200
_REFUSED: Final = {
    Code.UNAUTHENTICATED,
    Code.PERMISSION_DENIED,
    Code.UNAVAILABLE,
    Code.RESOURCE_EXHAUSTED,  # gRPC's own, for a token of 16 KiB
}
_UNEXPECTED: Final = {Code.INTERNAL, Code.DATA_LOSS, Code.TIMEOUT, Code.CANCELLED}
_UNREADABLE: Final = "the request cannot be read"
_TOO_LATE: Final = "Internal error from Core"
"""What gRPC's client makes of a message that it sends on a stream that has just ended."""


@dataclass(frozen=True)
class Served:
    """A server, and whom it hears.

    Attributes:
        path: Its socket.
        party: The role that its certificate names.
        service: What it serves.
        callers: The roles that it answers.
        token: What its calls carry.
        reached: The methods that were called, as the service sees them.
        words: Texts that mean something to it.
        tame: Changes a request into one that does no harm.
        judge: Looks at the bytes of a reply, or the text of an error, of a method.
        costly: Methods that are called sixteen times less often than the others.
        waiting: Methods that wait for a person, and are given up soon.
    """

    path: str
    party: Party
    service: ServiceDescriptor
    callers: Sequence[Party]
    token: str = "the-token-of-this-launch"
    reached: list[str] = field(default_factory=list)
    words: Sequence[str] = ()
    tame: Callable[[Message], None] = lambda _: None
    judge: Callable[[str, bytes], None] = lambda _method, _shown: None
    costly: Sequence[str] = ()
    waiting: Sequence[str] = ()

    def patience_s(self, method: MethodDescriptor) -> float:
        return _NO_PATIENCE_S if method.name in self.waiting else _DEADLINE_S

    @property
    def strangers(self) -> list[Party]:
        """The roles that it does not answer."""
        return [party for party in Party if party not in self.callers]


def watched(service: Any, methods: ServiceDescriptor, reached: list[str]) -> Any:
    """`service`, which writes down the name of each method that is reached."""

    def noted(method: MethodDescriptor) -> Callable[..., Any]:
        call = getattr(service, method.name)

        async def single(request: Message, context: Any) -> Any:
            reached.append(method.name)
            return await call(request, context)

        async def stream(request: Message, context: Any) -> AsyncIterator[Any]:
            reached.append(method.name)
            async for item in call(request, context):
                yield item

        return stream if method.server_streaming else single

    return SimpleNamespace(**{method.name: noted(method) for method in methods.methods})


async def serve(
    served: Served, service: Any, add: Callable[[Any, grpc.aio.Server], None], stack: AsyncExitStack
) -> "Caller":
    """Start a server of `service`, which `add` of the generated code gives to it. Both it and the
    caller that is returned end with `stack`."""
    identity = parties.identity(served.party)
    server = Server(f"unix:{served.path}", served.token, identity, set(served.callers))
    add(watched(service, served.service, served.reached), server.grpc)
    await server.start()
    stack.push_async_callback(server.stop, 0)
    return calling(served, stack)


def calling(served: Served, stack: AsyncExitStack) -> "Caller":
    """A caller that ends with `stack`."""
    caller = Caller(served)
    stack.push_async_callback(caller.close)
    return caller


@contextmanager
def opened(
    start: Callable[[Path, AsyncExitStack], Coroutine[Any, Any, "Caller"]], scratch: Path
) -> Iterator[OneInput]:
    """What makes the calls of an input to the server that `start` starts in `scratch`."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        caller = runner.run(start(scratch, stack))
        try:
            yield lambda data: runner.run(caller.one_input(data))
        finally:  # gRPC's own threads crash if calls outlive the event loop
            runner.run(stack.aclose())


class Caller:
    """Makes the calls of inputs. The channels of those who are served stay open."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._stack = AsyncExitStack()
        self._channels: dict[Party, grpc.aio.Channel] = {}

    async def one_input(self, data: bytes) -> None:
        """One to four calls, or bytes that are no call at all."""
        choices = Choices(data)
        for _ in range(1 + choices.below(4)):
            if not (kind := choices.below(16)):
                await self._bytes(choices.rest())
            elif kind < _WAYS_FROM:
                await self._admitted(choices)
            else:
                await self._stranger(choices, kind - _WAYS_FROM)

    async def close(self) -> None:
        await self._stack.aclose()
        self._channels.clear()

    async def _admitted(self, choices: Choices) -> None:
        """A call with the right certificate and the token: it is answered, or refused in words."""
        served = self._served
        party = choices.one_of(served.callers)
        method = choices.one_of(served.service.methods)
        if method.name in served.costly and choices.below(16):
            return
        request = request_of(method, choices, served.words, served.tame)
        token = [(TOKEN_METADATA_KEY, served.token)]
        try:
            patience_s = served.patience_s(method)
            for reply in await _called(
                self._channel(party), method, request, token, timeout_s=patience_s
            ):
                served.judge(method.name, reply)
        except grpc.RpcError as raised:
            error = from_rpc_error(raised)
            given_up = error.code is Code.TIMEOUT and method.name in served.waiting
            if given_up or _too_late(error, method):
                return
            assert error.code not in _UNEXPECTED, f"{method.name}: {error!r} {error.details}"
            assert error.code is not Code.INVALID_ARGUMENT or _names_a_place(error, method), (
                f"{method.name}: it names no field: {error.brief}"
            )
            served.judge(method.name, str(error).encode(errors="replace"))

    async def _stranger(self, choices: Choices, way: int) -> None:
        """A call by somebody who lacks something: it never reaches the service."""
        served = self._served
        method = choices.one_of(served.service.methods)
        before = len(served.reached)
        async with AsyncExitStack() as stack:
            channel, token = self._lacking(choices, way, stack)
            request = request_of(method, choices, served.words, served.tame)
            try:
                await _called(channel, method, request, token)
            except grpc.RpcError as raised:
                error = from_rpc_error(raised)
                refused = error.code in _REFUSED or _too_late(error, method)
                assert refused, f"{method.name}: {error!r}"
                assert served.token not in str(error)
            else:
                raise AssertionError(f"{method.name}: a stranger is answered")
        assert len(served.reached) == before, "a stranger's call reaches the service"

    def _lacking(
        self, choices: Choices, way: int, stack: AsyncExitStack
    ) -> tuple[grpc.aio.Channel, list[tuple[str, str]]]:
        served = self._served
        token = [(TOKEN_METADATA_KEY, served.token)]
        match way:
            case 0:
                return self._channel(served.callers[0]), []
            case 1:
                wrong = _other_token(choices, served.token)
                return self._channel(served.callers[0]), [(TOKEN_METADATA_KEY, wrong)]
            case 2:
                return self._channel(choices.one_of(served.strangers)), token
            case 3:
                foreign = _foreign(choices.one_of(served.callers))
                ours = parties.identity(served.party).authority
                mixed = Identity(foreign.certificate, foreign.key, ours)
                channel = _secure(served, mixed)
            case 4:
                ours = parties.identity(served.party).authority
                credentials = grpc.ssl_channel_credentials(ours.encode())
                channel = grpc.aio.secure_channel(
                    f"unix:{served.path}", credentials, options=_named(served.party)
                )
            case _:
                channel = grpc.aio.insecure_channel(f"unix:{served.path}")
        stack.push_async_callback(channel.close)
        return channel, token

    async def _bytes(self, data: bytes) -> None:
        """Bytes instead of a handshake; the server goes on."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            with suppress(BlockingIOError, BrokenPipeError, ConnectionError):
                connection.connect(self._served.path)
                connection.send(data)
        await asyncio.sleep(0)

    def _channel(self, party: Party) -> grpc.aio.Channel:
        if party not in self._channels:
            channel = _secure(self._served, parties.identity(party))
            self._stack.push_async_callback(channel.close)
            self._channels[party] = channel
        return self._channels[party]


def request_of(
    method: MethodDescriptor,
    choices: Choices,
    words: Sequence[str],
    tame: Callable[[Message], None] = lambda _: None,
) -> bytes:
    """A message of the method's kind, changed by `tame`, or bytes that are none. `words` are texts
    that mean something to who gets it."""
    request = GetMessageClass(method.input_type)()
    if choices.below(4) == 3:
        raw = choices.take(choices.below(256))
        try:
            request.ParseFromString(raw)
        except DecodeError:
            return raw
    else:
        fill(request, choices, words)
    tame(request)
    return request.SerializeToString()


def _too_late(error: WireError, method: MethodDescriptor) -> bool:
    """Whether the call was refused before its request was sent."""
    return error.brief == _TOO_LATE and method.client_streaming


def _names_a_place(error: WireError, method: MethodDescriptor) -> bool:
    """Whether a refusal names a field of the request, or a line in it."""
    if error.brief == _UNREADABLE or error.details.startswith("line "):
        return True
    return any(field.name in error.brief.replace(" ", "_") for field in method.input_type.fields)


_WAYS_FROM: Final = 10
"""The kinds of calls from here on lack something."""


async def _called(
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    request: bytes,
    metadata: Sequence[tuple[str, str]],
    timeout_s: float = _DEADLINE_S,
) -> list[bytes]:
    """The replies to a call, at most `_STREAM_MAX`."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    options: dict[str, Any] = {"metadata": tuple(metadata), "timeout": timeout_s}
    make: Any = channel.unary_stream if method.server_streaming else channel.unary_unary
    if method.client_streaming:
        make = channel.stream_stream
    call = make(path)(_alone(request) if method.client_streaming else request, **options)
    if not method.server_streaming:
        return [await call]
    replies = []
    async for reply in call:
        replies.append(reply)
        if len(replies) == _STREAM_MAX:
            call.cancel()
            break
    return replies


async def _alone(request: bytes) -> AsyncIterator[bytes]:
    yield request


def _secure(served: Served, identity: Identity) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(
        identity.authority.encode(), identity.key.encode(), identity.certificate.encode()
    )
    return grpc.aio.secure_channel(f"unix:{served.path}", credentials, options=_named(served.party))


def _named(party: Party) -> list[tuple[str, str]]:
    return [("grpc.ssl_target_name_override", party.value)]


@cache
def _foreign(party: Party) -> Identity:
    """An identity of the same role from another authority."""
    return Authority.new().issue(party)


def _other_token(choices: Choices, token: str) -> str:
    text = "".join(filter(str.isprintable, choices.text().encode("ascii", "ignore").decode()))
    others = [text, token[:-1], token + "x", token.swapcase(), token[::-1], "", f"{token},{token}"]
    other = choices.one_of(others)
    return "other" if other == token else other


def seeds(service: ServiceDescriptor) -> Mapping[str, bytes]:
    """A call of each method by somebody who is served, and one in each way that is refused."""
    own = {
        f"{method.name}-{filled}": chosen(0, 1, 0, number, filled * 3, *[1, 0, 0] * filled)
        for number, method in enumerate(service.methods)
        for filled in (0, 1)
    }
    strangers = {f"stranger-{way}": chosen(0, _WAYS_FROM + way, way, 0, 0) for way in range(6)}
    return own | strangers | {"no-handshake": chosen(0, 0, b"\x16\x03\x01\x02\x00\x01")}
