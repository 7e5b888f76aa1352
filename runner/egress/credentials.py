"""Credentials for commands: their values for egress, and placeholders for the shell guest."""

from collections.abc import Mapping
from typing import Final

from wire.egress.rules import new_placeholder
from wire.errors import Code
from wire.settings import EgressCredentialSettings
from wire.v1 import egress_pb2

from runner.errors import ConfigError
from runner.workspace.credentials import read_variable

VALUE_MIN_CHARS: Final = 8
_MARK: Final = "{placeholder}"

Settings = Mapping[str, EgressCredentialSettings]


class Placeholders:
    """What stands for each credential of one user. It stays the same as long as the host runs,
    because commands that run have it."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._by_name = dict(known or {})

    @property
    def known(self) -> dict[str, str]:
        """All that there are, by the names of their credentials."""
        return dict(self._by_name)

    def of(self, name: str) -> str:
        """The placeholder of the credential `name`."""
        if name not in self._by_name:
            self._by_name[name] = new_placeholder(name)
        return self._by_name[name]

    def environment(self, credentials: Settings) -> dict[str, str]:
        """The variables of every command."""
        return {each.variable: self.of(name) for name, each in credentials.items() if each.variable}

    def files(self, credentials: Settings) -> dict[str, bytes]:
        """What is in the home directory of commands, by path."""
        return {
            each.file: each.content.replace(_MARK, self.of(name)).encode()
            for name, each in credentials.items()
            if each.file
        }


def read_credentials(
    credentials: Settings, placeholders: Placeholders, environ: Mapping[str, str]
) -> list[egress_pb2.EgressCredential]:
    """The credentials with their values, for egress alone.

    Raises `ConfigError` that names the variable if it is missing, or its value cannot be a key.
    """
    return [
        egress_pb2.EgressCredential(
            name=name,
            placeholder=placeholders.of(name),
            value=_value(name, each, environ),
            hosts=each.hosts,
            methods=each.methods,
            place=each.place,
        )
        for name, each in credentials.items()
    ]


def _value(name: str, settings: EgressCredentialSettings, environ: Mapping[str, str]) -> str:
    purpose = f"egress.credentials.{name}.env names it as the credential's value"
    value = read_variable(settings.env, environ, purpose)
    if len(value) < VALUE_MIN_CHARS:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"the value of the environment variable {settings.env} is too short",
            details=f"{purpose}; it has {len(value)} characters. Answers are searched for it, and "
            f"what is shorter than {VALUE_MIN_CHARS} is in them by chance",
            resolution=f"export {settings.env}=…, then start again",
        )
    return value
