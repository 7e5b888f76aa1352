"""The secrets of one user, read from where the configuration says they are. They reach the guest
only in its envelope. The runner stores none but the typed key of a provider (`keys.store_key`)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wire.envelope import Secrets
from wire.errors import Code
from wire.settings import (
    EncryptionSettings,
    McpSettings,
    MemorySettings,
    UserSettings,
)

from runner.errors import ConfigError
from runner.workspace.keys import opened, read_key_file, read_provider_keys, read_variable

KEY_MIN_CHARS: Final = 16
_FILE_MAX_BYTES: Final = 1024 * 1024


def read_secrets(
    settings: UserSettings, environ: Mapping[str, str], given: Mapping[str, str] | None = None
) -> Secrets:
    """Every secret that `settings` name, with the `given` keys of providers instead of named ones.

    Raises `ConfigError` for a missing one.
    """
    keys = read_provider_keys(settings.agent, environ, given or {})
    return Secrets(
        api_key=keys.pop(settings.agent.provider, ""),
        provider_keys=keys,
        memory_token=read_memory_token(settings.memory, environ),
        memory_key=read_memory_key(settings.memory.encryption, environ),
        servers=read_server_secrets(settings.mcp, environ),
    )


def by_name(secrets: Secrets) -> dict[str, str]:
    """The secrets by a description, for checks that look for leaks; without those of MCP servers,
    which have them in the shell guest."""
    return {
        "the provider's key": secrets.api_key,
        **{f"the key of {name}": key for name, key in secrets.provider_keys.items()},
        "the memory server's token": secrets.memory_token,
        "the memory's encryption key": secrets.memory_key,
    }


def read_memory_token(memory: MemorySettings, environ: Mapping[str, str]) -> str:
    purpose = "memory.auth_token_env names it as the token for the memory server"
    return read_variable(memory.auth_token_env, environ, purpose)


def read_server_secrets(mcp: McpSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables and headers of MCP servers, as server/NAME."""
    found = {}
    for name, server in mcp.servers.items():
        setting = "headers_env" if server.url else "secret_env"
        for variable, source in {**server.secret_env, **server.headers_env}.items():
            purpose = f"mcp.servers.{name}.{setting} names it as {variable} of the server"
            found[f"{name}/{variable}"] = read_variable(source, environ, purpose)
    return found


def read_memory_key(encryption: EncryptionSettings, environ: Mapping[str, str]) -> str:
    """The key that encrypts the memory's files."""
    if encryption.key_file is not None:
        key = read_key_file(encryption.key_file, "memory.encryption.key_file")
    else:
        purpose = "memory.encryption.key_env names it as the key of the memory's files"
        key = read_variable(encryption.key_env, environ, purpose)
    if key and len(key) < KEY_MIN_CHARS:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            "the memory's encryption key is too short",
            details=f"{len(key)} characters; at least {KEY_MIN_CHARS} are needed",
            resolution="make one with: openssl rand -base64 32",
        )
    return key


def read_certificates(path: Path | None, named_by: str = "memory.ca_file") -> str:
    """The certificates, in PEM, to trust in addition to those of the system."""
    if path is None:
        return ""
    with opened(named_by, path) as file:
        text = file.read(_FILE_MAX_BYTES).decode("ascii", "replace")
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"{path} holds no certificate",
            details=f"{named_by} names it; accepted is a PEM file",
            resolution=f"openssl x509 -in {os.fspath(path)} -noout -subject shows what is in it",
        )
    return text
