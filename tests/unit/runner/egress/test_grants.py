"""What people allow and deny until the host ends."""

import pytest
from wire.errors import Code
from wire.v1.egress_pb2 import EgressGrant

from runner.egress.grants import GRANTS_MAX, Grants
from runner.errors import HostError

PYPI = EgressGrant(rule="preset pypi", session_id="one")


def test_a_grant_is_kept_once_and_taken_back() -> None:
    grants = Grants()
    assert grants.add("shell", PYPI)
    assert not grants.add("shell", PYPI)
    assert grants.add("shell", EgressGrant(rule="Example.ORG"))
    assert grants.of("shell") == (PYPI, EgressGrant(rule="example.org"))
    assert grants.of("agent") == ()
    assert grants.withdraw("shell", EgressGrant(rule="example.org."))
    assert not grants.withdraw("shell", EgressGrant(rule="example.org"))
    assert not grants.withdraw("shell", EgressGrant(rule="preset pypi", session_id="two"))
    assert grants.of("shell") == (PYPI,)


def test_the_last_word_counts() -> None:
    grants = Grants()
    grants.add("shell", EgressGrant(rule="example.org", denied=True))
    grants.add("shell", EgressGrant(rule="example.org"))
    assert grants.of("shell") == (EgressGrant(rule="example.org"),)
    grants.add("shell", EgressGrant(rule="example.org", denied=True))
    assert grants.of("shell") == (EgressGrant(rule="example.org", denied=True),)


@pytest.mark.parametrize(
    ("role", "grant"),
    [
        ("embedder", EgressGrant(rule="example.org")),
        ("", EgressGrant(rule="example.org")),
        ("shell", EgressGrant(rule="0x7f.1")),
        ("shell", EgressGrant(rule="preset everything")),
        ("shell", EgressGrant(rule="")),
        ("shell", EgressGrant(rule="example.org", session_id="a b")),
    ],
)
def test_what_is_no_grant(role: str, grant: EgressGrant) -> None:
    for change in (Grants().add, Grants().withdraw):
        with pytest.raises(HostError) as refused:
            change(role, grant)
        assert refused.value.code is Code.INVALID_ARGUMENT


def test_their_number_is_bounded() -> None:
    grants = Grants()
    for number in range(GRANTS_MAX):
        grants.add("shell", EgressGrant(rule=f"{number}.example.org"))
    with pytest.raises(HostError, match="1000 grants"):
        grants.add("shell", EgressGrant(rule="one-more.example.org"))
    assert not grants.add("shell", EgressGrant(rule="1.example.org"))
    assert grants.add("shell", EgressGrant(rule="1.example.org", denied=True))
