"""A certificate authority for tests."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for any name; `pem` is what trusts them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        own = _draft(self._name, self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = own.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def certificate_for(self, name: str, *, days: float = 1, begun: float = 1) -> Path:
        """A file with a certificate for `name` and its key, valid for so many `days` from
        now on, and since `begun` days."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        draft = _draft(subject, self._name, key.public_key(), days, begun)
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        certificate = draft.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        path = self._directory / f"{name}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        return path


def _draft(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: float = 1,
    begun: float = 1,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=begun))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
