"""The decision about single attempts; about any, see test_egress_policy_property."""

import pytest
from wire.egress.policy import UNREADABLE, Attempt, Policy, Verdict
from wire.v1 import egress_pb2

PIP = Attempt("tunnel", "pypi.org", 443)
FILES = Attempt("tunnel", "files.pythonhosted.org", 443)
ELSEWHERE = Attempt("tunnel", "example.org", 443)


def policy(
    *allow: str, presets: tuple[str, ...] = (), deny: tuple[str, ...] = (), ask: bool = False
) -> Policy:
    return Policy.of(egress_pb2.EgressPolicy(allow=allow, presets=presets, deny=deny, ask=ask))


def test_nothing_is_allowed_unless_somebody_said_so() -> None:
    assert policy().decide(ELSEWHERE, "s") == Verdict("deny", "", "no rule allows example.org")


def test_a_preset_opens_all_that_its_name_needs() -> None:
    opened = policy(presets=("pypi",))
    assert opened.decide(PIP, "s") == Verdict("allow", "preset pypi", "")
    assert opened.decide(FILES, "") == Verdict("allow", "preset pypi", "")
    assert opened.decide(ELSEWHERE, "s").decision == "deny"
    assert opened.decide(Attempt("http", "pypi.org", 80), "s").decision == "deny"


def test_what_is_denied_counts_more() -> None:
    split = policy("*.example.org", deny=("secret.example.org", "POST www.example.org/admin/*"))
    assert split.decide(Attempt("tunnel", "files.example.org", 443), "s").decision == "allow"
    assert split.decide(Attempt("tunnel", "secret.example.org", 443), "s") == Verdict(
        "deny", "secret.example.org", "the rule secret.example.org denies it"
    )
    readable = Attempt("https", "www.example.org", 443, "POST", "/admin/users")
    assert split.decide(readable, "s").decision == "deny"
    unclear = Attempt("https", "www.example.org", 443, "POST", "/x/../admin/users")
    assert split.decide(unclear, "s").decision == "deny"
    other = Attempt("https", "www.example.org", 443, "GET", "/admin/users")
    assert split.decide(other, "s").decision == "allow"


def test_a_deny_without_a_port_shuts_every_port() -> None:
    shut = policy("example.org:8443", deny=("example.org",))
    assert shut.decide(Attempt("tunnel", "example.org", 8443), "s").decision == "deny"


def test_a_tunnel_is_not_readable() -> None:
    partly = policy("GET https://example.org/public/*")
    verdict = partly.decide(ELSEWHERE, "s")
    assert verdict.decision == "deny"
    assert verdict.reason.endswith(UNREADABLE)
    readable = Attempt("https", "example.org", 443, "GET", "/public/a")
    assert partly.decide(readable, "s").rule == "GET https://example.org/public/*"
    other = Attempt("https", "example.org", 443, "GET", "/private")
    assert "other methods or paths" in partly.decide(other, "s").reason

    verdict = policy("example.org", deny=("POST example.org",)).decide(ELSEWHERE, "s")
    assert verdict.decision == "deny"
    assert verdict.reason.endswith(UNREADABLE)


def test_a_question_asks_for_a_host_or_for_a_preset() -> None:
    asking = policy(ask=True)
    assert asking.decide(ELSEWHERE, "s") == Verdict(
        "ask", "", "no rule names example.org", "https://example.org"
    )
    other_port = asking.decide(Attempt("tunnel", "EXAMPLE.org.", 8443), "s")
    assert other_port.asks_for == "https://example.org:8443"
    plain = asking.decide(Attempt("http", "example.org", 443), "s")
    assert plain.asks_for == "http://example.org:443"
    assert asking.decide(FILES, "s").asks_for == "preset pypi"


def test_nobody_is_asked_outside_of_a_session_nor_about_what_is_denied_or_an_address() -> None:
    asking = policy("GET partly.example.org", deny=("example.org",), ask=True)
    assert "outside of a session" in asking.decide(PIP, "").reason
    assert asking.decide(ELSEWHERE, "s").decision == "deny"
    assert asking.decide(Attempt("tunnel", "93.184.216.34", 443), "s").decision == "deny"
    assert asking.decide(Attempt("tunnel", "partly.example.org", 443), "s").decision == "deny"


