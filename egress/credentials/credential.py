"""One credential, and the requests that it may go into."""

from dataclasses import dataclass
from typing import Final, Self

from wire.egress.rules import PREFIX
from wire.v1 import egress_pb2

_HTTPS: Final = 443


class MisplacedError(Exception):
    """A placeholder stands where it does not become a value, so the request does not go out. The
    text says why, and holds neither placeholder nor value."""


@dataclass(frozen=True)
class Head:
    """What precedes the body of a request that is to go out.

    Attributes:
        scheme: "http" or "https".
        host: A DNS name in lower case.
        port: Its port.
        method: In capitals.
        target: Path and query, as the client has written them.
        headers: Names and values, as the client has written them.
    """

    scheme: str
    host: str
    port: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Credential:
    """A value for the requests to `hosts` by `methods` (none: all) at its place alone.

    Attributes:
        name: As the operator calls it.
        placeholder: What stands for the value.
        value: The secret; never shown in a repr.
        hosts: DNS names in lower case, with their ports.
        methods: In capitals.
        place: "bearer", "basic", "header" or "query".
        key: Of the header, in lower case, or of the query's parameter.
    """

    name: str
    placeholder: str
    value: str
    hosts: frozenset[tuple[str, int]]
    methods: frozenset[str]
    place: str
    key: str

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"

    @classmethod
    def of(cls, message: egress_pb2.EgressCredential) -> Self:
        """Raises `ValueError` that says what is wrong, without the value."""
        place, _, key = message.place.partition(":")
        if place not in ("bearer", "basic", "header", "query") or bool(key) != (
            place in ("header", "query")
        ):
            raise ValueError(f"credential {message.name}: no place: {message.place[:80]!r}")
        if not message.placeholder.startswith(PREFIX) or not message.placeholder.isascii():
            raise ValueError(f"credential {message.name}: no placeholder")
        if not (message.value and message.value.isascii() and message.value.isprintable()):
            raise ValueError(f"credential {message.name}: its value is not printable ASCII")
        if not message.hosts:
            raise ValueError(f"credential {message.name}: no hosts")
        return cls(
            name=message.name,
            placeholder=message.placeholder,
            value=message.value,
            hosts=frozenset(host_and_port(host) for host in message.hosts),
            methods=frozenset(message.methods),
            place=place,
            key=key.lower() if place == "header" else key,
        )

    def check(self, head: Head) -> None:
        """Raises `MisplacedError` if the value may not go into this request."""
        if head.scheme != "https":
            raise MisplacedError(f"the credential {self.name} goes out by https alone")
        if (head.host, head.port) not in self.hosts:
            hosts = ", ".join(
                host if port == _HTTPS else f"{host}:{port}" for host, port in sorted(self.hosts)
            )
            raise MisplacedError(f"the credential {self.name} is for {hosts}, not for this host")
        if self.methods and head.method not in self.methods:
            methods = ", ".join(sorted(self.methods))
            raise MisplacedError(
                f"the credential {self.name} is for {methods}, not for {head.method}"
            )

    @property
    def where(self) -> str:
        """Its place, in words."""
        return {
            "bearer": "a header Authorization: Bearer",
            "basic": "the user or password of a header Authorization: Basic",
            "header": f"the header {self.key}",
            "query": f"the query's parameter {self.key}",
        }[self.place]


def host_and_port(text: str) -> tuple[str, int]:
    """Read HOST or HOST:PORT. Raises `ValueError` if the port is none."""
    host, _, port = text.partition(":")
    number = int(port) if port else _HTTPS
    if not host or not 0 < number < 65536:
        raise ValueError(f"no host: {text[:80]!r}")
    return host.lower().rstrip("."), number
