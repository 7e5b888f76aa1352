"""Connections of the HTTP server: as uvicorn has them, with bounds on how many and how slow.

    accept ── TLS ── head ── who is it? ──┬── let in ── body ── answer ──┐
    └──────── waits to be let in ─────────┘                             │
    ▲                                                                   │
    └───────────────────────────────────────────────────────────────────┘

Who waits is counted from the accept on. There is room for so many; then the oldest one goes, and
never the new one, so that nobody can keep others out by holding connections. Who is let in has room
of their own.
"""

import asyncio
import gc
import ipaddress
import itertools
import resource
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from wire.errors import Code, WireError

WAITING_MAX: Final = 768
LARGE: Final = 64
"""With more who wait, each of them gets one answer, and then has to come again."""
WAITING_OF_PLACE_MAX: Final = 64
"""How many of one address may wait, where an address is one person's."""
ADMITTED_MAX: Final = 64
"""How many requests of one caller may be under way, those included whose body still arrives."""
DESCRIPTORS: Final = 8_192
HEAD_MAX_BYTES: Final = 16 * 1024
_LINES_MAX: Final = 200
_SMALL_MAX: Final = 250
"""How many more pieces of a body than reads may be that small: they take longer to read than to
send."""
HEAD_S: Final = 10.0
"""How long it may take from the accept, or from the end of an answer, until somebody is let in."""
STALL_S: Final = 60.0
"""How long a client may read nothing of what waits for it."""
_NO_DESCRIPTOR_S: Final = 0.05
_READ_BYTES: Final = 16 * 1024
"""How much is read at once; with TLS, as much is held also for who has said nothing."""


