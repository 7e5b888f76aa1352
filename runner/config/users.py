"""Who the users of this machine are."""

from contextlib import suppress
from urllib.parse import urlsplit

from wire.egress import hosts
from wire.errors import Code

from runner.config.models import Config
from runner.config.user_id import is_user_id
from runner.errors import ConfigError, HostError


def known_users(config: Config) -> list[str]:
    """All users with a workspace or a section in the configuration."""
    names = set(config.users)
    if config.workspace_root.is_dir():
        names |= {
            path.name
            for path in config.workspace_root.iterdir()
            if is_user_id(path.name) and path.is_dir() and not path.is_symlink()
        }
    return sorted(names)


def check_known(config: Config, user_id: str) -> None:
    """Raise `HostError` (NOT_FOUND) if there is no such user."""
    if user_id not in known_users(config):
        raise HostError(
            Code.NOT_FOUND,
            f"there is no user {user_id}",
            details=f"no workspace in {config.workspace_root} and no section [users.{user_id}]",
            resolution=f"runner users list, or: runner --user {user_id} start --detach",
        )


def check_servers(config: Config, user_id: str) -> None:
    """Raise `ConfigError` if the memory server that holds this user alone, as the configuration
    says, is another user's too."""
    memory = config.for_user(user_id).memory
    url = memory.server_of(user_id)
    if not (url and memory.server_holds_one_user):
        return
    for other in known_users(config):
        theirs = config.for_user(other).memory.server_of(other)
        if other != user_id and theirs and _place(theirs) == _place(url):
            raise ConfigError(
                Code.INVALID_ARGUMENT,
                f"users {user_id} and {other} have the same memory server, {url}",
                details="memory.server_holds_one_user says that it holds one user",
                resolution="give each a server (deploy/compose/sqld-users.sh add USER), and put "
                "{user_id} into memory.remote_url",
            )


def _place(url: str) -> tuple[str, int, str]:
    """Where an address leads: what else it says does not choose a server."""
    parts = urlsplit(url.lower())
    port, host = parts.port or (80 if parts.scheme == "http" else 443), parts.hostname or ""
    with suppress(ValueError):
        host = hosts.canonical(host)
    return host, port, parts.path.rstrip("/")
