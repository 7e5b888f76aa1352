"""Time zones: by their IANA names, and the one of this machine."""

import importlib.util
import os
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

AUTO: Final = "auto"
ACCEPTED: Final = 'the IANA name of a time zone, such as "Europe/Berlin"'
SYSTEM: Final = Path("/usr/share/zoneinfo")
_LOCAL: Final = Path("/etc/localtime")
_DEBIAN: Final = Path("/etc/timezone")
_MAGIC: Final = b"TZif"
_LETTERS: Final = "([A-Za-z]{3,9}|<[A-Za-z0-9+-]{3,9}>)"
_OFFSET: Final = "[+-]?[0-9]{1,3}(:[0-9]{2}){0,2}"
_RULE: Final = re.compile(f"{_LETTERS}{_OFFSET}({_LETTERS}({_OFFSET})?(,[JM0-9.,/:+-]{{1,60}})?)?")


def zone(name: str) -> tzinfo | None:
    """The zone `name`; for `AUTO` and "" None, which `datetime` takes for the process's own.

    Raises `ValueError` for a name that is not known.
    """
    if name in ("", AUTO):
        return None
    try:
        if name[0].islower():  # such as right/UTC, localtime: other files beside those of zones
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ValueError(f"{name!r:.80} is not {ACCEPTED}") from None


def local(timestamp: str, name: str = "") -> str:
    """An RFC 3339 timestamp as it is written in the zone `name`; any other text unchanged."""
    try:
        moment = datetime.fromisoformat(timestamp).astimezone(zone(name))
    except (ValueError, OverflowError):
        return timestamp
    return moment.isoformat().replace("+00:00", "Z")


def minute(timestamp: str, name: str = "") -> str:
    """The same for a person: its day and minute in the zone."""
    return local(timestamp, name)[:16].replace("T", " ")


def today() -> date:
    """The day in the time zone of this process."""
    return datetime.now(UTC).astimezone().date()


def told(moment: datetime, name: str) -> str:
    """Day, time and zone of `moment` for a person or a model, as they are in the zone `name`."""
    there = moment.astimezone(zone(name))
    known = there.tzname() if name in ("", AUTO) else name
    return f"{there:%A, %Y-%m-%d %H:%M} ({known}, UTC{there.isoformat()[-6:]})"


def begins(day: date, name: str) -> datetime:
    """The moment in UTC at which `day` begins in the zone `name`."""
    return datetime.combine(day, time.min, zone(name)).astimezone(UTC)


def variable(name: str) -> dict[str, str]:
    """`TZ` for a program to be in the zone `name`: where no file describes that, as this one is."""
    described = zone(name) is not None and (SYSTEM / name).is_file()
    return {"TZ": name} if described else {k: v for k, v in os.environ.items() if k == "TZ"}


def own_name(
    environ: Mapping[str, str],
    *,
    files: Path = SYSTEM,
    local: Path = _LOCAL,
    debian: Path = _DEBIAN,
) -> str:
    """The name of this machine's zone, from `TZ`, else from the system; empty where it has none."""
    given = environ.get("TZ", "").removeprefix(":")
    if "TZ" in environ and not given:
        return "UTC"
    names = [given or os.path.realpath(local)]
    if not given and debian.is_file():  # the other one may be a copy
        names.append(debian.read_text(encoding="utf-8", errors="replace").strip())
    for each in names:
        name = each.rpartition("/zoneinfo/")[2].removeprefix("posix/").removeprefix("right/")
        try:
            known = not name.startswith("/") and zone(name) is not None
        except ValueError:
            continue
        own = each == names[0] or rule({"TZ": name}, files=files) == rule(environ, local=local)
        if known and own:
            return name
    return ""


def rule(environ: Mapping[str, str], *, files: Path = SYSTEM, local: Path = _LOCAL) -> str:
    """The rule of this machine's zone as POSIX writes it, such as `CET-1CEST,M3.5.0,M10.5.0/3`,
    for those who have no files about zones.

    From `TZ`, a rule or a name, else from the machine, whose own zone `local` describes; empty for
    another `TZ`, and for no zone. What `files` do not describe, the package `tzdata` does.
    """
    name = environ.get("TZ", "").removeprefix(":")
    if not name:
        return (_rule(local) or "") if "TZ" not in environ else ""
    places = [files]
    if (package := importlib.util.find_spec("tzdata")) is not None and package.origin:
        places.append(Path(package.origin).parent / "zoneinfo")
    described = (_rule(place / name) for place in places)  # an absolute name stays one
    given = name if _RULE.fullmatch(name) else ""
    return next((found for found in described if found is not None), given)


def _rule(path: Path) -> str | None:
    """The rule at the end of a description; it holds from its last change on. None: no file."""
    try:
        if not path.is_file():
            return None
        content = path.read_bytes()
    except (OSError, ValueError):
        return None
    if not content.startswith(_MAGIC) or content[4:5] < b"2":
        return ""
    return content[:-1].rpartition(b"\n")[2].decode("ascii", errors="replace")
