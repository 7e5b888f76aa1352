"""Authorities: who issues the certificates with which parties prove themselves to each other.

A runner's authority lives in its memory and ends with it. An embedder's is kept beside its token,
because the embedder outlives runners and must be the same for all of them.

Certificates have no practical end and do not look at the clock: an authority is dropped as a whole,
with everything it has issued, and a clock that was wrong must not lock anybody out.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from wire.errors import Code
from wire.identity import Identity, Party, name_of

from runner.errors import HostError

_FIRST_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - X.509 has UTC only
_LAST_DAY: Final = datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001
"""What RFC 5280 names for certificates without a well-defined end."""
_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "oxydra")])


@dataclass(frozen=True, repr=False)
class Authority:
    """Issues identities that accept each other and nobody else's."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        own = _draft(_NAME, key).add_extension(x509.BasicConstraints(True, 0), critical=True)
        return cls(key, own.sign(key, hashes.SHA256()))

    @classmethod
    def from_pem(cls, text: str) -> Self:
        """Read what `to_pem` wrote. Raises `HostError` (DATA_LOSS) if it is damaged."""
        try:
            key = load_pem_private_key(text.encode(), None)
            certificate = x509.load_pem_x509_certificate(text.encode())
        except (ValueError, TypeError) as error:
            raise HostError(
                Code.DATA_LOSS, "an authority's file is damaged", details=str(error)
            ) from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(key, certificate)

    def to_pem(self) -> str:
        """Key and certificate. Whoever has them can issue identities."""
        return _private(self.key) + self.public

    @property
    def public(self) -> str:
        """The certificate alone, in PEM: what trusts this authority."""
        return _public(self.certificate)

    def issue(self, party: Party, launch_id: str = "") -> Identity:
        """A new key and certificate for `party`; of no other launch, if one is given."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party.value)])
        names = x509.SubjectAlternativeName([x509.DNSName(name_of(party, launch_id))])
        draft = (
            _draft(subject, key)
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(False, None), critical=True)
        )
        leaf = draft.sign(self.key, hashes.SHA256())
        return Identity(_public(leaf), _private(key), self.public)


def names_in(certificate: bytes) -> list[str]:
    """The host names in a certificate, without those for many hosts. Raises `HostError`
    (INVALID_ARGUMENT) if it is none."""
    try:
        found = x509.load_pem_x509_certificate(certificate).extensions
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except ValueError as error:
        raise HostError(
            Code.INVALID_ARGUMENT, "this is not a certificate", details=str(error)
        ) from None
    return [name for name in names.get_values_for_type(x509.DNSName) if "*" not in name]


def _draft(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FIRST_DAY)
        .not_valid_after(_LAST_DAY)
    )


def _public(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
