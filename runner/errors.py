"""What goes wrong on the host, by what the operator has to mend.

WireError
└── RunnerError
    ├── ConfigError       runner.toml, the environment, the command line, credentials
    ├── WorkspaceError    a user id, a workspace, the runtime directory, a database's place
    ├── TierError         a tier cannot give what was asked, or a guest does not start in it
    └── HostError         the running host: another one is there, none is, it does not answer

A guest's own start-up failure is passed on as the `WireError` it logged.
"""

from wire.errors import WireError


class RunnerError(WireError):
    """A failure on the host, outside every guest."""


class ConfigError(RunnerError):
    """A setting that cannot be used; names the key, the value and where it came from."""


class WorkspaceError(RunnerError):
    """Directories that cannot be used as they are; nothing was created or changed."""


class TierError(RunnerError):
    """A guest could not be started, watched or ended in its tier."""


class HostError(RunnerError):
    """The host of a user is not in the state that a command needs."""
