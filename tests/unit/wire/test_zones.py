"""Time zones: names that are known and not, this machine's own, and moments as they are there."""

import zoneinfo
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError
from wire import zones
from wire.settings import AgentSettings
from wire.zones import own_name, rule

FRIDAY = datetime(2026, 11, 26, 12, 6, tzinfo=UTC)
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, ending in (("Europe/Berlin", BERLIN), ("UTC", "UTC0")):
        path = tmp_path / "zoneinfo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"TZif2" + bytes(60) + b"\n" + ending.encode() + b"\n")
    (tmp_path / "zoneinfo" / "broken").write_bytes(b"no zone\n")
    (tmp_path / "zoneinfo" / "leaps").write_bytes(b"TZif2" + b"\n\0\0" + b"\n\n")
    (tmp_path / "zoneinfo" / "old").write_bytes(b"TZif\0" + b"\n\0\0\n")
    return tmp_path / "zoneinfo"


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, BERLIN),
        ({"TZ": ""}, ""),
        ({"TZ": "UTC"}, "UTC0"),
        ({"TZ": ":Europe/Berlin"}, BERLIN),
        ({"TZ": "EST5EDT,M3.2.0,M11.1.0"}, "EST5EDT,M3.2.0,M11.1.0"),
        ({"TZ": "broken"}, ""),
        ({"TZ": "leaps"}, ""),
        ({"TZ": "old"}, ""),
        ({"TZ": "<+0545>-5:45"}, "<+0545>-5:45"),
        *(({"TZ": wrong}, "") for wrong in ("x" * 5_000, "EST5" + "x" * 300, "Mars/Olympus")),
        *(({"TZ": wrong}, "") for wrong in ("UTC0\n", "a\nb", "a\0b", "a\udcff", ".", "%s")),
        *(({"TZ": wrong}, "") for wrong in ("Europe", "/etc", "/dev/zero", "../x", "/proc/1/x")),
    ],
)
def test_the_rule(files: Path, environ: dict[str, str], found: str) -> None:
    assert rule(environ, files=files, local=files / "Europe/Berlin") == found


def test_a_machine_without_a_zone(tmp_path: Path) -> None:
    assert rule({}, files=tmp_path, local=tmp_path / "none") == ""


@pytest.mark.parametrize(
    "bad",
    [
        *("Mars/Olympus", "europe/berlin ", "Europe", "../../etc/passwd", "/etc/localtime"),
        *("UTC+2", "CET-1CEST,M3.5.0,M10.5.0/3", "a" * 300, "a\0b", "\N{SNOWMAN}"),
        *("right/UTC", "posix/Europe/Berlin", "localtime", "posixrules"),
    ],
)
def test_a_bad_name_is_refused_with_what_is_accepted(bad: str) -> None:
    with pytest.raises(ValueError, match="is not the IANA name of a time zone, such as") as raised:
        zones.zone(bad)
    assert len(str(raised.value)) < 200
    with pytest.raises(ValidationError):
        AgentSettings(time_zone=bad)


def test_zones_are_known_without_files_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    zoneinfo.reset_tzpath(())
    zoneinfo.ZoneInfo.clear_cache()
    try:
        assert zones.told(FRIDAY, "Pacific/Auckland").startswith("Friday, 2026-11-27 01:06 (Pac")
        assert rule({"TZ": "Europe/Berlin"}, files=Path("/none")) == BERLIN
    finally:
        monkeypatch.undo()
        zoneinfo.reset_tzpath()


