"""A listener: a socket with mutual TLS at which one guest says what it wants, in HTTP, also inside
of TLS that ends here."""

import asyncio
import hmac
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server
from wire.egress.policy import Attempt
from wire.endpoint import Endpoint, notice_loss
from wire.identity import Identity, Party
from wire.limits import ID_PATTERN, TOKEN_METADATA_KEY
from wire.tls import server_context

from egress.admission.admission import Admission
from egress.admission.record import Caller
from egress.proxy.exchange import (
    HEAD_MAX,
    HEADERS_MAX,
    Exchange,
    bad_request,
    check,
    intercepted,
    proxied,
)
from egress.proxy.handshake import HEAD_S, Connect, HandshakeReader
from egress.proxy.tunnel import ESTABLISHED, carry
from egress.refusals import Refused

_SILENT: Final = logging.getLogger("egress.aiohttp")
"""aiohttp's own log of what clients do wrong."""
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())

BETWEEN_S: Final = 60.0
"""How long it has for that of another one."""
_LINGER_S: Final = 5.0
_READ_BYTES: Final = 32 * 1024
_AHEAD_MAX: Final = 2 * HEAD_MAX
"""How much of heads, of the ends of bodies and of requests that wait is read ahead."""

Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]


class Serving(RequestHandler):
    """One connection with requests. `lost` is called when it has ended. A request whose client has
    left is cancelled, and a client that sends too much which is neither body nor answered left."""

    __slots__ = ("_ahead", "_content", "_deadline", "_lost")

    def __init__(self, handle: Handler, lost: Callable[[], None]) -> None:
        async def answer(request: BaseRequest) -> StreamResponse:
            self._deadline.cancel()
            self._content, self._ahead = request.content, 0
            return await _answer(handle, request)

        loop = asyncio.get_running_loop()
        super().__init__(
            Server(answer, handler_cancellation=True),
            loop=loop,
            keepalive_timeout=BETWEEN_S,
            lingering_time=_LINGER_S,
            max_line_size=HEAD_MAX // 2,
            max_field_size=HEAD_MAX // 2,
            max_headers=HEADERS_MAX,
            read_bufsize=_READ_BYTES,
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]  # which aiohttp takes as none
            logger=_SILENT,
        )
        self._deadline = loop.call_later(HEAD_S, self.force_close)
        self._lost = lost
        self._content, self._ahead = EMPTY_PAYLOAD, 0

    def data_received(self, data: bytes) -> None:
        before = self._content.total_bytes
        super().data_received(data)
        self._ahead = 0 if self._content.total_bytes > before else self._ahead + len(data)
        if self._ahead > _AHEAD_MAX and self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)
        self._lost()

    def handle_error(
        self,
        _: BaseRequest,
        __: int = 500,
        ___: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer what is not a request."""
        words = " ".join((message or "").split())[:200]
        return refusal(bad_request(f"the request cannot be parsed: {words}"))


def refusal(refused: Refused) -> Response:
    """The answer to what is refused."""
    answer = Response(status=refused.status, headers=refused.headers, body=refused.body)
    answer.force_close()
    return answer


async def _answer(handle: Handler, request: BaseRequest) -> StreamResponse:
    try:
        return await handle(request)
    except Refused as refused:
        return refusal(refused)
    except ConnectionError:
        raise
    except Exception:
        log.exception("unexpected failure of a request")
        return refusal(Refused(500, "internal", "an unexpected failure; runner logs --role egress"))


log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 256
"""How many connections a listener has at once, whatever the settings say."""
CONNECTION_BYTES: Final = 704 * 1024
"""How much memory a connection takes at most, with all that waits for whoever does not read. It is
most where its TLS ends here (680 KiB); a request takes 450 KiB, a tunnel 250."""
HANDSHAKE_S: Final = 10.0
SESSION_HEADER: Final = "oxydra-session"
TURN_HEADER: Final = "oxydra-turn"

_BACKLOG: Final = 512
_GREETING: Final = re.compile(rb"OXYDRA/1 ([!-~]{1,200}) ([!-~]{1,64}) ([!-~]{1,64})")
_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_NONE: Final = "-"
_SERVED: Final[Mapping[str, Mapping[str, bool]]] = {
    Party.AGENT: {Party.AGENT: False, Party.RUNNER: True},
    Party.SHELL: {Party.SHELL: True},
}
"""Who is served at whose listener, and whether their connections begin with a line."""


class EgressListener:
    """Listens for the guest `role` at `place`.

    The shell's connections begin with the line `OXYDRA/1 TOKEN SESSION TURN` and are those of an
    HTTP proxy; so are those that the runner opens where the agent is, for notices. The agent's
    requests have that in headers, which go no further; besides a proxy's requests it has those to
    upstreams, at `/NAME/…`.
    """

    def __init__(
        self, place: Endpoint, identity: Identity, role: Party, admission: Admission
    ) -> None:
        self._place = place
        self._context = server_context(identity)
        self._context.num_tickets = 0
        self.role = role
        self.admission = admission
        self.exchange = Exchange(admission)
        self._visits: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen from now on. Raises `OSError`."""
        self._socket = self._place.listen(_BACKLOG)
        self._socket.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._socket))

    async def close(self) -> None:
        """Listen no more, and end every connection. Idempotent."""
        if self._accepting is None or self._socket is None:
            return
        self._accepting.cancel()
        for task in self._tasks:
            task.cancel()
        for visit in tuple(self._visits):
            visit.end()
        await asyncio.wait({self._accepting, *self._tasks})
        self._socket.close()
        self._place.remove()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("the listener for the %s: %s", self.role, error.strerror)
                await asyncio.sleep(0.2)
                continue
            if len(self._visits) >= CONNECTIONS_MAX:
                connection.close()
                continue
            visit = _Connection(self)
            self._visits.add(visit)
            self.run(self._receive(connection, visit))

    async def _receive(self, connection: socket.socket, visit: "_Connection") -> None:
        loop = asyncio.get_running_loop()
        try:
            notice_loss(connection)
            await loop.connect_accepted_socket(
                lambda: HandshakeReader(_SERVED[self.role], visit),
                connection,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except (OSError, ssl.SSLError):
            visit.lost()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let a connection's work go on beside others'."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def left(self, visit: "_Connection") -> None:
        """A connection has ended."""
        self._visits.discard(visit)

    def caller(self, token: str, session_id: str, turn_id: str, *, greeted: bool = True) -> Caller:
        """Who has shown `token` and says that it works for a session and turn. Raises `Refused`."""
        role = Party.RUNNER if greeted and self.role == Party.AGENT else self.role
        expected = self.admission.state.current.tokens[role]
        if not hmac.compare_digest(token.encode(), expected.encode()):
            raise Refused(403, "token", "who asks did not show the token of egress")
        if not all(each == "" or _ID.fullmatch(each) for each in (session_id, turn_id)):
            raise bad_request("invalid session or turn id")
        return Caller(role, session_id, turn_id)

    async def answer(self, request: BaseRequest, caller: Caller) -> StreamResponse:
        """The answer from outside to a request. Raises `Refused`."""
        try:
            check(request)
            if caller.role != Party.AGENT or not request.raw_path.startswith("/"):
                return await self.exchange.forward(request, proxied(request), caller)
            found = self.admission.state.current.upstreams.find(request.raw_path)
            if found is None:
                name = request.raw_path.split("/")[1][:80]
                raise Refused(404, "upstream", f"the settings name no server {name!r}")
            return await self.exchange.forward_upstream(request, *found, caller)
        except Refused as refused:
            host = request.headers.get("host", "")
            attempt = Attempt("http", host, 0, request.method[:40], request.raw_path)
            await self.admission.refuse(caller, attempt, refused)
            raise

    async def intercept(
        self, transport: asyncio.Transport, wanted: Connect, caller: Caller
    ) -> None:
        """Answer requests to `wanted` as that host itself, until the connection ends."""
        interception = self.admission.state.current.interception

        async def handle(request: BaseRequest) -> StreamResponse:
            try:
                check(request)
                target = intercepted(request, wanted.host, wanted.port)
                return await self.exchange.forward(request, target, caller)
            except Refused as refused:
                attempt = Attempt(
                    "https", wanted.host, wanted.port, request.method[:40], request.raw_path
                )
                await self.admission.refuse(caller, attempt, refused)
                raise

        transport.write(ESTABLISHED)
        try:
            await interception.serve(transport, wanted.host, lambda: Serving(handle, lambda: None))
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "reason", None) or error.strerror or "it has left"
            if why == "CALLBACK_FAILED":
                why = "it asks for another host"
            elif why.endswith(("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN")):
                why = "it does not trust the authority that commands are given"
            refused = Refused(
                502, "tls", f"the client does not speak TLS with egress as {wanted.host}: {why}"
            )
            attempt = Attempt("tunnel", wanted.host, wanted.port)
            await self.admission.refuse(caller, attempt, refused)
            transport.abort()


