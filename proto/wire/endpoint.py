"""Where servers listen.

    unix:/absolute/path   a Unix socket
    tcp:HOST:PORT         a port of an IPv4 address, an [IPv6] address or a host name
    tcp:*:PORT            for listeners alone: a port of all addresses of this machine

Beyond this machine an address does not say who answers there: it may be given to somebody else at
any time. There a server proves with its certificate which launch it is, and who does not know the
launch does not connect.
"""

import asyncio
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Final, Self

from wire.errors import Code, WireError

NOWHERE: Final = "unix:/dev/null/starting"
"""Where a guest is that is being started: nobody can listen there."""
LOST_AFTER_S: Final = 30
"""So soon is noticed that the other side of a connection is gone without a word."""
PROBE_AFTER_S: Final = 20
"""So long after the last word it is asked whether it is there."""

_EVERYWHERE: Final = "*"
_TCP: Final = re.compile(r"tcp:(\*|\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):([1-9][0-9]{0,4})")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_PORT_MAX: Final = 65535


@dataclass(frozen=True)
class Endpoint:
    """An endpoint in its parts: the `path` of a Unix socket, or a `host` and a `port`."""

    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises `WireError` (INVALID_ARGUMENT) for an invalid `text`."""
        if text.startswith("unix:/") and "\0" not in text:
            return cls(path=text.removeprefix("unix:"))
        found = _TCP.fullmatch(text)
        if found is not None and int(found[2]) <= _PORT_MAX:
            host = found[1].strip("[]")
            good = _is_name(host) if found[1] == host else _is_address(IPv6Address, host)
            if good or host == _EVERYWHERE:
                return cls(host=host, port=int(found[2]))
        raise _bad(repr(text), "unix:/absolute/path, tcp:HOST:PORT, or tcp:*:PORT for a listener")

    @classmethod
    def of_target(cls, text: str, launch_id: str = "") -> Self:
        """Where a client connects to.

        Raises `WireError` (INVALID_ARGUMENT) if `text` is none, and for one beyond this machine
        without the id of the launch that is meant.
        """
        endpoint = cls.of(text)
        if endpoint.host == _EVERYWHERE:
            raise _bad(repr(text), "unix:/absolute/path or tcp:HOST:PORT")
        if not (endpoint.is_here or launch_id):
            raise _bad(
                f"{text!r} is beyond this machine, and no launch is named",
                "a launch id, without which whoever got that address could answer",
            )
        return endpoint

    @classmethod
    def of_listener(cls, text: str, launch_id: str = "") -> Self:
        """Where a server listens that proves to be the launch `launch_id`.

        Raises `WireError` (INVALID_ARGUMENT) if `text` is none, and for one that can be reached
        from beyond this machine, if the server does not prove to be any launch.
        """
        endpoint = cls.of(text)
        if not (endpoint.is_here or launch_id):
            raise _bad(
                f"{text!r} is reached from other machines, and the certificate names no launch",
                "a launch in it, without which this server could be any other one",
            )
        return endpoint

    @property
    def is_here(self) -> bool:
        """Whether only this machine can reach it."""
        return bool(self.path) or self.host in ("127.0.0.1", "::1")

    @property
    def for_grpc(self) -> str:
        """As gRPC wants it. It would take some names of hosts for kinds of addresses."""
        if self.path:
            return f"unix:{self.path}"
        if self.host == _EVERYWHERE:
            return f"[::]:{self.port}"
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{'' if _is_address(IPv4Address, self.host) else 'dns:///'}{self.host}:{self.port}"

    def listen(self, backlog: int) -> socket.socket:
        """A socket that listens here; that of a path replaces what lies there, and belongs to this
        uid alone. Raises `OSError`."""
        if self.path:
            path = Path(self.path)
            path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(self.path)
            path.chmod(0o600)
            listener.listen(backlog)
            return listener
        everywhere = self.host == _EVERYWHERE
        both = everywhere and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in self.host else socket.AF_INET
        address = ("" if everywhere else self.host, self.port)
        return socket.create_server(address, family=family, backlog=backlog, dualstack_ipv6=both)

    def remove(self) -> None:
        """Remove the socket of a path. Idempotent."""
        if self.path:
            Path(self.path).unlink(missing_ok=True)

    async def connect(self) -> socket.socket:
        """A connection to it. Raises `OSError`."""
        if self.path:
            return await _connected(socket.AF_UNIX, self.path)
        if ":" in self.host or _is_address(IPv4Address, self.host):
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return await _connected(family, (self.host, self.port))
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for family, _, _, _, address in found[:-1]:
            with suppress(OSError):
                return await _connected(family, address)
        return await _connected(found[-1][0], found[-1][4])


def notice_loss(connection: socket.socket) -> None:
    """Let a connection break where the other side has gone without a word. Unix sockets need none
    of it."""
    if connection.family == socket.AF_UNIX:
        return
    probes = 2
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, (LOST_AFTER_S - PROBE_AFTER_S) // probes),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_AFTER_S * 1000),
    ):
        connection.setsockopt(level, option, value)


async def _connected(family: int, address: Any) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        notice_loss(connection)
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_name(host: str) -> bool:
    """Whether it is an IPv4 address or a host's name. What ends in a number is no name: resolvers
    take some of those for addresses."""
    labels = host.split(".")
    if labels[-1].isdigit():
        return _is_address(IPv4Address, host)
    return all(map(_LABEL.fullmatch, labels))


def _is_address(kind: type[IPv4Address] | type[IPv6Address], host: str) -> bool:
    with suppress(ValueError):
        return not kind(host).is_unspecified
    return False


def _bad(what: str, accepted: str) -> WireError:
    return WireError(
        Code.INVALID_ARGUMENT,
        f"bad endpoint: {what}",
        details=accepted,
        resolution="start guests through the runner of the same version: runner restart",
    )
