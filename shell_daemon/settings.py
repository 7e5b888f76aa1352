"""What bounds the daemon, checked once."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT: Final = frozenset(
    {"COLUMNS", "LANG", "LC_ALL", "LC_CTYPE", "LINES", "NO_COLOR", "TERM", "TZ"}
)


@dataclass(frozen=True)
class Settings:
    """Where commands work and what they may use. Times are in seconds.

    `shared` and `tmp` are where virtual `/shared` and `/tmp` live: in a guest
    just there. At most `commands_max` commands run, wait in a session or stay
    in its background. `buffer_bytes` bounds what is kept of each output stream,
    `stdin_bytes` what waits to be read by a command. Ended commands are
    forgotten when there are more than `ended_max`, or after `ended_age`;
    sessions after `session_idle` without a command. `environment` names what a
    caller may set, `grace` lies between SIGTERM and SIGKILL. `free_bytes_min` is
    what commands must leave free on a disk (see `disk_guard`).
    """

    shared: Path = Path("/shared")
    tmp: Path = Path("/tmp")  # noqa: S108 - the guest's own
    commands_max: int = 32
    sessions_max: int = 16
    buffer_bytes: int = 256 * 1024
    stdin_bytes: int = 1024 * 1024
    free_bytes_min: int = 256 * 1024 * 1024
    timeout_default: float = 60.0
    timeout_max: float = 3600.0
    ended_max: int = 64
    ended_age: float = 600.0
    session_idle: float = 3600.0
    grace: float = 1.0
    environment: frozenset[str] = ENVIRONMENT

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if isinstance(value, int | float) and value <= 0:
                raise _bad(field, f"{value} is not above 0", "a positive number")
        if self.timeout_default > self.timeout_max:
            raise _bad(
                "timeout_default",
                f"{self.timeout_default:g} s is above timeout_max",
                f"up to {self.timeout_max:g} s",
            )
        for name in sorted(self.environment):
            if not _NAME.fullmatch(name):
                raise _bad("environment", f"{name!r} is no name", _NAME.pattern)
        for field, root in (("shared", self.shared), ("tmp", self.tmp)):
            if not root.is_absolute() or not root.is_dir():
                raise _bad(field, f"{root} is no directory", "an absolute path that exists")

    def base_environment(self) -> dict[str, str]:
        """What every command starts with: nothing of the daemon's own environment."""
        return {"PATH": PATH, "HOME": str(self.tmp), "LANG": "C.UTF-8", "TERM": "dumb"}


def _bad(field: str, problem: str, accepted: str) -> WireError:
    return WireError(
        Code.INVALID_ARGUMENT,
        f"bad shell daemon setting {field}: {problem}",
        details=f"accepted: {accepted}",
    )
