"""A host has one spelling; what has more than one reading is refused."""

import pytest
from wire.egress.hosts import canonical, is_address, shown


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("münchen.example", "xn--mnchen-3ya.example"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
        ("my_bucket.s3.example", "my_bucket.s3.example"),
        ("ＥＸＡＭＰＬＥ。org", "example.org"),
        ("localhost", "localhost"),
        ("10.1.2.3", "10.1.2.3"),
        ("[2001:DB8:0:0:0:0:0:1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_spellings_of_one_host(written: str, meant: str) -> None:
    assert canonical(written) == meant
    assert canonical(meant) == meant


@pytest.mark.parametrize(
    "written",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.0x1",
        "1.2.3.4.5",
        "256.1.1.1",
        "example.0x7f",
        "example.1",
        "１２７.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[fe80::1%eth0]",
        "[fe80::1%25eth0]",
        "[127.0.0.1]",
        "[::1",
        "::1::",
    ],
)
def test_other_spellings_of_addresses_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"address|spelling|name"):
        canonical(written)


@pytest.mark.parametrize(
    "written",
    [
        "",
        ".",
        "..",
        "example..org",
        ".example.org",
        "example.org..",
        "-example.org",
        "example-.org",
        "a" * 64 + ".org",
        ".".join(["a" * 60] * 5),
        "example.org:443",
        "user@example.org",
        "exa mple.org",
        "example.org\n",
        "example.org\0",
        "exam%70le.org",
        "example.org/",
        "*.example.org",
        "straße.example",
        "a\u200db.example",
    ],
)
def test_what_is_no_host(written: str) -> None:
    with pytest.raises(ValueError):
        canonical(written)


def test_addresses_are_told_from_names() -> None:
    assert is_address("10.1.2.3")
    assert is_address("2001:db8::1")
    assert not is_address("example.org")
    assert not is_address("1a.example")


def test_how_it_is_shown() -> None:
    assert shown("example.org", 0) == "example.org"
    assert shown("2001:db8::1", 8443) == "[2001:db8::1]:8443"
