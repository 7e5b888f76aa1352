"""Servers of this machine's loopback interface, handed to one user's agent egress.

That guest has a loopback of its own, so it cannot connect to them. For each server that
`[egress] host_loopback` names there is a Unix socket in a directory that only this guest mounts,
read-only. A caller proves itself with a certificate of egress and a token. A connection carries one
request, which a strict parser (h11) reads here and which is written anew; its host, port and the
beginning of its path are the server's. No other byte reaches the server. Its answer is passed on
unread: egress reads it, as those of servers outside.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import re
import socket
from collections.abc import Collection
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

import h11
from wire.egress.loopback import LoopbackServer
from wire.egress.rules import ALTERING
from wire.identity import Identity, Party
from wire.limits import TOKEN_METADATA_KEY
from wire.tls import role_of, server_context

from runner.host.supervisor import first_of
from runner.workspace.beneath import clear, directory_beneath
from runner.workspace.workspace import Workspace

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
"""How many connections all sockets of one user have at once."""
HEAD_S: Final = 10.0
"""How long a caller may take for its handshake and the head of its request."""
_HEAD_MAX: Final = 32 * 1024
_PIECE: Final = 32 * 1024
_CONNECT_S: Final = 10.0
_REFUSALS_LOGGED_MAX: Final = 100
_METHODS: Final = (b"GET", b"HEAD", b"POST", b"DELETE")
_TARGET: Final = re.compile(rb"/[!-\"$-~]*")
_TOKEN: Final = TOKEN_METADATA_KEY.encode()
_OURS: Final = b"oxydra-"
_NOT_SENT: Final = frozenset((b"host", b"connection", b"keep-alive", b"te", b"trailer"))
_UNKNOWN: Final = frozenset((b"upgrade", b"http2-settings", b"expect"))
_ALTERING: Final = frozenset(name.encode() for name in ALTERING)


class _Refused(Exception):  # noqa: N818 - an answer, not an error
    """Why a request is not passed on, and with which status that is said."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def socket_name(server: LoopbackServer) -> str:
    """The name of the server's socket, which no other server has."""
    named = f"{server} of {server.provider}"
    return f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.sock"


def outward(request: h11.Request, server: LoopbackServer) -> h11.Request:
    """The request as the server gets it. Raises `_Refused` for any other than a plain one to it."""
    if request.http_version != b"1.1" or request.method not in _METHODS:
        raise _Refused(405, f"only {b', '.join(_METHODS).decode()} of HTTP/1.1 are passed on")
    target = request.target
    method, path = request.method.decode(), target.decode("latin-1").partition("?")[0]
    if not _TARGET.fullmatch(target) or not server.answers(method, path):
        raise _Refused(403, f"the path is not below {server}")
    named = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
    if len(named) != 1 or named[0].lower() not in server.authorities:
        raise _Refused(403, f"the header Host does not name {server}")
    names = {name.replace(b"_", b"-") for name, _ in request.headers}
    if (
        found := names & (_UNKNOWN | _ALTERING)
        or {b"content-length", b"transfer-encoding"} <= names
    ):
        shown = b", ".join(sorted(found)).decode() if isinstance(found, set) else "two lengths"
        raise _Refused(403, f"a request with {shown} is not passed on")
    words = {
        word.strip().lower()
        for name, value in request.headers
        if name == b"connection"
        for word in value.split(b",")
    }
    if words - {b"close", b"keep-alive"}:
        raise _Refused(403, "a request that changes its connection is not passed on")
    headers = [
        (name, value)
        for name, value in request.headers
        if name not in _NOT_SENT and not name.startswith((_OURS, b"proxy-"))
    ]
    host = server.authorities[-1].encode()
    return h11.Request(
        method=request.method,
        target=target,
        headers=[(b"host", host), *headers, (b"connection", b"close")],
    )


