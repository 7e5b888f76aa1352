"""Who is who on a socket: parties, and what they prove themselves with.

Every connection between parties is mutual TLS. The name in a certificate is the role of its owner;
a server that is reached from other machines also has its launch in it. The authority that signed it
says to which runner, or to which embedder, it belongs.
"""

import re
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, Self

from wire.errors import Code, WireError
from wire.v1 import bootstrap_pb2

_BLOCK: Final = re.compile(r"-----BEGIN [A-Z ]+-----\n[^-]+-----END [A-Z ]+-----\n")
_LAUNCH: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Launches whose ids a certificate can name."""


class Party(StrEnum):
    """The roles that certificates name."""

    RUNNER = "runner"
    CLI = "cli"
    """Commands and other programs of the operator."""
    AGENT = "agent"
    SHELL = "shell"
    EMBEDDER = "embedder"
    EGRESS = "egress"
    ACCESS = "access"
    """The server for people with access tokens; they have no certificates."""


def name_of(party: Party, launch_id: str = "") -> str:
    """The name in a certificate of `party`, and of no other launch than `launch_id` if it is given.

    Raises `WireError` (INVALID_ARGUMENT) for an id that no certificate can name.
    """
    if not launch_id:
        return party.value
    if not _LAUNCH.fullmatch(launch_id):
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"bad launch_id: {launch_id[:80]!r}",
            details="accepted: 1 to 63 small letters, digits and -",
        )
    return f"{party.value}.{launch_id}"


def party_of(name: str) -> Party | None:
    """Whose certificate has this name; None if nobody's."""
    role = name.partition(".")[0]
    return next((party for party in Party if party.value == role), None)


def launch_of(name: str) -> str:
    """The launch in a certificate's name; empty if it has none."""
    return name.partition(".")[2]


@dataclass(frozen=True, repr=False)
class Identity:
    """One party's certificate and key, and the authority whose parties it accepts, with the
    fields of the message `Identity`. All PEM; never shown in a repr."""

    certificate: str
    key: str
    authority: str

    @classmethod
    def of(cls, message: bootstrap_pb2.Identity) -> Self:
        """Read the identity of an envelope. Raises `WireError` if a part is missing."""
        if not (message.certificate and message.key and message.authority):
            raise _incomplete("the envelope holds none")
        return cls(**{field.name: getattr(message, field.name) for field in fields(cls)})

    def message(self) -> bootstrap_pb2.Identity:
        return bootstrap_pb2.Identity(**vars(self))

    @classmethod
    def from_pem(cls, text: str) -> Self:
        """Read what `to_pem` wrote. Raises `WireError` if it is damaged."""
        blocks = _BLOCK.findall(text)
        if len(blocks) != len(fields(cls)):
            raise _incomplete(f"{len(blocks)} PEM blocks of {len(fields(cls))}")
        return cls(*blocks)

    def to_pem(self) -> str:
        """Certificate, key and authority as one text, for a private file."""
        return self.certificate + self.key + self.authority


@dataclass(frozen=True, repr=False)
class Peer:
    """A server as a client knows it, whose certificate must name `party` and `launch_id` (empty: no
    launch). With `token` and `identity` the client proves itself."""

    endpoint: str
    party: Party
    token: str
    identity: Identity
    launch_id: str = ""

    @property
    def name(self) -> str:
        """What its certificate must say. Raises `WireError` if none can."""
        return name_of(self.party, self.launch_id)


def _incomplete(details: str) -> WireError:
    return WireError(
        Code.INVALID_ARGUMENT,
        "no complete identity: a certificate, its key and the authority",
        details=details,
        resolution="start guests through the runner of the same version: runner restart",
    )