@pytest.mark.parametrize(
    ("moment", "zone", "said"),
    [
        ("2026-11-26T12:06:00Z", "Pacific/Auckland", "Friday, 2026-11-27 01:06 (*, UTC+13:00)"),
        ("2026-04-04T13:30:00Z", "Pacific/Auckland", "Sunday, 2026-04-05 02:30 (*, UTC+13:00)"),
        ("2026-04-04T14:30:00Z", "Pacific/Auckland", "Sunday, 2026-04-05 02:30 (*, UTC+12:00)"),
        ("2026-03-29T00:59:00Z", "Europe/Berlin", "Sunday, 2026-03-29 01:59 (*, UTC+01:00)"),
        ("2026-03-29T01:00:00Z", "Europe/Berlin", "Sunday, 2026-03-29 03:00 (*, UTC+02:00)"),
        ("2026-12-31T18:15:00Z", "Asia/Kathmandu", "Friday, 2027-01-01 00:00 (*, UTC+05:45)"),
        ("2026-01-01T03:29:00Z", "America/St_Johns", "Wednesday, 2025-12-31 23:59 (*, UTC-03:30)"),
        ("2026-01-01T03:29:00Z", "UTC", "Thursday, 2026-01-01 03:29 (*, UTC+00:00)"),
    ],
)
def test_a_moment_as_it_is_told(moment: str, zone: str, said: str) -> None:
    assert zones.told(datetime.fromisoformat(moment), zone) == said.replace("*", zone)


def test_a_timestamp_keeps_its_moment_and_what_is_none_stays() -> None:
    stored = "2026-11-26T12:06:00.123456Z"
    assert zones.local(stored, "Pacific/Auckland") == "2026-11-27T01:06:00.123456+13:00"
    assert zones.local(stored, "UTC") == stored
    assert zones.local("yesterday", "UTC") == "yesterday"


def test_a_day_begins_when_it_does_there() -> None:
    days = (("2026-04-05", "2026-04-04T11:00"), ("2026-04-06", "2026-04-05T12:00"))
    for day, begins in days:  # the first has 25 hours
        found = zones.begins(date.fromisoformat(day), "Pacific/Auckland")
        assert found == datetime.fromisoformat(f"{begins}:00Z")


def test_the_machines_own_name(tmp_path: Path) -> None:
    nowhere = {"local": tmp_path / "none", "debian": tmp_path / "none"}
    for given in ("Pacific/Auckland", ":Pacific/Auckland", "/usr/share/zoneinfo/Pacific/Auckland"):
        assert own_name({"TZ": given}, **nowhere) == "Pacific/Auckland"
    assert own_name({"TZ": ""}, **nowhere) == "UTC"
    assert own_name({"TZ": "NZST-12NZDT,M9.5.0,M4.1.0/3"}, **nowhere) == ""
    assert own_name({}, **nowhere) == ""
    linked = tmp_path / "localtime"
    linked.symlink_to(zones.SYSTEM / "Europe" / "Berlin")
    assert own_name({}, local=linked, debian=tmp_path / "none") == "Europe/Berlin"
    linked.unlink()
    linked.symlink_to(zones.SYSTEM / "right" / "Europe" / "Berlin")  # its seconds are others
    assert own_name({}, local=linked, debian=tmp_path / "none") == "Europe/Berlin"
    copied, debian = tmp_path / "copy", tmp_path / "timezone"
    copied.write_bytes((zones.SYSTEM / "Europe" / "Berlin").read_bytes())
    debian.write_text("Europe/Berlin\n")
    assert own_name({}, local=copied, debian=debian) == "Europe/Berlin"
    debian.write_text("Asia/Tokyo\n")  # from before the copy
    assert own_name({}, local=copied, debian=debian) == ""


def test_a_program_is_told_a_name_only_where_it_is_described(
    monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    monkeypatch.setattr(zones, "SYSTEM", files)
    monkeypatch.setenv("TZ", "NZST-12")
    assert zones.variable("Europe/Berlin") == {"TZ": "Europe/Berlin"}
    assert zones.variable("Asia/Tokyo") == {"TZ": "NZST-12"}
    assert zones.variable("auto") == {"TZ": "NZST-12"}
    monkeypatch.delenv("TZ")
    assert zones.variable("") == {}
