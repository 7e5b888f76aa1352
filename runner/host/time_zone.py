"""The host's time zone, for guests: a container has no files about zones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_FILES: Final = Path("/usr/share/zoneinfo")
_LOCAL: Final = Path("/etc/localtime")
_MAGIC: Final = b"TZif"


def time_zone(environ: Mapping[str, str], *, files: Path = _FILES, local: Path = _LOCAL) -> str:
    """The rule of the host's zone as POSIX writes it, such as `CET-1CEST,M3.5.0,M10.5.0/3`.

    From `TZ`, a rule or a name, else from the machine; empty for UTC, and if it is not known.

    Args:
        environ: The runner's environment.
        files: Where the system describes zones.
        local: The description of the machine's own zone.
    """
    name = environ.get("TZ", "").removeprefix(":")
    if not name:
        return _rule(local) if "TZ" not in environ else ""
    path = files / name  # an absolute name stays one
    return _rule(path) if path.is_file() else name


def _rule(path: Path) -> str:
    """The rule at the end of a description; it holds from its last change on."""
    try:
        content = path.read_bytes()
    except OSError:
        return ""
    if not content.startswith(_MAGIC):
        return ""
    return content.rstrip(b"\n").rpartition(b"\n")[2].decode("ascii", errors="replace")
