"""What rules mean, and what is no rule."""

import pytest
from wire.egress.rules import PRESETS, Readings, Rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("files.example.org", Rule((), "", "files.example.org", 0, "")),
        ("Files.Example.ORG.", Rule((), "", "files.example.org", 0, "")),
        ("*.example.org", Rule((), "", "*.example.org", 0, "")),
        ("*", Rule((), "", "*", 0, "")),
        ("*:8443", Rule((), "", "*", 8443, "")),
        ("münchen.example", Rule((), "", "xn--mnchen-3ya.example", 0, "")),
        ("10.1.2.3:8080", Rule((), "", "10.1.2.3", 8080, "")),
        ("[2001:db8:0::1]:8080", Rule((), "", "2001:db8::1", 8080, "")),
        ("https://example.org", Rule((), "https", "example.org", 0, "")),
        ("POST,GET example.org", Rule(("GET", "POST"), "", "example.org", 0, "")),
        (
            "GET,HEAD https://api.example.org:8443/v1/*",
            Rule(("GET", "HEAD"), "https", "api.example.org", 8443, "/v1/*"),
        ),
    ],
)
def test_rules(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule
    assert Rule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a rule is"),
        ("get example.org", "a rule is"),
        ("ftp://example.org", "a rule is"),
        ("user@example.org", "a rule is"),
        ("example.org/a b", "a rule is"),
        ("example.org\n", "a rule is"),
        ("example.org:", "a rule is"),
        ("example.org/" + "a" * 2000, "a rule is"),
        ("example.org:0", "ports are"),
        ("example.org:65536", "ports are"),
        ("2130706433", "another spelling"),
        ("0x7f.0.0.1", "another spelling"),
        ("0177.0.0.1", "another spelling"),
        ("[::ffff:10.0.0.1]", "another spelling of 10.0.0.1"),
        ("*.10.0.0.1", "below an address"),
        ("**.example.org", "not a host name"),
        ("a*.example.org", "not a host name"),
        ("*.*.example.org", "not a host name"),
        ("example.org/a/../b", 'no "."'),
        ("example.org/a/%2e%2e/b", 'no "."'),
        ("example.org/a//b", 'no "."'),
        ("example.org/%zz", 'no "."'),
        ("example.org/a?b=c", "no query"),
        ("example.org/a#b", "no query"),
    ],
)
def test_what_is_no_rule(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Rule.parse(text)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_rules(name: str) -> None:
    for text in PRESETS[name]:
        assert str(Rule.parse(text)) == text


@pytest.mark.parametrize(
    ("rule", "host", "meant"),
    [
        ("example.org", "example.org", True),
        ("example.org", "www.example.org", False),
        ("example.org", "notexample.org", False),
        ("*.example.org", "www.example.org", True),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "notexample.org", False),
        ("*", "example.org", True),
        ("*", "10.1.2.3", False),
        ("*", "2001:db8::1", False),
        ("10.1.2.3", "10.1.2.3", True),
    ],
)
def test_hosts(rule: str, host: str, meant: bool) -> None:
    assert Rule.parse(rule).names(host) is meant


@pytest.mark.parametrize(
    ("rule", "scheme", "port", "opens", "shuts"),
    [
        ("example.org", "https", 443, True, True),
        ("example.org", "tunnel", 443, True, True),
        ("example.org", "http", 80, True, True),
        ("example.org", "http", 443, False, True),
        ("example.org", "tunnel", 22, False, True),
        ("example.org:22", "tunnel", 22, True, True),
        ("example.org:22", "tunnel", 443, False, False),
        ("https://example.org", "tunnel", 443, True, True),
        ("https://example.org", "http", 80, False, False),
        ("http://example.org", "tunnel", 443, False, False),
        ("http://example.org:8080", "http", 8080, True, True),
        ("http://example.org:8080", "tunnel", 8080, False, False),
    ],
)
def test_schemes_and_ports(rule: str, scheme: str, port: int, opens: bool, shuts: bool) -> None:
    assert Rule.parse(rule).opens(scheme, port) is opens
    assert Rule.parse(rule).shuts(scheme, port) is shuts


@pytest.mark.parametrize(
    ("rule", "path", "means", "may_mean"),
    [
        ("/public/*", "/public/a", True, True),
        ("/public/*", "/public/a/b", True, True),
        ("/public/*", "/public/", True, True),
        ("/public/*", "/public", False, True),
        ("/public/*", "/private/public/a", False, False),
        ("/public/*", "/Public/a", False, True),
        ("/public/*", "/%50UBLIC/a", False, True),
        ("/private", "/private;x=1", False, True),
        ("/private", "/a;/../private", False, True),
        ("/private", "/private.", False, True),
        ("/private", "/private%20", False, True),
        ("/private", "/%20private", False, True),
        ("/private", "/private%3Fx", False, True),
        ("/private", "/private%2523x", False, True),
        ("/private", "/priv%EF%BD%81te", False, True),
        ("/private", "/%c0%ae%c0%ae/private", False, True),
        ("/private", "/priv%ADate", False, True),
        ("/public/*", "/public/a%20b", True, True),
        ("/public/*", "/public/%C3%A4", True, True),
        ("/public/*", "/%70ublic/a", True, True),
        ("/public/*", "/public/a?q=/../private", True, True),
        ("/public/*", "/public/../private", False, True),
        ("/public/*", "/public/%2e%2e/private", False, True),
        ("/public/*", "/public/.%2E/private", False, True),
        ("/public/*", "/public/%252e%252e/private", False, True),
        ("/public/*", "/public/..;a=b/private", False, True),
        ("/public/*", "/public/..%2fprivate", False, True),
        ("/public/*", "/public/..%5cprivate", False, True),
        ("/public/*", "/public/..\\private", False, True),
        ("/public/*", "/public//private", False, True),
        ("/public/*", "/public/%00", False, True),
        ("/public/*", "/public/%zz", False, True),
        ("/public/*", "/public/%", False, True),
        ("/public/*", "/public/" + "%25" * 9 + "2e", False, True),
        ("/public/*", "/public/%" + "25" * 9 + "2e", False, True),
        ("/public/*", "/public%2fa", False, True),
        ("/public/*", "*", False, True),
        ("/public", "/public", True, True),
        ("/public", "/public/", False, True),
        ("/a%20b", "/a b", True, True),
        ("/a%2Fb", "/a%2fb", True, True),
        ("/a%2Fb", "/a/b", False, True),
        ("/*/info/refs", "/a/b.git/info/refs", True, True),
        ("/*/info/refs", "/info/refs", False, False),
        ("/a*a", "/a", False, False),
        ("/a*a", "/aa", True, True),
        ("/a*b*c", "/a-b-b-c", True, True),
        ("/a*b*c", "/a-c-b", False, False),
        ("/*", "/", True, True),
        ("/.well-known/*", "/.well-known/a", True, True),
    ],
)
def test_paths(rule: str, path: str, means: bool, may_mean: bool) -> None:
    parsed = Rule.parse(f"example.org{rule}")
    assert parsed.means("GET", Readings.of(path)) is means
    assert parsed.may_mean("GET", Readings.of(path)) is may_mean


def test_many_asterisks_take_no_time() -> None:
    rule = Rule.parse("example.org/" + "a*" * 900 + "b")
    assert not rule.means("GET", Readings.of("/" + "a" * 60_000))


def test_methods() -> None:
    rule = Rule.parse("GET,HEAD example.org")
    assert rule.means("GET", Readings.of("/"))
    assert rule.means("get", Readings.of("/"))
    assert not rule.means("POST", Readings.of("/"))
    assert not rule.may_mean("POST", Readings.of("/"))
