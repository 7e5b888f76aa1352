"""The credentials of one user: which requests they may go into, and what they change there."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self
from urllib.parse import quote, unquote_plus

from wire.egress.rules import PREFIX
from wire.v1 import egress_pb2

from egress.credentials.bodies import MisplacedError, holds_placeholder
from egress.credentials.redaction import Values

_HTTPS: Final = 443


@dataclass(frozen=True)
class RequestHead:
    """What precedes the body of a request that is to go out: the host in lower case, the method in
    capitals, `target`, which is path and query, and headers as the client has written them."""

    scheme: str
    host: str
    port: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Credential:
    """A value for the requests to `hosts`, which are in lower case, by `methods` in capitals (none:
    all), at its `place` alone: "bearer", "basic", "header" or "query". `key` names the header, in
    lower case, or the query's parameter."""

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

    def check(self, head: RequestHead) -> None:
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
    """Read HOST or HOST:PORT. Raises `ValueError` for an invalid port."""
    host, _, port = text.partition(":")
    number = int(port) if port else _HTTPS
    if not host or not 0 < number < 65536:
        raise ValueError(f"no host: {text[:80]!r}")
    return host.lower().rstrip("."), number


_UNSEARCHABLE: Final = ("accept-encoding", "range", "if-range")
"""Headers that ask for an answer in which values cannot be found, such as one in two halves."""


_NOTHING: Final = Values(())


class Credentials:
    """Puts values in the place of placeholders, and nowhere else."""

    def __init__(self, credentials: Iterable[Credential] = ()) -> None:
        self._by_placeholder = {each.placeholder: each for each in credentials}
        self._values = {
            where: Values(each.value for each in self._all if where in each.hosts)
            for where in self.hosts
        }

    @classmethod
    def of(cls, messages: Iterable[egress_pb2.EgressCredential]) -> Self:
        """Raises `ValueError` that says what is wrong, without any value."""
        return cls(map(Credential.of, messages))

    @property
    def hosts(self) -> frozenset[tuple[str, int]]:
        """The hosts, with their ports, to which a value may go."""
        return frozenset[tuple[str, int]]().union(*(each.hosts for each in self._all))

    def fill(self, head: RequestHead) -> RequestHead:
        """The head as it goes out. Raises `MisplacedError` if a placeholder would stay in it."""
        headers: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        for name, value in head.headers:
            filled, other = self._header(head, name.lower(), value)
            headers.append((name, filled))
            others += [("a header's name", name), (f"the header {name}", other)]
        path, mark, query = head.target.partition("?")
        parameters = [self._parameter(head, each) for each in query.split("&")]
        others += [("the path", path)]
        others += [("the query", other) for _, other in parameters]
        for where, other in others:
            self._stop(where, other)
        target = path + mark + "&".join(filled for filled, _ in parameters)
        if (head.host, head.port) in self._values:
            headers = [each for each in headers if each[0].lower() not in _UNSEARCHABLE]
            headers.append(("Accept-Encoding", "identity"))
        return replace(head, target=target, headers=tuple(headers))

    def hidden(self, host: str, port: int) -> Values:
        """What no answer from `host` may have in it."""
        return self._values.get((host, port), _NOTHING)

    @property
    def _all(self) -> Iterable[Credential]:
        return self._by_placeholder.values()

    def _header(self, head: RequestHead, name: str, value: str) -> tuple[str, str]:
        """A header's value as it goes out, and what of it may hold no placeholder."""
        scheme, _, content = value.strip().partition(" ")
        if name == "authorization" and scheme.lower() in ("bearer", "token"):
            credential = self._meant(head, content.strip(), "bearer")
            if credential is not None:
                return f"{scheme} {credential.value}", scheme
        if name == "authorization" and scheme.lower() == "basic":
            return self._basic(head, scheme, content.strip())
        filled = other = value
        for credential in self._all:
            if credential.place == "header" and credential.key == name:
                if credential.placeholder not in value:
                    continue
                credential.check(head)
                filled = filled.replace(credential.placeholder, credential.value)
                other = other.replace(credential.placeholder, " ")
        return filled, other

    def _basic(self, head: RequestHead, scheme: str, content: str) -> tuple[str, str]:
        try:
            decoded = base64.b64decode(content, validate=True)
            user, colon, password = decoded.decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return f"{scheme} {content}", content
        meant = [self._meant(head, each, "basic") for each in (user, password)]
        if meant == [None, None]:
            return f"{scheme} {content}", f"{content} {user} {password}"
        pairs = list(zip((user, password), meant, strict=True))
        filled = colon.join(each if found is None else found.value for each, found in pairs)
        other = " ".join(each for each, found in pairs if found is None)
        return f"{scheme} {base64.b64encode(filled.encode()).decode()}", other

    def _parameter(self, head: RequestHead, text: str) -> tuple[str, str]:
        """A parameter of the query as it goes out, and what of it may hold no placeholder."""
        key, equals, value = text.partition("=")
        credential = self._meant(head, unquote_plus(value), "query")
        if credential is None or credential.key != unquote_plus(key):
            return text, text
        return key + equals + quote(credential.value, safe=""), key

    def _meant(self, head: RequestHead, text: str, place: str) -> Credential | None:
        """The credential whose placeholder `text` is, if it belongs at this place. Raises
        `MisplacedError` if it may not go into this request."""
        credential = self._by_placeholder.get(text)
        if credential is None or credential.place != place:
            return None
        credential.check(head)
        return credential

    def _stop(self, where: str, text: str) -> None:
        """Raises `MisplacedError` if there is a placeholder in `text`."""
        if not holds_placeholder(text.encode("utf-8", "surrogateescape")):
            return
        for each in self._all:
            if each.placeholder in text:
                raise MisplacedError(
                    f"the placeholder of the credential {each.name} stands in {where}; it is "
                    f"replaced in {each.where} alone"
                )
        raise MisplacedError(f"{where} holds a placeholder that stands for no credential there")