def raise_descriptors() -> int:
    """Let this process open as many files as it may, up to `DESCRIPTORS`. Returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def place_of(host: str) -> str:
    """What counts as one address: of IPv6 what one customer gets, which is a /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Crowd:
    """The connections of all listeners of a server.

    Attributes:
        pressing: Whether more have come than were accepted.
    """

    def __init__(self, descriptors: int) -> None:
        self.pressing = False
        self._waiting_max = min(WAITING_MAX, descriptors // 4)
        self._waiting: dict[Connection, None] = {}
        self._admitted: Counter[str] = Counter()

    def wait(self, connection: "Connection") -> None:
        """Let `connection` wait as the newest one; the oldest one goes where there is no room."""
        place = connection.place
        alike = [each for each in self._waiting if each.place == place] if place else []
        if len(alike) >= WAITING_OF_PLACE_MAX:
            alike[0].cut()
        elif len(self._waiting) >= self._waiting_max:
            self.make_room()
        self._waiting[connection] = None

    @property
    def is_large(self) -> bool:
        return self.pressing or len(self._waiting) > LARGE

    def make_room(self) -> None:
        if self._waiting:
            next(iter(self._waiting)).cut()

    def admit(self, connection: "Connection", key: str) -> None:
        """Count a request of the caller `key`. Raises `WireError` (RESOURCE_EXHAUSTED)."""
        if self._admitted[key] >= ADMITTED_MAX:
            raise WireError(
                Code.RESOURCE_EXHAUSTED,
                "too many requests of one login or access token at once",
                details=f"{ADMITTED_MAX} are under way already",
                resolution="wait until some have ended, or close streams that nobody reads",
            )
        self._waiting.pop(connection, None)
        self._admitted[key] += 1

    def leave(self, connection: "Connection", key: str) -> None:
        """Count `connection` no more, which waits or, if `key` says so, was let in."""
        self._waiting.pop(connection, None)
        if key:
            self._admitted[key] -= 1
            self._admitted += Counter()  # without those that have none

    def clear(self) -> None:
        for each in list(self._waiting):
            each.cut()


class _Http(h11.Connection):
    """HTTP as h11 reads it, with bounds on how many lines a head and small pieces a body have."""

    small = 0

    def receive_data(self, data: bytes) -> None:
        self.small = max(0, self.small - 1)
        super().receive_data(data)

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            head = self.trailing_data[0].partition(b"\r\n\r\n")[0]
            if head.count(b"\n") > _LINES_MAX:
                raise h11.RemoteProtocolError("the head has too many lines")
        event = super().next_event()
        if isinstance(event, h11.Data) and len(event.data) < 1_024:
            self.small += 1
            if self.small > _SMALL_MAX:
                raise h11.RemoteProtocolError("the body has too many small pieces")
        return event


class Connection(H11Protocol):
    """One connection. It is cut off if nobody is let in by it in time, if the oldest one must make
    room, or if nothing of an answer is read.

    Args:
        client: The address that was accepted; what a reset connection says of itself is nothing.
        place: What `WAITING_OF_PLACE_MAX` counts by; empty where an address is not one person's.
    """

    conn: _Http
    _late: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    transport: Any
    _socket: socket.socket
    _opening: asyncio.Task[Any]

    def __init__(
        self, server: uvicorn.Server, crowd: Crowd, client: tuple[str, int] | None, place: str
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server.config, server.server_state, {"connection": self}, loop)
        self.conn = _Http(h11.SERVER, HEAD_MAX_BYTES)
        self.place = place
        self._crowd = crowd
        self._accepted = client
        self._key = ""

    def open(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Serve what was accepted, after a handshake where there is one."""

        def opened(opening: asyncio.Future[Any]) -> None:
            if opening.cancelled() or opening.exception() is not None:
                self._leave()

        self._socket = accepted
        handshake_s = None if tls is None else HEAD_S
        opening = self.loop.connect_accepted_socket(
            lambda: self, accepted, ssl=tls, ssl_handshake_timeout=handshake_s
        )
        self._opening = self.loop.create_task(opening)
        self._opening.add_done_callback(opened)
        self._wait()

    def admit(self, key: str) -> None:
        """The request is one of the caller `key`, who is let in. Raises `WireError`."""
        if not self._key:
            self._crowd.admit(self, key)
            self._key = key
            self.transport.max_size = 16 * _READ_BYTES
            self._stop(self._late)

    def cut(self) -> None:
        """End the connection, whatever it does."""
        self._leave()
        if self.transport is not None:
            self.transport.abort()
        else:  # asyncio, which waits for the handshake, closes it
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def connection_made(self, transport: Any) -> None:
        transport.max_size = _READ_BYTES
        transport.set_write_buffer_limits(high=_READ_BYTES)
        super().connection_made(transport)
        self.client = self._accepted

    def send_400_response(self, msg: str) -> None:
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # an answer has begun, or has ended
            self.cut()
        if self.cycle is not None:
            self.cycle.disconnected = True  # so that no other answer is sent

    def on_response_complete(self) -> None:
        self.conn.small = 0
        if self._key and not self.transport.is_closing():
            self._leave()
            self._wait()
        elif (  # it has had its turn, and nothing more is read of a stranger
            self.conn.their_state is h11.SEND_BODY
            or self.conn.trailing_data[0]
            or self._crowd.is_large
        ):
            self.transport.close()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_S, self.cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._stall)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._stop(self._stall)
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._crowd.wait(self)
        self._late = self.loop.call_later(HEAD_S, self._is_late)

    def _leave(self) -> None:
        self._stop(self._late)
        self._crowd.leave(self, self._key)
        self._key = ""

    def _is_late(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.cut()
        else:  # a body has a time of its own, and so has an answer that nobody reads
            self._late = self.loop.call_later(HEAD_S, self._is_late)

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


class Listener(uvicorn.Server):
    """Accepts the connections of one socket, leaves signals to the command, and says when it
    listens. `one_person` says whether an address of another machine is one person's."""

    def __init__(self, config: uvicorn.Config, crowd: Crowd, *, one_person: bool) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()
        self._crowd = crowd
        self._one_person = one_person
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        (listening,) = sockets or []
        sslproto.SSLProtocol.max_size = _READ_BYTES
        listening.setblocking(False)
        self.servers = []
        self._accepting = asyncio.create_task(self._accept(listening))
        self.started = True
        self.listens.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        self._crowd.clear()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in itertools.count(1):
            if number % 256 == 0:
                gc.collect()  # ended connections are cycles, of few objects and much memory
            try:
                try:
                    accepted, address = listening.accept()
                    self._crowd.pressing = True
                except BlockingIOError:
                    self._crowd.pressing = False
                    accepted, address = await loop.sock_accept(listening)
            except OSError:  # it has gone already, or no descriptor is left
                self._crowd.make_room()
                await asyncio.sleep(_NO_DESCRIPTOR_S)
                continue
            client = None if listening.family == socket.AF_UNIX else (str(address[0]), address[1])
            Connection(self, self._crowd, client, self._place(client)).open(
                accepted, self.config.ssl
            )
            await asyncio.sleep(0)  # one at a time, so that each can say something before it goes

    def _place(self, client: tuple[str, int] | None) -> str:
        if client is None or not self._one_person:
            return ""
        place = place_of(client[0])
        return "" if place == "::/64" or place.startswith("127.") else place
