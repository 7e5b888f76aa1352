"""Limits, flags and the token: what is refused, in which words."""

from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError

from shell_daemon.limits import Settings


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
        ({"git_identity": "Alice"}, "git_identity: 'Alice'"),
        ({"git_identity": "Alice\n <a@b>"}, "git_identity: 'Alice\\n <a@b>'"),
    ],
)
def test_bad_settings_are_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WireError, match="bad shell daemon setting") as raised:
        Settings(**{"shared": tmp_path, "tmp": tmp_path, **fields})
    assert problem in raised.value.brief
    assert raised.value.code is Code.INVALID_ARGUMENT
