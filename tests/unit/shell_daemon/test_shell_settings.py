"""Limits, flags and the token: what is refused, in which words."""

import os
from pathlib import Path
from typing import Any

import pytest
from wire import envelope
from wire.errors import Code, WireError
from wire.identity import Party

from shell_daemon.limits import Settings
from shell_daemon.server import read_envelope
from tests.support import parties


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


def test_the_envelope_is_read_and_no_byte_more() -> None:
    sent = envelope.service("the-token", parties.identity(Party.SHELL))
    read, write = os.pipe()
    os.write(write, sent + b"next")
    os.close(write)
    try:
        assert read_envelope(read).token == "the-token"
        assert os.read(read, 100) == b"next"
    finally:
        os.close(read)