@dataclass
class HostLoopback:
    """The sockets of one user. `identity` is the runner's; callers show the `token`."""

    workspace: Workspace
    identity: Identity
    token: str = field(repr=False)
    _open: dict[LoopbackServer, tuple[socket.socket, asyncio.Task[None]]] = field(
        default_factory=dict
    )
    _connections: dict[asyncio.Task[None], LoopbackServer] = field(default_factory=dict)
    _logged: int = 0

    async def serve(self, servers: Collection[LoopbackServer]) -> None:
        """Hand these servers over, and no other one any more. Raises `OSError`."""
        for server in self._open.keys() - servers:
            await self._end(server)
        for server in servers:
            if server not in self._open:
                listener = self._listen(self._path(server))
                task = asyncio.create_task(self._accept(listener, server))
                self._open[server] = (listener, task)
                log.info("the agent's egress is handed %s of this machine", server)

    async def close(self) -> None:
        """Hand over nothing any more, and end every connection. Idempotent."""
        await self.serve(())

    async def silent(self) -> list[str]:
        """Which of the servers do not answer now, and why."""

        async def why(server: LoopbackServer) -> str:
            try:
                _, there = await _connect(server)
            except _Refused as refused:
                return f"{refused}; start that server"
            there.close()
            return ""

        return [each for each in await asyncio.gather(*map(why, self._open)) if each]

    def _path(self, server: LoopbackServer) -> Path:
        return self.workspace.host_sockets / socket_name(server)

    def _listen(self, path: Path) -> socket.socket:
        """A socket that its guest's uid may connect to."""
        self.workspace.provision()
        clear(path, self.workspace.path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with directory_beneath(self.workspace.path, path.parent) as directory:
                listener.bind(f"/proc/self/fd/{directory}/{path.name}")
                os.chown(path.name, *self.workspace.owner.ids, dir_fd=directory)
                Path(f"/proc/self/fd/{directory}/{path.name}").chmod(0o600)
            listener.listen(CONNECTIONS_MAX)
        except BaseException:
            listener.close()
            raise
        return listener

    async def _end(self, server: LoopbackServer) -> None:
        listener, accepting = self._open.pop(server)
        ending = [
            accepting,
            *(task for task, whose in self._connections.items() if whose == server),
        ]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        listener.close()
        with contextlib.suppress(OSError):
            clear(self._path(server), self.workspace.path)

    async def _accept(self, listener: socket.socket, server: LoopbackServer) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("the socket of %s: %s", server, error.strerror)
                await asyncio.sleep(0.2)
                continue
            if len(self._connections) >= CONNECTIONS_MAX:
                connection.close()
                continue
            task = asyncio.create_task(self._serve(connection, server))
            self._connections[task] = server
            task.add_done_callback(self._connections.pop)

    async def _serve(self, connection: socket.socket, server: LoopbackServer) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                reader, writer = await _secured(connection, self.identity)
        except (OSError, TimeoutError):  # `ssl.SSLError` is an `OSError`
            connection.close()
            return
        try:
            await self._pass_on(reader, writer, server)
        except (OSError, TimeoutError, h11.ProtocolError) as error:
            self._log("a connection to %s broke off: %s", server, error)
        finally:
            writer.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: LoopbackServer
    ) -> None:
        asking = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_MAX)
        async with asyncio.timeout(HEAD_S):
            request = await _next_event(asking, reader)
        ssl_object = writer.get_extra_info("ssl_object")
        if not isinstance(request, h11.Request) or role_of(ssl_object) != Party.EGRESS:
            return
        shown = [value for name, value in request.headers if name == _TOKEN]
        if len(shown) != 1 or not hmac.compare_digest(shown[0], self.token.encode()):
            self._log("a request to %s had not the token", server)
            return
        try:
            sent = outward(request, server)
            there = await _connect(server)
        except _Refused as refused:
            self._log("a request to %s was refused: %s", server, refused)
            await self._answer(writer, refused)
            return
        answering, back = there
        try:  # until one side ends
            await first_of(_ask(asking, sent, reader, back), _copy(answering, writer))
        finally:
            back.transport.abort()

    async def _answer(self, writer: asyncio.StreamWriter, refused: _Refused) -> None:
        """Our own answer. The token in it says so: no server knows that."""
        body = str(refused).encode()
        head = (
            f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}",
            f"{TOKEN_METADATA_KEY}: {self.token}",
            "content-type: text/plain",
            f"content-length: {len(body)}",
            "connection: close",
        )
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def _log(self, text: str, *words: object) -> None:
        if self._logged < _REFUSALS_LOGGED_MAX:
            self._logged += 1
            log.warning(text, *words)


async def _secured(
    connection: socket.socket, identity: Identity
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The streams of a connection whose other side has a certificate of our authority."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_PIECE)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, connection, ssl=server_context(identity), ssl_handshake_timeout=HEAD_S
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _connect(server: LoopbackServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the server. Raises `_Refused`."""
    why = ""
    for address in server.addresses:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(address, server.port, limit=_PIECE)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else "it does not answer"
    raise _Refused(502, f"{server} of this machine cannot be reached: {why}")


async def _ask(
    asking: h11.Connection,
    sent: h11.Request,
    reader: asyncio.StreamReader,
    back: asyncio.StreamWriter,
) -> None:
    """Write a request to the server, and return when the caller has left or says more."""
    writing = h11.Connection(h11.CLIENT)
    event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED] = sent
    while True:
        if isinstance(event, h11.EndOfMessage):
            event = h11.EndOfMessage()  # trailers are not passed on
        if isinstance(event, h11.ConnectionClosed) or not isinstance(event, h11.Event):
            raise h11.RemoteProtocolError("the request has no end")
        back.write(writing.send(event) or b"")
        await back.drain()
        if isinstance(event, h11.EndOfMessage):
            break
        event = await _next_event(asking, reader)
    if asking.trailing_data[0] or await reader.read(1):
        raise h11.RemoteProtocolError("something follows the request")


async def _next_event(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_PIECE))
    return event


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    writer.close()
    await writer.wait_closed()
