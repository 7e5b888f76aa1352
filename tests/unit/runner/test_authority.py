"""What an authority issues, and that it does not look at the clock."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from wire.identity import Identity, Party

from runner.errors import HostError
from runner.host.authority import Authority


def certificate(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


@pytest.mark.parametrize("party", list(Party))
def test_a_certificate_names_the_role_and_nothing_else(party: Party) -> None:
    leaf = certificate(Authority.new().issue(party).certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [party.value]
    assert leaf.subject.rfc4514_string() == f"CN={party.value}"


def test_only_the_authority_can_issue() -> None:
    authority = Authority.new()
    leaf = certificate(authority.issue(Party.SHELL).certificate)
    constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, False)
    leaf.verify_directly_issued_by(authority.certificate)
    with pytest.raises(Exception, match=r".*"):
        leaf.verify_directly_issued_by(Authority.new().certificate)


def test_every_identity_has_a_key_of_its_own() -> None:
    authority = Authority.new()
    issued = [authority.issue(Party.AGENT) for _ in range(3)]
    assert len({each.key for each in issued}) == 3
    serials = {certificate(each.certificate).serial_number for each in issued}
    assert len(serials) == 3
    assert isinstance(certificate(issued[0].certificate).public_key(), ec.EllipticCurvePublicKey)


def test_a_clock_that_is_wrong_by_decades_locks_nobody_out() -> None:
    authority = Authority.new()
    for made in (authority.certificate, certificate(authority.issue(Party.CLI).certificate)):
        assert made.not_valid_before_utc <= datetime(2000, 1, 1, tzinfo=UTC)
        assert made.not_valid_after_utc >= datetime(9999, 12, 31, tzinfo=UTC)


def test_an_authority_that_is_kept_is_the_same_one() -> None:
    authority = Authority.new()
    again = Authority.from_pem(authority.to_pem())
    leaf = certificate(again.issue(Party.EMBEDDER).certificate)
    leaf.verify_directly_issued_by(authority.certificate)


@pytest.mark.parametrize("text", ["", "nonsense", Authority.new().to_pem()[:300]])
def test_a_damaged_authority_is_a_clear_error(text: str) -> None:
    with pytest.raises(HostError, match="authority's file is damaged"):
        Authority.from_pem(text)


def test_an_identity_is_read_as_it_was_written_and_shown_in_no_repr() -> None:
    identity = Authority.new().issue(Party.CLI)
    assert Identity.from_pem(identity.to_pem()) == identity
    assert Identity.of(identity.message()) == identity
    assert "PRIVATE" not in repr(identity)
