"""The authority of a test cluster, and the certificates of its parts and people."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_VALID: Final = timedelta(days=2)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, both as PEM."""

    certificate: str
    key: str


class Authority:
    """Issues the certificates that a cluster's parts know each other by."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test cluster", "")
        draft = _draft(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        signed = draft.sign(self._key, hashes.SHA256())
        self.certificate = signed.public_bytes(Encoding.PEM).decode()

    def issue(self, user: str, group: str = "", hosts: tuple[str, ...] = ()) -> Identity:
        """A certificate of `user`, who is in `group`; a server's is valid for `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(_name(user, group), self._name, key)
        if hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in hosts])
            draft = draft.add_extension(names, critical=False)
        signed = draft.sign(self._key, hashes.SHA256())
        return Identity(signed.public_bytes(Encoding.PEM).decode(), _pem(key))


def signing_key() -> str:
    """A key that tokens of service accounts are signed with, as PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def _name(user: str, group: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    ).decode()
