"""TLS contexts of a party's identity, for sockets that do not speak gRPC."""

import os
import ssl

from wire.identity import Identity


def server_context(identity: Identity) -> ssl.SSLContext:
    """For a server that hears only callers with a certificate of its own authority. Who they are
    stands in the certificate: see `role_of`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _equipped(context, identity)


def client_context(identity: Identity) -> ssl.SSLContext:
    """For a client, which must give the server's role as `server_hostname`."""
    return _equipped(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), identity)


def role_of(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """The role in the other side's certificate; empty if that does not name exactly one."""
    names = (connection.getpeercert() or {}).get("subjectAltName", ())
    return str(names[0][1]) if len(names) == 1 else ""


def load_key(context: ssl.SSLContext, pem: str) -> None:
    """Give `context` a certificate and its key. Python reads them from files only: here from one
    in memory that has no name."""
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _equipped(context: ssl.SSLContext, identity: Identity) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=identity.authority)
    load_key(context, identity.certificate + identity.key)
    return context
