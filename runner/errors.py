"""Errors on the host, by what the operator has to fix.

WireError
└── RunnerError
    ├── ConfigError       runner.toml, the environment, the command line, credentials
    ├── WorkspaceError    a user id, a workspace, the runtime directory, a database's place
    ├── TierError         a tier cannot do what was asked, or a guest does not start in it
    └── HostError         the running host: another one runs, none runs, it does not answer

If a guest itself fails to start, the `WireError` that it logged is passed on.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from wire.errors import Code, WireError


class RunnerError(WireError):
    """An error on the host, outside all guests."""


class ConfigError(RunnerError):
    """An unusable setting. Names the key, the value and where it was set."""


class WorkspaceError(RunnerError):
    """Directories are unusable as they are; nothing was created or changed."""


class TierError(RunnerError):
    """A guest could not be started, watched or ended in its tier."""


class HostError(RunnerError):
    """The host of a user is not in the state that a command needs."""


@contextmanager
def file_errors(
    brief: str, resolution: str, *, because: str = "", kind: type[RunnerError] = HostError
) -> Iterator[None]:
    """For work with a file: what failed, in `brief`, and the fix. `because` goes before what the
    system says.

    Raises `kind` (FAILED_PRECONDITION) for an `OSError`.
    """
    try:
        yield
    except OSError as error:
        why = f"{because}{error.strerror or error}"
        raise kind(Code.FAILED_PRECONDITION, brief, details=why, resolution=resolution) from None


@contextmanager
def packages(extra: str, what: str, *, kind: type[RunnerError] = ConfigError) -> Iterator[None]:
    """For the imports of a command: `what` it is for, and the `extra` that brings what they need.

    Raises `kind` with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        from wire.installation import adding

        raise kind(
            Code.FAILED_PRECONDITION,
            f"{what} needs packages that are not installed",
            details=f"there is no module {error.name}",
            resolution=adding(extra),
        ) from None
