"""gRPC channels and servers: mutual TLS, a token on every call, errors as statuses.

On every endpoint (see `wire.endpoint`) both sides prove who they are (see `wire.identity`) before
anything of a call is sent: the client demands the server's name, the server one of the roles that
it serves. Every call also carries the random token of its launch in its metadata. Only the standard
health service needs no token; all that it tells is whether the server serves.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from wire import trace
from wire.boundary import marked
from wire.endpoint import LOST_AFTER_S, PROBE_AFTER_S, Endpoint
from wire.errors import Code, WireError
from wire.identity import Identity, Party, Peer, launch_of, party_of
from wire.limits import GRPC_MESSAGE_MAX_BYTES, TOKEN_METADATA_KEY, UNIX_SOCKET_PATH_MAX_BYTES
from wire.status import abort
from wire.tls import own_name

log = logging.getLogger(__name__)

OPTIONS = (
    ("grpc.max_receive_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.enable_http_proxy", 0),
    # Servers restart within a second or two. With gRPC's default it could take two minutes until a
    # client notices.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Whoever connects and says nothing must not hold a descriptor for two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
)
NOTICING_LOSS = (
    ("grpc.keepalive_time_ms", PROBE_AFTER_S * 1000),
    ("grpc.keepalive_timeout_ms", (LOST_AFTER_S - PROBE_AFTER_S) * 1000),
    # For pings that gRPC sends anyhow: while one is under way, it sends none of these.
    ("grpc.http2.ping_timeout_ms", (LOST_AFTER_S - PROBE_AFTER_S) * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A server takes pings that come twice as often for no attack.
    ("grpc.http2.min_ping_interval_without_data_ms", PROBE_AFTER_S * 500),
)
"""Between machines, where the other side can be gone without a word."""
_INTERNAL = WireError(
    Code.INTERNAL,
    "internal error",
    details="an unexpected failure; the log has the traceback",
    resolution="runner logs",
)
_HEALTH_PREFIX = "/grpc.health.v1.Health/"
WRONG_TOKEN: Final = WireError(Code.UNAUTHENTICATED, "missing or wrong launch token")
_SEALED: Final = WireError(
    Code.UNAVAILABLE,
    "it has just been started and is being checked",
    resolution="try again in a moment",
)


def new_token() -> str:
    """A fresh launch token: a mark to recognise it by, and 256 random bits."""
    return marked(secrets.token_urlsafe(15), secrets.token_urlsafe(32))


def unix_endpoint(path: Path) -> str:
    """The endpoint of a socket at `path`.

    Raises `WireError` (INVALID_ARGUMENT) if the system cannot bind it.
    """
    if len(str(path).encode()) > UNIX_SOCKET_PATH_MAX_BYTES:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"socket path is too long: {path}",
            details=f"{len(str(path).encode())} bytes; the system allows "
            f"{UNIX_SOCKET_PATH_MAX_BYTES}",
            resolution="choose a shorter workspace_root or runtime_dir",
        )
    return f"unix:{path}"


def listener(argument: str) -> str:
    """The endpoint that an argument of a server names: a path, or `tcp:*:PORT`.

    Raises `WireError` (INVALID_ARGUMENT) if it names none.
    """
    text = argument if argument.startswith("tcp:") else unix_endpoint(Path(argument))
    Endpoint.of(text)
    return text


class _WithToken:
    """Adds the token to calls. gRPC registers an interceptor only for the first kind it matches,
    so each kind has its own class."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def _call(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        return await continuation(_with_token(client_call_details, self._token), request)


