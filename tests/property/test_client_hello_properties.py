"""The name in a TLS client's first words is found however they are cut, and nothing else passes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.proxy.tunnel import HELLO_MAX, ClientHello, HelloReader
from tests.support.egress.hellos import extension, hello, in_records, server_name

REAL = hello("files.example.org")


@given(st.lists(st.integers(1, 600), max_size=8))
def test_a_name_is_found_in_any_records(sizes: list[int]) -> None:
    assert HelloReader().feed(in_records(REAL, *sizes)) == ClientHello("files.example.org")


@given(st.lists(st.integers(1, 600), max_size=4), st.data())
def test_a_part_of_it_is_waited_for(sizes: list[int], data: st.DataObject) -> None:
    whole = in_records(REAL, *sizes)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert HelloReader().feed(part) is None


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_or_waited_for(data: bytes) -> None:
    with suppress(ValueError):
        assert HelloReader().feed(data) is None


@given(st.data())
def test_any_damage_is_refused_or_leaves_a_name(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(REAL) - 1))
    damaged = REAL[:at] + data.draw(st.binary(max_size=4)) + REAL[at + 1 :]
    try:
        found = HelloReader().feed(in_records(damaged))
    except ValueError:
        return
    assert found is None or isinstance(found.server_name, str)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (hello("a.org", extra=server_name("b.org")), "twice"),
        (hello(None, extra=extension(0, b"\0\x05\1\0\2ab")), "other things"),
        (b"\2" + REAL[1:], "another message"),
        (REAL + b"\0", "follows"),
        (b"\1" + (HELLO_MAX + 1).to_bytes(3), "larger"),
    ],
    ids=["two names", "no host", "no hello", "more", "large"],
)
def test_what_doubles_its_name_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HelloReader().feed(in_records(message))


@pytest.mark.parametrize(
    ("kind", "what"), [(0xFE0D, "encrypted client hello"), (0xFFCE, "encrypted server name")]
)
def test_what_may_hide_whom_it_is_for_is_told(kind: int, what: str) -> None:
    found = HelloReader().feed(in_records(hello("a.org", extra=extension(kind, bytes(64)))))
    assert found == ClientHello("a.org", f"an {what}")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x09\0\1\1"])
def test_what_is_no_tls_is_refused_at_its_first_bytes(data: bytes) -> None:
    with pytest.raises(ValueError):
        HelloReader().feed(data)


def test_a_hello_without_a_name_has_none() -> None:
    assert HelloReader().feed(in_records(hello(None))) == ClientHello("")
