"""The envelopes' framing, four length bytes and then the message, and the secrets in them.

The length distinguishes a truncated envelope from a short one, and an oversized one is rejected
before it is read.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import BinaryIO, Self, TypeVar

from google.protobuf.message import DecodeError

from wire.errors import Code, WireError
from wire.identity import Identity
from wire.limits import ENVELOPE_MAX_BYTES, ENVELOPE_VERSION
from wire.v1 import bootstrap_pb2
from wire.v1.bootstrap_pb2 import BootstrapEnvelope, ServiceEnvelope

_LENGTH = struct.Struct(">I")
_RESOLUTION = "start guests through the runner of the same version: runner restart"

_Envelope = TypeVar("_Envelope", BootstrapEnvelope, ServiceEnvelope)


@dataclass(frozen=True, repr=False)
class Secrets:
    """The keys that settings refer to by name, with the fields of the message `Secrets`; empty
    if there is none. They are never shown in a repr."""

    api_key: str = ""
    memory_token: str = ""
    memory_key: str = ""
    job_key: str = ""
    provider_keys: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, message: bootstrap_pb2.Secrets) -> Self:
        read = {each.name: getattr(message, each.name) for each in fields(cls)}
        maps = {"provider_keys": dict(message.provider_keys), "servers": dict(message.servers)}
        return cls(**{**read, **maps})

    def values(self) -> Iterator[str]:
        """Every secret; empty for those that there are not."""
        for value in vars(self).values():
            yield from [value] if isinstance(value, str) else value.values()

    def message(self) -> bootstrap_pb2.Secrets:
        return bootstrap_pb2.Secrets(**vars(self))


def service(token: str, identity: Identity) -> bytes:
    """The framed envelope of the shell daemon or the embedder."""
    message = ServiceEnvelope(version=ENVELOPE_VERSION, token=token, identity=identity.message())
    return encode(message)


def encode(envelope: BootstrapEnvelope | ServiceEnvelope) -> bytes:
    """Frame `envelope`; raises `WireError` if it is over `ENVELOPE_MAX_BYTES`."""
    body = envelope.SerializeToString()
    if len(body) > ENVELOPE_MAX_BYTES:
        raise _bad(f"{len(body)} bytes; the limit is {ENVELOPE_MAX_BYTES}")
    return _LENGTH.pack(len(body)) + body


def read(stream: BinaryIO) -> BootstrapEnvelope:
    """Read an agent's envelope from `stream` and leave what follows.

    Raises `WireError` if it is truncated, oversized, unreadable or of another version.
    """
    return _read(stream, BootstrapEnvelope())


def read_service(stream: BinaryIO) -> ServiceEnvelope:
    """Read the envelope of the shell daemon or the embedder.

    Raises like `read`, and if it holds no token.
    """
    envelope = _read(stream, ServiceEnvelope())
    if not envelope.token:
        raise _bad("it holds no token")
    return envelope


def _read(stream: BinaryIO, envelope: _Envelope) -> _Envelope:
    head = _read_exactly(stream, _LENGTH.size)
    if len(head) < _LENGTH.size:
        raise _bad(f"truncated: {len(head)} of {_LENGTH.size} length bytes")
    (length,) = _LENGTH.unpack(head)
    if length > ENVELOPE_MAX_BYTES:
        raise _bad(f"oversized: {length} bytes; the limit is {ENVELOPE_MAX_BYTES}")
    body = _read_exactly(stream, length)
    if len(body) < length:
        raise _bad(f"truncated: {len(body)} of {length} bytes")
    try:
        envelope.ParseFromString(body)
    except DecodeError:
        raise _bad(f"the bytes are not a {envelope.DESCRIPTOR.name}") from None
    if envelope.version != ENVELOPE_VERSION:
        raise WireError(
            Code.FAILED_PRECONDITION,
            f"bootstrap envelope has version {envelope.version}",
            details=f"this guest reads version {ENVELOPE_VERSION}",
            resolution=_RESOLUTION,
        )
    return envelope


def _read_exactly(stream: BinaryIO, count: int) -> bytes:
    parts: list[bytes] = []
    while count > 0:
        part = stream.read(count)
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _bad(details: str) -> WireError:
    return WireError(
        Code.INVALID_ARGUMENT,
        "bad bootstrap envelope",
        details=details,
        resolution=_RESOLUTION,
    )