class _TokenOnCalls(_WithToken, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _WithToken._call


class _TokenOnStreams(_WithToken, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _WithToken._call


def _with_token(details: grpc.aio.ClientCallDetails, token: str) -> grpc.aio.ClientCallDetails:
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    metadata.add(TOKEN_METADATA_KEY, token)
    if (place := trace.here.get()) is not None:
        metadata.add(trace.METADATA_KEY, str(place))
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


def open_channel(peer: Peer) -> grpc.aio.Channel:
    """A channel to `peer`, and to nobody else: to a server that does not prove to be it, nothing
    is sent. The caller closes it. Raises `WireError` like `Endpoint.of_target`."""
    identity = peer.identity
    target = Endpoint.of_target(peer.endpoint, peer.launch_id)
    return grpc.aio.secure_channel(
        target.for_grpc,
        grpc.ssl_channel_credentials(
            identity.authority.encode(), identity.key.encode(), identity.certificate.encode()
        ),
        options=(*_options(target), ("grpc.ssl_target_name_override", peer.name)),
        interceptors=[_TokenOnCalls(peer.token), _TokenOnStreams(peer.token)],
    )


def _options(endpoint: Endpoint) -> tuple[tuple[str, Any], ...]:
    return OPTIONS if endpoint.is_here else (*OPTIONS, *NOTICING_LOSS)


class _Guard(grpc.aio.ServerInterceptor):
    """Checks the caller's role and token, and only then reads the request; turns raised errors into
    statuses."""

    def __init__(
        self,
        serves: Collection[Party],
        token: str,
        sealed: bool,
        on_call: Callable[[Party], None],
    ) -> None:
        self._serves = sorted(serves)
        self._on_call = on_call
        self._tokens = [token.encode()]
        self._refusal = _SEALED if sealed else WRONG_TOKEN

    def admit(self, token: str) -> None:
        self._tokens.append(token.encode())
        self._refusal = WRONG_TOKEN

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        needs_token = not handler_call_details.method.startswith(_HEALTH_PREFIX)
        read = partial(message_of, handler.request_deserializer)
        if handler.request_streaming:
            make = grpc.stream_stream_rpc_method_handler
            call = self._streaming(handler.stream_stream, partial(_each, read), needs_token=True)
        elif handler.response_streaming:
            make = grpc.unary_stream_rpc_method_handler
            call = self._streaming(handler.unary_stream, read, needs_token)
        else:
            make = grpc.unary_unary_rpc_method_handler
            call = self._single(handler.unary_unary, read, needs_token)
        return make(call, response_serializer=handler.response_serializer)

    @asynccontextmanager
    async def _admitted(
        self, context: grpc.aio.ServicerContext[Any, Any], needs_token: bool
    ) -> AsyncIterator[None]:
        caller = await self._check_role(context)
        if needs_token:
            await self._authenticate(context)
        self._on_call(caller)
        for key, value in context.invocation_metadata() or ():
            if key == trace.METADATA_KEY and isinstance(value, str):
                trace.here.set(trace.SpanContext.of(value))
        try:
            yield
        except WireError as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception:
            log.exception("unexpected failure in a call")
            await abort(context, _INTERNAL)

    async def _check_role(self, context: grpc.aio.ServicerContext[Any, Any]) -> Party:
        caller = caller_of(context)
        if caller is None or caller not in self._serves:
            names = [name.decode() for name in context.peer_identities() or ()]
            await abort(
                context,
                WireError(
                    Code.PERMISSION_DENIED,
                    f"this server does not serve {' and '.join(names) or 'callers without a role'}",
                    details=f"it serves {', '.join(self._serves)}, by the names in certificates",
                    resolution="runner restart",
                ),
            )
        return caller

    async def _authenticate(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        for key, value in context.invocation_metadata() or ():
            sent = value.encode() if isinstance(value, str) else value
            known = [hmac.compare_digest(sent, token) for token in self._tokens]
            if key == TOKEN_METADATA_KEY and any(known):
                return
        await abort(context, self._refusal)

    def _single(
        self, answer: Callable[..., Any], read: Callable[[Any], Any], needs_token: bool
    ) -> Callable[..., Any]:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            async with self._admitted(context, needs_token):
                return await answer(read(request), context)

        return call

    def _streaming(
        self, answer: Callable[..., Any], read: Callable[[Any], Any], needs_token: bool
    ) -> Callable[..., Any]:
        async def call(
            request: Any, context: grpc.aio.ServicerContext[Any, Any]
        ) -> AsyncIterator[Any]:
            async with self._admitted(context, needs_token):
                async for item in answer(read(request), context):
                    yield item

        return call


async def _each(read: Callable[[bytes], Any], requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for request in requests:
        yield read(request)


class Server:
    """A gRPC server on one endpoint with mutual TLS, token check, error mapping and health.

    Add the services to `grpc`, then `start`. `set_serving` says what health checks see. `stop` ends
    the server and removes the socket. `start` replaces an old socket file: its caller holds the
    lock of that place, so no other server uses it.

    Every call must carry `token`, and come from a party of the same authority as `identity` whose
    role is one that it `serves`. With `sealed`, callers without `token` are told to wait
    (UNAVAILABLE) until `admit` has added another token. With `for_all_uids`, every uid that reaches
    a Unix socket may open it, and not this process's own alone. `on_call` is told who makes a call,
    of every one that is let in and of health checks.

    Raises `WireError` (INVALID_ARGUMENT) for an endpoint that other machines can reach, if the
    identity names no launch.
    """

    def __init__(
        self,
        endpoint: str,
        token: str,
        identity: Identity,
        serves: Collection[Party],
        *,
        sealed: bool = False,
        for_all_uids: bool = False,
        on_call: Callable[[Party], None] = lambda _: None,
    ) -> None:
        self.endpoint = endpoint
        self._place = listening(endpoint, identity)
        self._socket_mode = 0o666 if for_all_uids else 0o600
        self._credentials = grpc.ssl_server_credentials(
            [(identity.key.encode(), identity.certificate.encode())],
            identity.authority.encode(),
            require_client_auth=True,
        )
        self._health = health.aio.HealthServicer()
        guard = _Guard(serves, token, sealed, on_call)
        self.admit = guard.admit
        self.grpc = grpc.aio.server(interceptors=[guard], options=_options(self._place))
        self._stopping = asyncio.Lock()  # gRPC can crash where a server is stopped twice at once
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)

    @property
    def _socket(self) -> Path | None:
        return Path(self._place.path) if self._place.path else None

    async def start(self) -> None:
        self._remove_socket()
        try:
            port = self.grpc.add_secure_port(self._place.for_grpc, self._credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise WireError(
                Code.UNAVAILABLE,
                f"cannot listen on {self.endpoint}",
                details="the address is taken or its directory is not writable",
            )
        await self.grpc.start()
        if self._socket is not None:
            self._socket.chmod(self._socket_mode)

    async def set_serving(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self._health.set("", status.SERVING if serving else status.NOT_SERVING)

    async def stop(self, grace: float = 1.0) -> None:
        async with self._stopping:
            await self._health.enter_graceful_shutdown()
            await self.grpc.stop(grace)
        self._remove_socket()

    def _remove_socket(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # whoever binds there is told
                self._socket.unlink()


def listening(endpoint: str, identity: Identity) -> Endpoint:
    """Where a server with this identity listens. Raises `WireError` like `Server`."""
    return Endpoint.of_listener(endpoint, launch_of(own_name(identity)))


def caller_of(context: grpc.aio.ServicerContext[Any, Any]) -> Party | None:
    """Who makes a call, by the one name in the certificate; None if that says nothing."""
    names = list(context.peer_identities() or ())
    return party_of(names[0].decode(errors="replace")) if len(names) == 1 else None


def require(context: grpc.aio.ServicerContext[Any, Any], party: Party) -> None:
    """Raise `WireError` (PERMISSION_DENIED) if another party than `party` makes this call."""
    if caller_of(context) != party:
        raise WireError(Code.PERMISSION_DENIED, f"only the {party} may call this")


async def check_health(channel: grpc.aio.Channel, timeout: float = 2.0) -> bool:
    """Whether the server behind `channel` says SERVING within `timeout` seconds. False if the
    channel is closed in the meantime."""
    stub = health_pb2_grpc.HealthStub(channel)
    try:
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout)
    except (grpc.RpcError, grpc.aio.UsageError):
        return False
    except asyncio.CancelledError:
        if was_cancelled():
            raise
        return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def was_cancelled() -> bool:
    """Whether a `CancelledError` is meant for the running task. gRPC also raises it in tasks that
    wait on a channel while it is closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def message_of(read: Callable[[bytes], Any], request: bytes) -> Any:
    """The message that `read` makes of a request.

    Raises `WireError` (INVALID_ARGUMENT) for what is no message of the contract.
    """
    try:
        return read(request)
    except DecodeError:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "the request cannot be read",
            details="it is not a message of this contract",
            resolution="use a client of the same version",
        ) from None
