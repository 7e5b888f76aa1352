"""Where the logins of a user at MCP servers are kept: a file for each, which only this account can
read. Egress gets them from there, and what it has renewed is written back."""

import logging
from pathlib import Path

import platformdirs
from google.protobuf import json_format
from wire.errors import Code, WireError
from wire.settings import McpServerSettings, UserSettings
from wire.v1.egress_pb2 import EgressLogin, EgressRenewed

from runner.errors import ConfigError
from runner.workspace.keys import read_key_file, write_private


def servers(settings: UserSettings) -> dict[str, McpServerSettings]:
    """The servers at which a user may log in, by their names."""
    return {
        name: each
        for name, each in settings.mcp.servers.items()
        if each.url and "authorization" not in map(str.lower, each.headers_env)
    }


def read(user_id: str, server: str) -> EgressLogin | None:
    """The login of a user at a server, if there is one. Raises `ConfigError`."""
    path = _path(user_id, server)
    if not path.exists():
        return None
    try:
        return json_format.Parse(read_key_file(path, "a login"), EgressLogin())
    except json_format.ParseError:
        fix = f"runner tools login {server}"
        raise ConfigError(Code.INVALID_ARGUMENT, f"{path} holds no login", resolution=fix) from None


def write(user_id: str, server: str, login: EgressLogin) -> None:
    """Keep a login in the place of an earlier one. Raises `ConfigError`."""
    write_private(_path(user_id, server), json_format.MessageToJson(login, indent=None))


def renew(user_id: str, renewed: EgressRenewed) -> None:
    """Keep what egress has renewed, if it is newer, and of the login that is kept."""
    server, login = renewed.upstream.removeprefix("mcp-"), renewed.login
    try:
        kept = None if "/" in server else read(user_id, server)
        if kept is not None and kept.id == login.id and kept.renewals < login.renewals:
            write(user_id, server, login)
    except WireError as error:
        logging.getLogger(__name__).error("a renewed login is not kept: %s", error)


def kept(user_id: str) -> set[str]:
    """The servers at which a user has a login, even one that cannot be read."""
    return {each.name.partition("@")[2] for each in _path(user_id, "").parent.glob(f"{user_id}@*")}


def forget(user_id: str, server: str = "") -> bool:
    """Delete a user's login at a server, or at all. Returns whether there was one."""
    found = {each for each in kept(user_id) if server in ("", each)}
    for each in found:
        _path(user_id, each).unlink(missing_ok=True)
    return bool(found)


def _path(user_id: str, server: str) -> Path:
    return platformdirs.user_config_path("oxydra") / "logins" / f"{user_id}@{server}"