@pytest.mark.parametrize(
    "attempt",
    [
        PIP,
        ELSEWHERE,
        Attempt("tunnel", "example.org", 8443),
        Attempt("http", "example.org", 8080),
        Attempt("http", "deb.debian.org", 80),
    ],
)
def test_a_yes_opens_what_was_asked_for(attempt: Attempt) -> None:
    asking = policy(ask=True)
    asks_for = asking.decide(attempt, "s").asks_for
    asking.grant(egress_pb2.EgressGrant(rule=asks_for, session_id="s"))
    assert asking.decide(attempt, "s") == Verdict("allow", asks_for, "allowed for this session")
    assert asking.decide(attempt, "other").decision == "ask"


def test_a_yes_to_https_opens_no_plain_http() -> None:
    asking = policy(ask=True)
    for attempt, other in (
        (ELSEWHERE, Attempt("http", "example.org", 80, "GET", "/")),
        (Attempt("tunnel", "example.org", 8443), Attempt("http", "example.org", 8443, "GET", "/")),
    ):
        asks_for = asking.decide(attempt, "s").asks_for
        asking.grant(egress_pb2.EgressGrant(rule=asks_for, session_id="s"))
        assert asking.decide(other, "s").decision == "ask"


def test_a_request_that_servers_take_for_another_one_meets_no_rule_that_reads() -> None:
    altered = Attempt("https", "example.org", 443, "GET", "/public/a", "the header X-Original-URL")
    assert policy("example.org").decide(altered, "s").decision == "allow"
    for rules in (
        policy("GET example.org"),
        policy("example.org/public/*"),
        policy("example.org", deny=("DELETE example.org",)),
        policy("example.org", deny=("example.org/private/*",)),
    ):
        verdict = rules.decide(altered, "s")
        assert (verdict.decision, "X-Original-URL" in verdict.reason) == ("deny", True)


def test_grants_of_all_sessions_and_against_the_settings() -> None:
    granted = policy("example.org", deny=("secret.example.org",))
    granted.grant(egress_pb2.EgressGrant(rule="preset pypi"))
    granted.grant(egress_pb2.EgressGrant(rule="example.org", denied=True, session_id="s"))
    granted.grant(egress_pb2.EgressGrant(rule="secret.example.org"))
    assert granted.decide(PIP, "") == Verdict("allow", "preset pypi", "allowed until the host ends")
    assert granted.decide(ELSEWHERE, "s").decision == "deny"
    assert granted.decide(ELSEWHERE, "t").decision == "allow"
    assert granted.decide(Attempt("tunnel", "secret.example.org", 443), "s").decision == "deny"


def test_a_grant_for_a_turn_opens_nothing_in_another_one() -> None:
    granted = policy()
    granted.grant(egress_pb2.EgressGrant(rule="preset pypi", session_id="s", turn_id="t1"))
    assert granted.decide(PIP, "s", "t1") == Verdict(
        "allow", "preset pypi", "allowed for this turn"
    )
    for session_id, turn_id in (("s", "t2"), ("s", ""), ("other", "t1"), ("", "")):
        assert granted.decide(PIP, session_id, turn_id).decision == "deny"


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "[::ffff:1.2.3.4]", "a b", ""])
def test_hosts_with_several_readings_are_refused(host: str) -> None:
    verdict = policy("*", ask=True).decide(Attempt("tunnel", host, 443), "s")
    assert verdict.decision == "deny"
    assert "is refused: it is" in verdict.reason


def test_addresses_need_a_rule_that_names_them() -> None:
    anything = policy("*", "10.1.2.3:8080")
    assert anything.decide(Attempt("http", "10.1.2.3", 8080), "s").decision == "allow"
    verdict = anything.decide(Attempt("http", "10.1.2.4", 80), "s")
    assert verdict.reason.endswith("addresses are allowed only by rules that name them")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (egress_pb2.EgressPolicy(allow=["ftp://example.org"]), "'ftp://example.org' is not a rule"),
        (egress_pb2.EgressPolicy(deny=["preset pypi"]), "'preset pypi' is not a rule"),
        (egress_pb2.EgressPolicy(presets=["all"]), "no such preset"),
        (
            egress_pb2.EgressPolicy(grants=[egress_pb2.EgressGrant(rule="0x7f.1")]),
            "another spelling",
        ),
    ],
)
def test_a_policy_that_cannot_be_read(wrong: egress_pb2.EgressPolicy, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Policy.of(wrong)
