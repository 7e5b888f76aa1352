"""The first words of a TLS client, which say whom it wants to reach."""

from dataclasses import dataclass
from typing import Final

HELLO_MAX: Final = 64 * 1024
_RECORD_MAX: Final = 2**14
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED: Final = {0xFE0D: "an encrypted client hello", 0xFFCE: "an encrypted server name"}


@dataclass(frozen=True)
class ClientHello:
    """What a client says before anything is encrypted. `server_name` is empty if it names none."""

    server_name: str

    @classmethod
    def parse(cls, body: "_Bytes") -> "ClientHello":
        """The hello in the body of a message. Raises `ValueError`."""
        body.take(2 + 32)  # version, random
        for width in (1, 2, 1):  # session, cipher suites, compression
            body.vector(width)
        seen: set[int] = set()
        name = ""
        extensions = _Bytes(body.vector(2) if body.rest else b"")
        if body.rest:
            raise ValueError("something follows the extensions of the client's hello")
        while extensions.rest:
            kind = int.from_bytes(extensions.take(2))
            value = extensions.vector(2)
            if kind in seen:
                raise ValueError("the client's hello says something twice")
            seen.add(kind)
            if kind in _ENCRYPTED:
                raise ValueError(f"{_ENCRYPTED[kind]} hides whom it is for")
            if kind == _SERVER_NAME:
                name = _name(value)
        return cls(name)


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