class _Connection:
    """One connection of a listener."""

    def __init__(self, listener: EgressListener) -> None:
        self._listener = listener
        self._said: tuple[str, str, str] | None = None
        self._counted: Caller | None = None
        self._transport: asyncio.Transport | None = None
        self._tunnel: asyncio.Task[None] | None = None

    def greet(self, line: bytes) -> None:
        found = _GREETING.fullmatch(line)
        if found is None:
            raise bad_request("the connection does not begin as those of the forwarder do")
        token, session_id, turn_id = (each.decode() for each in found.groups())
        self._said = (
            token,
            "" if session_id == _NONE else session_id,
            "" if turn_id == _NONE else turn_id,
        )

    def tunnel(self, transport: asyncio.Transport, wanted: Connect) -> None:
        caller = self._caller(wanted.headers)
        self._count(caller)
        self._transport = transport
        self._tunnel = self._listener.run(self._run(transport, wanted, caller))

    def serve(self, transport: asyncio.Transport, read: bytes) -> None:
        if self._said is not None:
            self._count(self._listener.caller(*self._said))
        self._transport = transport
        serving = Serving(self._handle, self.lost)
        transport.set_protocol(serving)
        serving.connection_made(transport)
        serving.data_received(read)

    def lost(self) -> None:
        """The connection has ended. Idempotent."""
        if self._tunnel is not None:
            self._tunnel.cancel()
        if self._counted is not None:
            self._listener.admission.disconnect(self._counted)
            self._counted = None
        self._listener.left(self)

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _handle(self, request: BaseRequest) -> StreamResponse:
        caller = self._caller(request.headers)
        self._count(caller)
        return await self._listener.answer(request, caller)

    def _caller(self, headers: Mapping[str, str]) -> Caller:
        if self._said is not None:
            return self._listener.caller(*self._said)
        names = (TOKEN_METADATA_KEY, SESSION_HEADER, TURN_HEADER)
        token, session_id, turn_id = (headers.get(name, "") for name in names)
        return self._listener.caller(token, session_id, turn_id, greeted=False)

    def _count(self, caller: Caller) -> None:
        if self._counted is None:
            self._listener.admission.connect(caller)
            self._counted = caller

    async def _run(self, transport: asyncio.Transport, wanted: Connect, caller: Caller) -> None:
        try:
            interception = self._listener.admission.state.current.interception
            if caller.role == Party.SHELL and interception.wants(wanted.host, wanted.port):
                await self._listener.intercept(transport, wanted, caller)
            else:
                admission = self._listener.admission
                await carry(admission, transport, wanted.host, wanted.port, caller)
        except Refused as refused:
            attempt = Attempt("tunnel", wanted.host, wanted.port)
            with suppress(asyncio.CancelledError):
                await self._listener.admission.refuse(caller, attempt, refused)
            transport.write(refused.raw())
            transport.close()
        except Exception:
            log.exception("unexpected failure of a tunnel")
            transport.abort()
        finally:
            self._tunnel = None
            self.lost()
