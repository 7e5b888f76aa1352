"""TLS contexts of a party's identity, for sockets that do not speak gRPC."""

import os
import ssl
from contextlib import suppress

from wire.errors import Code, WireError
from wire.identity import Identity, party_of


def server_context(identity: Identity) -> ssl.SSLContext:
    """For a server that hears only callers with a certificate of its own authority. Who they are
    stands in the certificate: see `role_of`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _equipped(context, identity)


def client_context(identity: Identity) -> ssl.SSLContext:
    """For a client, which must give the server's name as `server_hostname` (`Peer.name`)."""
    return _equipped(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), identity)


def role_of(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """The role in the other side's certificate; empty if that does not name exactly one."""
    return party_of(_name_shown(connection)) or ""


def own_name(identity: Identity) -> str:
    """The name that others are shown by `identity`; empty if it has not exactly one.

    Python cannot look into a certificate by itself, only into the one that the other side shows.
    So both sides are played here. Raises `WireError` (INVALID_ARGUMENT) if the parts of the
    identity do not belong together.
    """
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        asking = client_context(identity)
        asking.check_hostname = False
        client = asking.wrap_bio(ours, theirs)
        server = server_context(identity).wrap_bio(theirs, ours, server_side=True)
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except (ssl.SSLError, TypeError, ValueError) as error:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "bad identity: it proves nothing to its own authority",
            details=str(error),
            resolution="start guests through the runner of the same version: runner restart",
        ) from None
    return _name_shown(client)


def _name_shown(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    names = (connection.getpeercert() or {}).get("subjectAltName", ())
    return str(names[0][1]) if len(names) == 1 else ""


def load_key(context: ssl.SSLContext, pem: str) -> None:
    """Give `context` a certificate and its key. Python reads them from files only: here from one
    in memory that has no name."""
    with os.fdopen(os.memfd_create("identity", os.MFD_CLOEXEC), "wb") as file:
        file.write(pem.encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def _equipped(context: ssl.SSLContext, identity: Identity) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=identity.authority)
    load_key(context, identity.certificate + identity.key)
    return context
