"""The secrets of one user, read from where the configuration says they are. The runner stores
them in no file; they reach the guest only in its envelope."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wire.envelope import Secrets
from wire.errors import Code
from wire.settings import AgentSettings, EncryptionSettings, MemorySettings, UserSettings

from runner.errors import ConfigError

KEY_MIN_CHARS: Final = 16
_FILE_MAX_BYTES: Final = 1024 * 1024


def read_secrets(settings: UserSettings, environ: Mapping[str, str]) -> Secrets:
    """Every secret that `settings` name. Raises `ConfigError` for a missing one."""
    return Secrets(
        api_key=read_api_key(settings.agent, environ),
        memory_token=read_memory_token(settings.memory, environ),
        memory_key=read_memory_key(settings.memory.encryption, environ),
    )


def by_name(secrets: Secrets) -> dict[str, str]:
    """The secrets by a description, for checks that look for leaks."""
    return {
        "the provider's key": secrets.api_key,
        "the memory server's token": secrets.memory_token,
        "the memory's encryption key": secrets.memory_key,
    }


def read_api_key(agent: AgentSettings, environ: Mapping[str, str]) -> str:
    purpose = f"agent.api_key_env names it as the key of provider {agent.provider!r}"
    return read_variable(agent.api_key_env, environ, purpose)


def read_memory_token(memory: MemorySettings, environ: Mapping[str, str]) -> str:
    purpose = "memory.auth_token_env names it as the token for the memory server"
    return read_variable(memory.auth_token_env, environ, purpose)


def read_memory_key(encryption: EncryptionSettings, environ: Mapping[str, str]) -> str:
    """The key that encrypts the memory's files."""
    if encryption.key_file is not None:
        key = _read_key_file(encryption.key_file)
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


def read_variable(name: str, environ: Mapping[str, str], purpose: str) -> str:
    """The secret in environment variable `name`; empty if no name is given.

    Raises `ConfigError` that names the variable if it is missing or its value cannot be a key.
    """
    if not name:
        return ""
    if not (value := environ.get(name, "").strip()):
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"the environment variable {name} is not set",
            details=purpose,
            resolution=f"export {name}=…, then start again",
        )
    return _usable(value, f"the environment variable {name}", f"set {name} to the key alone")


def _read_key_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_bytes()[:_FILE_MAX_BYTES].decode("ascii", "replace").strip()
    except OSError as error:
        raise _unreadable("memory.encryption.key_file", path, error) from None
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"others can read the key file {path}",
            details=f"its mode is {stat.S_IMODE(mode):04o}",
            resolution=f"chmod 600 {path}; if somebody may have read the key, change it: "
            "runner memory rekey",
        )
    if not text:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"the key file {path} is empty",
            details="memory.encryption.key_file names it",
            resolution=f"umask 077; openssl rand -base64 32 > {path}",
        )
    return _usable(text, f"the key file {path}", f"write the key alone into {path}")


def read_certificates(path: Path | None) -> str:
    """The certificates, in PEM, to trust in addition to those of the system."""
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="ascii", errors="replace")[:_FILE_MAX_BYTES]
    except OSError as error:
        raise _unreadable("memory.ca_file", path, error) from None
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"{path} holds no certificate",
            details="memory.ca_file names it; accepted is a PEM file",
            resolution=f"openssl x509 -in {os.fspath(path)} -noout -subject shows what is in it",
        )
    return text


def _usable(value: str, where: str, fix: str) -> str:
    if value.isascii() and value.isprintable():
        return value
    raise ConfigError(
        Code.INVALID_ARGUMENT,
        f"{where} holds something that is not a key",
        details="a key is one line of printable ASCII characters; the value is not shown",
        resolution=fix,
    )


def _unreadable(setting: str, path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        Code.FAILED_PRECONDITION,
        f"cannot read {path}",
        details=f"{setting} names it: {error.strerror or error}",
        resolution=f"ls -l {path}; it must be a file that this user can read",
    )
