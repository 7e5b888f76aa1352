"""The rule of the host's time zone, which a container is given."""

from pathlib import Path

import pytest

from runner.host.time_zone import time_zone

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, rule in (("Europe/Berlin", BERLIN), ("UTC", "UTC0")):
        path = tmp_path / "zoneinfo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"TZif2" + bytes(60) + b"\n" + rule.encode() + b"\n")
    (tmp_path / "zoneinfo" / "broken").write_bytes(b"no zone\n")
    return tmp_path / "zoneinfo"


@pytest.mark.parametrize(
    ("environ", "rule"),
    [
        ({}, BERLIN),
        ({"TZ": ""}, ""),
        ({"TZ": "UTC"}, "UTC0"),
        ({"TZ": ":Europe/Berlin"}, BERLIN),
        ({"TZ": "EST5EDT,M3.2.0,M11.1.0"}, "EST5EDT,M3.2.0,M11.1.0"),
        ({"TZ": "broken"}, ""),
    ],
)
def test_the_rule(files: Path, environ: dict[str, str], rule: str) -> None:
    assert time_zone(environ, files=files, local=files / "Europe/Berlin") == rule


def test_a_machine_without_a_zone(tmp_path: Path) -> None:
    assert time_zone({}, files=tmp_path, local=tmp_path / "none") == ""
