"""The way out of commands and of notices: an HTTP proxy on loopback, behind which egress listens.

Each command has a port of its own while it runs, so that egress learns for whom a request is.
What comes in there goes to egress as it is, over mutual TLS, after one line with its
token, the session and the turn. What may leave is decided there and nowhere here.
Nothing keeps a command from another one's port: all of them are the same user's.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from wire import tls
from wire.endpoint import Endpoint
from wire.errors import Code, WireError
from wire.identity import Identity, Party
from wire.text import visible_name

log = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 128
_CONNECTIONS_MAX: Final = 256
"""At once, of one command; further ones wait."""
_READ_BYTES: Final = 256 * 1024
_BUFFER_BYTES: Final = 512 * 1024
_REACH_S: Final = 10.0
_HALF_CLOSED_S: Final = 15.0
"""How long a client that has said all waits for the next bytes of its answer. Egress is not told:
asyncio's TLS has no half-closed connections."""
_LAST_WORDS_S: Final = 2.0
"""How long a client may go on to send what nobody reads any more. To one that sends when its
connection is closed, the last bytes of the answer would be lost."""
_GREETING: Final = "OXYDRA/1"
_NOBODY: Final = "-"
_REFUSED: Final = re.compile(rb"\r\noxydra-refused: *([a-z_]{1,32})", re.IGNORECASE)
_SAID_BYTES: Final = 500
_ANSWER: Final = (
    "HTTP/1.1 503 Service Unavailable\r\n"
    "oxydra-refused: not_ready\r\n"
    "Content-Type: text/plain; charset=utf-8\r\n"
    "Content-Length: {size}\r\n"
    "Connection: close\r\n\r\n"
)

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, repr=False)
class EgressAddress:
    """Egress's listener for this guest: where it is, its token, and the name in its certificate."""

    place: Endpoint
    token: str
    name: str = Party.EGRESS.value


class Forwarder:
    """Opens ports for commands. New connections go to the current `egress`; None: none goes out."""

    def __init__(self, identity: Identity) -> None:
        self.egress: EgressAddress | None = None
        self._context = tls.client_context(identity)

    def open(self, session_id: str, turn_id: str, on_refused: Callable[[str], None]) -> "Port":
        """A port for one command. `on_refused` is told why something did not go out: of most
        clients nobody hears more than a number. Raises `OSError` if the system has no port."""
        return Port(self, f"{session_id or _NOBODY} {turn_id or _NOBODY}", on_refused)

    async def connect(self, caller: str) -> _Streams:
        """A connection to egress, which knows the `caller`.

        Raises `WireError` (UNAVAILABLE) with why there is none.
        """
        if (egress := self.egress) is None:
            raise _unreachable("no way out of this guest is configured")
        try:
            async with asyncio.timeout(_REACH_S):
                reader, writer = await asyncio.open_connection(
                    sock=await egress.place.connect(),
                    limit=_BUFFER_BYTES,
                    ssl=self._context,
                    server_hostname=egress.name,
                )
        except TimeoutError:
            raise _unreachable(f"egress did not answer within {_REACH_S:g} seconds") from None
        except ssl.SSLError as error:
            raise _unreachable(f"what answers there is not egress ({error.reason})") from None
        except (FileNotFoundError, ConnectionError):
            raise _unreachable("egress is starting, or does not run") from None
        except OSError as error:
            raise _unreachable(f"egress cannot be reached ({error.strerror})") from None
        writer.transport.set_write_buffer_limits(_BUFFER_BYTES)
        writer.write(f"{_GREETING} {egress.token} {caller}\r\n".encode())
        return reader, writer


class Port:
    """A port of loopback, and the connections that came in there."""

    def __init__(
        self, forwarder: Forwarder, caller: str, on_refused: Callable[[str], None]
    ) -> None:
        self._forwarder = forwarder
        self._caller = caller
        self._on_refused = on_refused
        self._socket = socket.create_server((_LOOPBACK, 0), backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._room = asyncio.Semaphore(_CONNECTIONS_MAX)
        self._crossings: set[asyncio.Task[None]] = set()
        self._serving = asyncio.create_task(self._serve())

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        """Close the port, and everything that goes through it. Idempotent."""
        self._serving.cancel()
        for crossing in self._crossings:
            crossing.cancel()
        self._socket.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            client, _ = await loop.sock_accept(self._socket)
            crossing = asyncio.create_task(self._cross(client))
            self._crossings.add(crossing)
            crossing.add_done_callback(self._crossed)

    def _crossed(self, crossing: asyncio.Task[None]) -> None:
        self._crossings.discard(crossing)
        self._room.release()

    async def _cross(self, client: socket.socket) -> None:
        """Carry one connection both ways to its end."""
        inner = await asyncio.open_connection(sock=client, limit=_BUFFER_BYTES)
        inner[1].transport.set_write_buffer_limits(_BUFFER_BYTES)
        try:
            outer = await self._forwarder.connect(self._caller)
            try:
                await _exchange(inner, outer, self._hear)
            finally:
                outer[1].transport.abort()
            await _part(inner)
        except WireError as error:
            log.info("a request could not leave: %s", error.brief)
            self._on_refused(error.brief)
            body = f"{error.brief}\n".encode()
            inner[1].write(_ANSWER.format(size=len(body)).encode() + body)
            await _part(inner)
        except OSError as error:
            log.debug("a connection of a command broke: %s", error)
        finally:
            inner[1].close()

    def _hear(self, answer: bytes) -> None:
        """The first bytes of what egress says."""
        if why := refusal_in(answer):
            self._on_refused(why)


def refusal_in(answer: bytes) -> str:
    """Why egress refuses, as the beginning of an answer tells; empty if it does not. What servers
    outside say never looks so: egress drops that header of theirs."""
    head, _, body = answer.partition(b"\r\n\r\n")
    found = _REFUSED.search(head)
    if found is None:
        return ""
    said = body.split(b"\n", 1)[0][:_SAID_BYTES].decode(errors="replace")
    return visible_name(said) or f"egress: refused ({found[1].decode()})"


async def _exchange(inner: _Streams, outer: _Streams, hear: Callable[[bytes], None]) -> None:
    """Carry bytes both ways until egress has said all; `hear` gets its first ones. Raises
    `OSError` if one side breaks."""
    asking = asyncio.create_task(_pump(inner[0], outer[1]))
    try:
        async with asyncio.timeout(None) as patience:

            def hurry(*_: object) -> None:
                if asking.done():
                    broken = asking.cancelled() or asking.exception() is not None
                    wait = 0.0 if broken else _HALF_CLOSED_S
                    patience.reschedule(asyncio.get_running_loop().time() + wait)

            asking.add_done_callback(hurry)
            hear(first := await outer[0].read(_READ_BYTES))
            inner[1].write(first)
            hurry()
            await _pump(outer[0], inner[1], hurry)
    except TimeoutError:
        log.debug("a client that had said all waited too long for its answer")
    finally:
        asking.remove_done_callback(hurry)
        asking.cancel()
        await asyncio.wait({asking})
    if not asking.cancelled() and (error := asking.exception()) is not None:
        raise error


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    moved: Callable[[], None] = lambda: None,
) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()
        moved()


async def _part(client: _Streams) -> None:
    """Let a client read the last words."""
    reader, writer = client
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            await writer.drain()
            writer.write_eof()
            while await reader.read(_READ_BYTES):
                pass


def _unreachable(why: str) -> WireError:
    return WireError(
        Code.UNAVAILABLE,
        f"nothing can leave this guest now: {why}",
        resolution="runner status",
    )
