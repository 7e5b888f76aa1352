"""First words of TLS clients, real ones and such that no honest client says."""

import ssl
from contextlib import suppress


def hello(name: str | None, *, extra: bytes = b"") -> bytes:
    """The handshake message of OpenSSL's client that wants to reach `name`; None: it does not say.

    `extra` is put behind its extensions.
    """
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    message = outgoing.read()[5:]
    if not extra:
        return message
    at = 4 + 2 + 32
    for width in (1, 2, 1):
        at += width + int.from_bytes(message[at : at + width])
    extensions = message[at + 2 :] + extra
    body = message[4:at] + len(extensions).to_bytes(2) + extensions
    return b"\1" + len(body).to_bytes(3) + body


def extension(kind: int, value: bytes) -> bytes:
    return kind.to_bytes(2) + len(value).to_bytes(2) + value


def server_name(name: str) -> bytes:
    entry = b"\0" + len(name).to_bytes(2) + name.encode()
    return extension(0, len(entry).to_bytes(2) + entry)


def in_records(message: bytes, *sizes: int) -> bytes:
    """`message` in records of these sizes, and the rest in one."""
    records = b""
    for size in (*sizes, len(message)):
        part, message = message[:size], message[size:]
        if part:
            records += b"\x16\x03\x01" + len(part).to_bytes(2) + part
    return records
