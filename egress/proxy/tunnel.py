"""Tunnels: bytes that nobody reads here, between a client and the host that its TLS names. Its
first words say whom it wants to reach."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wire.egress import hosts
from wire.egress.policy import Attempt

from egress.admission.admission import Admission, OutboundRequest
from egress.admission.record import Caller
from egress.refusals import Refused

HELLO_MAX: Final = 64 * 1024
_RECORD_MAX: Final = 2**14
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED: Final = {0xFE0D: "an encrypted client hello", 0xFFCE: "an encrypted server name"}


@dataclass(frozen=True)
class ClientHello:
    """What a client says before anything is encrypted. `server_name` is empty if it names none;
    `hidden` is what may hide that it is for another one."""

    server_name: str
    hidden: str = ""

    @classmethod
    def parse(cls, body: "_Bytes") -> "ClientHello":
        """The hello in the body of a message. Raises `ValueError`."""
        body.take(2 + 32)  # version, random
        for width in (1, 2, 1):  # session, cipher suites, compression
            body.vector(width)
        seen: set[int] = set()
        name = hidden = ""
        extensions = _Bytes(body.vector(2) if body.rest else b"")
        if body.rest:
            raise ValueError("something follows the extensions of the client's hello")
        while extensions.rest:
            kind = int.from_bytes(extensions.take(2))
            value = extensions.vector(2)
            if kind in seen:
                raise ValueError("the client's hello says something twice")
            seen.add(kind)
            hidden = _ENCRYPTED.get(kind, hidden)
            if kind == _SERVER_NAME:
                name = _name(value)
        return cls(name, hidden)


class HelloReader:
    """Reads a client's hello from a stream, each byte once, however it is cut into records and
    pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._message = bytearray()
        self._fed = 0

    def feed(self, data: bytes) -> ClientHello | None:
        """Take the next piece; None if more of it must come.

        Raises `ValueError` if it is none, takes more than `HELLO_MAX` with all its records, or
        hides whom it wants to reach.
        """
        self._fed += len(data)
        rest, at = self._rest + data, 0
        while True:
            head = rest[at : at + 5]
            if head and head[0] != _HANDSHAKE:
                raise ValueError("it does not begin as TLS does")
            if len(head) >= 3 and (head[1], head[2]) not in ((3, 1), (3, 2), (3, 3)):
                raise ValueError("it is not TLS of a known version")
            length = int.from_bytes(head[3:])
            if len(head) == 5 and not 0 < length <= _RECORD_MAX:
                raise ValueError("a record of TLS has a length that none has")
            if len(head) < 5 or len(rest) < at + 5 + length:
                self._rest = rest[at:]
                return None
            self._message += rest[at + 5 : at + 5 + length]
            at += 5 + length
            if self._message[0] != _CLIENT_HELLO:
                raise ValueError("it begins with another message than a client's hello")
            size = int.from_bytes(self._message[1:4])
            if len(self._message) < 4:
                continue
            if max(size, self._fed) > HELLO_MAX:
                raise ValueError(f"the client's hello is larger than {HELLO_MAX} bytes")
            if len(self._message) > 4 + size:
                raise ValueError("something follows the client's hello in its record")
            if len(self._message) == 4 + size:
                return ClientHello.parse(_Bytes(bytes(self._message[4:])))


