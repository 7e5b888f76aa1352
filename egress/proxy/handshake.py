"""The beginning of a connection: who is there, and whether it wants a tunnel."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from wire.tls import role_of

from egress.proxy.exchange import HEAD_MAX, HEADERS_MAX, authority, bad_request
from egress.refusals import Refused

HEAD_S: Final = 15.0
"""How long a client has for the head of its first request."""

_LAST_WORDS_S: Final = 2.0
"""How long a client whose request is refused may go on to send it. To one that sends when its
connection is closed, the answer would be lost."""
_END: Final = b"\r\n\r\n"
_LINE: Final = re.compile(rb"CONNECT ([!-~]{1,300}) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_NO_BODY: Final = (b"content-length", b"transfer-encoding", b"upgrade", b"expect")


@dataclass(frozen=True)
class Connect:
    """A request for a tunnel."""

    host: str
    port: int
    headers: dict[str, str]

    @classmethod
    def read(cls, head: bytes) -> "Connect":
        """Read a whole head. Raises `Refused` for every doubt about it."""
        line, *rest = head.removesuffix(_END).split(b"\r\n")
        found = _LINE.fullmatch(line)
        if found is None:
            raise bad_request("CONNECT is followed by host:port and HTTP/1.1")
        if len(rest) > HEADERS_MAX:
            raise Refused(431, "request", f"there are more than {HEADERS_MAX} headers")
        headers: dict[str, str] = {}
        for each in rest:
            header = _HEADER.fullmatch(each)
            if header is None:
                raise bad_request("a header of CONNECT cannot be read")
            name = header[1].lower()
            if name in _NO_BODY or name.decode() in headers:
                raise bad_request(f"CONNECT has no {name.decode()}, and no header twice")
            headers[name.decode()] = header[2].decode("latin-1")
        host, port = authority(found[1].decode(), 0)
        if "host" in headers and authority(headers["host"], port) != (host, port):
            raise Refused(403, "host", "the header Host of CONNECT names another host")
        return cls(host, port, headers)


class ConnectionHandler(Protocol):
    """What a connection leads to, once its beginning was read."""

    def greet(self, line: bytes) -> None:
        """Take the line that comes before HTTP. Raises `Refused`."""

    def tunnel(self, transport: asyncio.Transport, wanted: Connect) -> None:
        """Open a tunnel; `transport` is not being read."""

    def serve(self, transport: asyncio.Transport, read: bytes) -> None:
        """Serve HTTP; `read` is what was read of it."""

    def lost(self) -> None:
        """The connection has ended."""


class HandshakeReader(asyncio.Protocol):
    """Reads the beginning of a connection, a whole head at least, in bounded time and space.
    `greets` says whose certificates are served, and whether a line comes before their HTTP."""

    def __init__(self, greets: Mapping[str, bool], visitor: ConnectionHandler) -> None:
        self._served = greets
        self._visitor = visitor
        self._greets = False
        self._read = b""
        self._refused = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        role = role_of(transport.get_extra_info("ssl_object"))
        if role not in self._served:
            transport.abort()
            return
        self._greets = self._served[role]
        self._deadline = asyncio.get_running_loop().call_later(HEAD_S, self._late)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._refused:
            return
        self._read += data
        try:
            self._advance(self._transport)
        except Refused as refused:
            self._refuse(refused)

    def connection_lost(self, _: Exception | None) -> None:
        self._stop_waiting()
        self._visitor.lost()

    def _advance(self, transport: asyncio.Transport) -> None:
        if self._greets:
            line, end, rest = self._read.partition(b"\r\n")
            if not end:
                self._bound()
                return
            self._visitor.greet(line)
            self._greets, self._read = False, rest
        if self._read and not self._read[:1].isupper():
            raise bad_request("this proxy accepts only HTTP")
        head, end, rest = self._read.partition(_END)
        if not end:
            self._bound()
            return
        if len(head) > HEAD_MAX:
            self._bound()
        self._stop_waiting()
        if head.startswith(b"CONNECT "):
            transport.pause_reading()
            wanted = Connect.read(head + end)
            if rest:
                raise bad_request("the client speaks before the tunnel is open")
            self._visitor.tunnel(transport, wanted)
        else:
            self._visitor.serve(transport, self._read)

    def _bound(self) -> None:
        if len(self._read) > HEAD_MAX:
            raise Refused(431, "request", f"the headers are more than {HEAD_MAX} bytes")

    def _late(self) -> None:
        self._refuse(Refused(408, "request", f"no request came within {HEAD_S:g} seconds"))

    def _refuse(self, refused: Refused) -> None:
        self._stop_waiting()
        assert self._transport is not None
        self._transport.write(refused.raw())
        self._transport.resume_reading()  # which a CONNECT has paused
        self._refused = True
        self._deadline = asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
