"""Limits, flags and the token: what is refused, in which words."""

import os
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError

from shell_daemon.limits import Settings
from shell_daemon.server import read_token


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"commands_max": 0}, "commands_max: 0 is not above 0"),
        ({"buffer_bytes": -1}, "buffer_bytes: -1 is not above 0"),
        ({"timeout_default": 0.0}, "timeout_default: 0.0 is not above 0"),
        ({"timeout_default": 9.0, "timeout_max": 8.0}, "timeout_default: 9 s is above timeout_max"),
        ({"shared": Path("relative")}, "shared: relative is not a directory"),
        ({"tmp": Path("/nonexistent")}, "tmp: /nonexistent is not a directory"),
        ({"tmp": Path("/etc/passwd")}, "tmp: /etc/passwd is not a directory"),
    ],
)
def test_bad_settings_are_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WireError, match="bad shell daemon setting") as raised:
        Settings(**{"shared": tmp_path, "tmp": tmp_path, **fields})
    assert problem in raised.value.brief
    assert raised.value.code is Code.INVALID_ARGUMENT


def token_of(data: bytes) -> tuple[str, bytes]:
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    try:
        return read_token(read), os.read(read, 100)
    finally:
        os.close(read)


def test_the_token_is_the_first_line_and_no_byte_more() -> None:
    assert token_of(b"abc-_9\nnext") == ("abc-_9", b"next")
    assert token_of(b"abc") == ("abc", b"")


@pytest.mark.parametrize("data", [b"", b"\n", b"\nabc\n", b"x" * 2000 + b"\n", b"\xff\xfe\n"])
def test_a_missing_or_impossible_token_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="no token on standard input"):
        token_of(data)
