"""Servers on the loopback interface of the runner's machine that the operator hands to the agent's
egress: `http://HOST:PORT/PATH`, and nothing else of that machine."""

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from wire.egress import hosts
from wire.egress.rules import DEFAULT_PORTS, Readings
from wire.providers import AT_THE_ROOT

LOGIN: Final = ".login"
"""The end of the name of an upstream that is for egress itself: where it renews a login."""
LASTS_S: Final = 3600
"""How long a token of a login counts that can be renewed, and does not say how long."""
ACCEPTED: Final = "http://HOST:PORT/PATH with a loopback address or localhost as its host"


def is_loopback(host: str) -> bool:
    """Whether a host is the machine itself, for whoever connects to it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        found = ipaddress.ip_address(host)
        return found.is_loopback or found.is_unspecified
    return False


@dataclass(frozen=True)
class LoopbackServer:
    """One server. Its `path` has no slash at the end; empty means every path. Some of a
    `provider` take more beside /v1."""

    host: str
    port: int
    path: str
    provider: str = ""

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises `ValueError` for anything but a plain address of such a server."""
        url = urlsplit(text)
        port = url.port or DEFAULT_PORTS["http"]
        server = cls((url.hostname or "").lower(), port, url.path.rstrip("/"))
        if url.scheme != "http" or not server._is_here or Readings.of(server.path or "/").ambiguous:
            raise ValueError(ACCEPTED)
        if url.query or url.fragment or "@" in url.netloc or "%" in text:
            raise ValueError(ACCEPTED)
        return server

    def __str__(self) -> str:
        return f"http://{hosts.shown(self.host, self.port)}{self.path}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The IP addresses to connect to, in this order."""
        return ("127.0.0.1", "::1") if "localhost" in self.host else (self.host,)

    @property
    def authorities(self) -> tuple[str, ...]:
        """What a request's header Host may say."""
        shown = hosts.shown(self.host, self.port)
        short = hosts.shown(self.host, 0)
        return (shown, short) if self.port == DEFAULT_PORTS["http"] else (shown,)

    def has(self, path: str) -> bool:
        """Whether a path is the server's own or lies below it, however servers may read it."""
        readings = Readings.of(path)
        read = (readings.kept, readings.opened)
        return not readings.ambiguous and all(
            f"{each}/".startswith(f"{self.path}/") for each in read
        )

    def answers(self, method: str, path: str) -> bool:
        """Whether a request is for it: its path, or its provider's own beside /v1."""
        beside = AT_THE_ROOT.get(self.provider, ()) if self.path == "/v1" else ()
        return self.has(path) or f"{method} {path}" in beside

    @property
    def _is_here(self) -> bool:
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return is_loopback(self.host)


def handed(url: str, servers: Iterable[str]) -> LoopbackServer | None:
    """The first of the `servers` that a base URL belongs to; None if it is of none."""
    try:
        wanted = LoopbackServer.of(url)
    except ValueError:
        return None
    for server in map(LoopbackServer.of, servers):
        if (server.host, server.port) == (wanted.host, wanted.port) and server.has(
            wanted.path or "/"
        ):
            return server
    return None