class _Bytes:
    """Bytes that are taken from the front. Raises `ValueError` where there are too few."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest

    def take(self, count: int) -> bytes:
        if len(self.rest) < count:
            raise ValueError("the client's hello ends too early")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def vector(self, width: int) -> bytes:
        """Bytes that follow their number, which has `width` bytes."""
        return self.take(int.from_bytes(self.take(width)))


def _name(value: bytes) -> str:
    """The one name in the extension for it."""
    names = _Bytes(value)
    entries = _Bytes(names.vector(2))
    kind, name = entries.take(1), entries.vector(2)
    if names.rest or entries.rest or kind != b"\0":
        raise ValueError("the client's hello names other things than one host")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError("the client's hello names no host") from None


ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
HELLO_S: Final = 15.0
"""How long a client has to begin with TLS."""
IDLE_S: Final = 300.0
"""How long a tunnel may be silent."""
_CHECK_S: Final = 30.0
_BUFFER: Final = 64 * 1024
_ALERT: Final = bytes((21, 3, 3, 0, 2, 2, 49))
"""TLS: fatal, access denied."""


async def carry(
    admission: Admission, client: asyncio.Transport, host: str, port: int, caller: Caller
) -> None:
    """Carry bytes between `client`, which is not being read, and a host until one of them ends.

    Raises `Refused` as long as nothing was answered.
    """
    passage = await admission.admit(caller, Attempt("tunnel", host, port))
    tunnel = _Tunnel(admission, passage, client)
    try:
        async with passage.lasting():
            dialer = passage.configuration.outside.dialer
            await dialer.connect(host, port, passage.addresses, tunnel.far)
            tunnel.open()
            await tunnel.ended
    except Refused as refused:
        tunnel.outcome, tunnel.reason = "cut" if passage.forbidden else "failed", refused.why
        refused.recorded = True
        if tunnel.near.transport is None:  # nothing was answered
            raise
        tunnel.cut(refused.why)
    finally:
        tunnel.close()
        await admission.end(passage, tunnel.outcome, tunnel.reason)


class _Tunnel:
    """One tunnel. The client's first bytes wait until they are known to be TLS for the host."""

    def __init__(
        self, admission: Admission, passage: OutboundRequest, client: asyncio.Transport
    ) -> None:
        self._admission = admission
        self._passage = passage
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._hello = HelloReader()
        self._said: list[bytes] = []
        self._heard = self._loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self.near = _End(self._check)
        self.far = _End(self._to_client, silent=True)
        self.near.other, self.far.other = self.far, self.near
        self.near.on_lost = self.far.on_lost = self._lost
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.outcome, self.reason = "cut", "the client has left"

    def open(self) -> None:
        """Tell the client that it may begin."""
        self._client.set_protocol(self.near)
        self.near.connection_made(self._client)
        self._client.write(ESTABLISHED)
        self._client.resume_reading()
        self._deadline = self._loop.call_later(HELLO_S, self._late)

    def close(self) -> None:
        """End both sides. What was received is still delivered. Idempotent."""
        if self._deadline is not None:
            self._deadline.cancel()
        for end in (self.far, self.near):
            if end.transport is not None:
                end.transport.close()

    def cut(self, why: str, outcome: str = "cut") -> None:
        """End both sides at once."""
        self._end(outcome, why)
        if self.far.transport is not None:
            self.far.transport.abort()
        self._client.abort()

    def _check(self, data: bytes) -> None:
        """The client's first bytes."""
        self._said.append(data)
        try:
            hello = self._hello.feed(data)
            if hello is None:
                return
            if hello.hidden and not self._passage.opens_every_host:
                raise ValueError(f"{hello.hidden} hides whom it is for")
            self._check_name(hello.server_name)
        except ValueError as error:
            self._refuse(f"a tunnel carries TLS for its own host only: {error}")
            return
        assert self._deadline is not None
        self._deadline.cancel()
        self._deadline = self._loop.call_later(_CHECK_S, self._watch)
        self.near.take = self._to_server
        assert self.far.transport is not None
        self.far.transport.resume_reading()
        self._to_server(b"".join(self._said))
        self._said.clear()

    def _check_name(self, name: str) -> None:
        """Raises `ValueError`."""
        host = self._passage.attempt.host
        if not name and hosts.is_address(host):
            return
        if not name:
            raise ValueError("the client's hello does not name it")
        try:
            named = hosts.canonical(name)
        except ValueError as error:
            raise ValueError(f"the client's hello names {name[:80]!r}: {error}") from None
        if named != host:
            raise ValueError(f"the client's hello names {named}, CONNECT {host}")

    def _refuse(self, why: str) -> None:
        self._client.write(_ALERT)
        self._end("refused", why)
        if self.far.transport is not None:
            self.far.transport.abort()

    def _end(self, outcome: str, reason: str) -> None:
        """Only the first end counts."""
        if not self.ended.done():
            self.outcome, self.reason = outcome, reason
            self.ended.set_result(None)

    def _to_server(self, data: bytes) -> None:
        assert self.far.transport is not None
        if not self._passage.forbidden:
            self.far.transport.write(data)
            self._count(sent=len(data))

    def _to_client(self, data: bytes) -> None:
        self._client.write(data)
        self._count(received=len(data))

    def _count(self, **moved: int) -> None:
        self._heard = self._loop.time()
        if why := self._admission.passed(self._passage, **moved):
            self.cut(why, "limit")

    def _late(self) -> None:
        self._refuse("a tunnel carries TLS, and the client did not begin with it")

    def _watch(self) -> None:
        if self._loop.time() - self._heard > IDLE_S:
            self.cut(f"nothing passed for {IDLE_S:g} seconds")
        else:
            self._deadline = self._loop.call_later(_CHECK_S, self._watch)

    def _lost(self, end: "_End") -> None:
        if self.near.take == self._to_server:
            self._end("done", "")
        elif end is self.far:
            self._end("failed", "the server has closed the connection")
        else:
            self._end(self.outcome, self.reason)


class _End(asyncio.Protocol):
    """One end of a tunnel. `take` gets what comes from it. It is not read while the other end does
    not take more, nor, if it is `silent`, before somebody resumes it."""

    other: "_End"
    on_lost: Callable[["_End"], None]

    def __init__(self, take: Callable[[bytes], None], *, silent: bool = False) -> None:
        self.take = take
        self._silent = silent
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_BUFFER)
        if self._silent:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.take(data)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.on_lost(self)
