"""What people allow and deny until the host ends."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from wire.egress.rules import PRESETS
from wire.errors import Code, WireError
from wire.v1.egress_pb2 import EgressConfiguration, EgressGrant, EgressPolicy

from runner.egress.grants import GRANTS_MAX, Grants
from runner.errors import HostError
from runner.host.egress import EgressGuests

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


def test_those_of_single_turns_make_room_for_each_other() -> None:
    grants = Grants()
    grants.add("shell", PYPI)
    for number in range(2 * GRANTS_MAX):
        turn = EgressGrant(rule="example.org", session_id="s", turn_id=f"turn-{number}")
        assert grants.add("shell", turn)
    kept = grants.of("shell")
    assert len(kept) <= GRANTS_MAX // 10 + 2
    assert (kept[0], kept[-1].turn_id) == (PYPI, f"turn-{2 * GRANTS_MAX - 1}")


def test_their_number_is_bounded() -> None:
    grants = Grants()
    for number in range(GRANTS_MAX):
        grants.add("shell", EgressGrant(rule=f"{number}.example.org"))
    with pytest.raises(HostError, match="1000 grants"):
        grants.add("shell", EgressGrant(rule="one-more.example.org"))
    assert not grants.add("shell", EgressGrant(rule="1.example.org"))
    assert grants.add("shell", EgressGrant(rule="1.example.org", denied=True))


HTTPS = EgressGrant(rule="https://example.org:8443", session_id="one")
REFUSED = EgressGrant(rule=HTTPS.rule, session_id="one", denied=True)


@pytest.mark.parametrize(
    ("now", "grant", "kept"),
    [
        *((EgressPolicy(ask=True), EgressGrant(rule=f"preset {each}"), 1) for each in PRESETS),
        (EgressPolicy(ask=True), HTTPS, 1),
        (EgressPolicy(ask=True, allow=["example.org:8443"]), HTTPS, 0),
        (EgressPolicy(), HTTPS, None),
        (EgressPolicy(ask=True, deny=["*.org"]), HTTPS, None),
        (EgressPolicy(ask=True, allow=["GET example.org:8443/public/*"]), HTTPS, None),
        (EgressPolicy(ask=True, grants=[REFUSED]), HTTPS, None),
    ],
)
def test_a_yes_is_kept_only_for_what_is_still_asked(
    now: EgressPolicy, grant: EgressGrant, kept: int | None
) -> None:
    grant.session_id, grants = "one", Grants()
    told = EgressConfiguration(shell=now)
    launcher = SimpleNamespace(
        configuration=lambda *, reads: told, kept=SimpleNamespace(grants=grants)
    )
    egress_guests = EgressGuests(cast(Any, SimpleNamespace(launcher=launcher)), cast(Any, None))
    if kept is None:
        with pytest.raises(WireError, match="have changed"):
            egress_guests.granted("shell", grant)
    else:
        egress_guests.granted("shell", grant)
    assert len(grants.of("shell")) == (kept or 0)
