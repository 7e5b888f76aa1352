"""The authority of one user's intercepted hosts. Commands trust it, and it can vouch for nothing
but those very hosts."""

import ssl
from collections.abc import Iterable
from datetime import datetime
from ipaddress import ip_network
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from wire.tls import load_key

_FIRST_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - X.509 has UTC only
_LAST_DAY: Final = datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001
"""What RFC 5280 names for certificates without a well-defined end: the authority is dropped as a
whole, and a clock that is wrong must not lock anybody out."""
_AUTHORITY: Final = "Oxydra egress"
_LEAF: Final = "Oxydra egress host"
_ADDRESSES: Final = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_SERVER: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])


class Authority:
    """Issues certificates of `hosts`, which are DNS names. Its key is in this process alone.

    Attributes:
        pem: For those that are to trust it: for each host a certificate of its key by a name of
            its own, because what lies below one host may be another one.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = frozenset(hosts)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}
        numbered = enumerate(sorted(self.hosts), 1)
        self._names = {host: _named(f"{_AUTHORITY} {number}") for number, host in numbered}
        self.pem = "".join(map(self._vouching_for, self._names))

    def _vouching_for(self, host: str) -> str:
        """The authority's certificate for one host. As clients read them, what is permitted
        includes all names below it, and with a dot what is excluded means those alone."""
        excluded = [x509.DNSName(f".{host}"), *map(x509.IPAddress, _ADDRESSES)]
        constraints = x509.NameConstraints([x509.DNSName(host)], excluded)
        draft = self._draft(self._names[host], self._names[host], self._key, signs=True)
        made = draft.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())
        return made.public_bytes(Encoding.PEM).decode()

    def context(self, host: str) -> ssl.SSLContext:
        """How to serve as `host`: HTTP/1.1 alone, to clients that ask for this very name.

        Raises `ValueError` for a host that the authority is not for.
        """
        if host not in self.hosts:
            raise ValueError(f"{host} is not intercepted")
        if host not in self._contexts:
            self._contexts[host] = self._serving(host)
        return self._contexts[host]

    def _serving(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])

        def check(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
            return None if (name or "").lower() == host else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        context.sni_callback = check
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        load_key(context, (key + self.issue(host, host).public_bytes(Encoding.PEM)).decode())
        return context

    def issue(self, name: str, host: str) -> x509.Certificate:
        """A certificate for a name by the authority for a host. Clients believe none for another
        name than that host's."""
        draft = self._draft(_named(_LEAF), self._names[host], self._leaf_key, signs=False)
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        return draft.add_extension(names, critical=False).sign(self._key, hashes.SHA256())

    def _draft(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, signs: bool
    ) -> x509.CertificateBuilder:
        public, ours = key.public_key(), self._key.public_key()
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ours)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_FIRST_DAY)
            .not_valid_after(_LAST_DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(x509.BasicConstraints(signs, 0 if signs else None), critical=True)
            .add_extension(_usage(signs_certificates=signs), critical=True)
            .add_extension(_SERVER, critical=False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
