"""Where settings come from: defaults < file < environment < command line.

Every value remembers its source, so that an error can name the place to correct.
"""

import contextlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import platformdirs
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from wire.errors import Code
from wire.settings import Key, lookup, types_of

from runner.config.errors import explain, unknown
from runner.config.models import Config
from runner.errors import ConfigError

ENV_PREFIX: Final = "OXYDRA_"
ENV_CONFIG: Final = "OXYDRA_CONFIG"
_FILE_NAME = "runner.toml"


@dataclass
class _Layers:
    """The merged settings, and the layer that has set each of them."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[Key, str] = field(default_factory=dict)

    def put(self, key: Key, value: object, source: str) -> None:
        section = self.values
        for name in key[:-1]:
            inner = section.get(name)
            if not isinstance(inner, dict):
                inner = section[name] = {}
            section = inner
        section[key[-1]] = value
        self.sources[key] = source


def load_config(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Config:
    """Load the settings.

    Args:
        file: What `--config` named. Without it: `OXYDRA_CONFIG`, `./runner.toml`, then the user's
            configuration directory. No file at all is fine.
        environ: The environment; that of this process if None.
        overrides: Values of options such as `--log-level`.

    Raises:
        ConfigError: A setting cannot be used.
    """
    try:
        return _load(file, os.environ if environ is None else environ, overrides or {})
    except RuntimeError as error:  # pathlib, for a ~ of an unknown user
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "cannot find your home directory",
            details=str(error),
            resolution="set HOME, or write paths without ~",
        ) from None


def _load(file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, str]) -> Config:
    layers = _Layers()
    if (path := _find_file(file, environ)) is not None:
        for key, value in _leaves(_read(path)):
            if lookup(Config, key) is None:
                raise unknown(key, str(path))
            layers.put(key, _located(key, value, path.parent.absolute()), str(path))
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name != ENV_CONFIG:
            key = tuple(name.removeprefix(ENV_PREFIX).lower().split("__"))
            if lookup(Config, key) is None:
                raise unknown(key, "the environment", spelled=env_name)
            layers.put(key, _from_text(key, environ[name]), f"environment variable {name}")
    for option, text in overrides.items():
        key = (option.removeprefix("--").replace("-", "_"),)
        layers.put(key, _from_text(key, text), f"command line option {option}")
    try:
        return Config.model_validate(layers.values)
    except ValidationError as error:
        raise explain(error, layers.sources) from None


def _find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return _existing(file, "--config")
    if named := environ.get(ENV_CONFIG):
        return _existing(Path(named), ENV_CONFIG)
    for directory in (Path(), platformdirs.user_config_path("oxydra")):
        if os.path.lexists(candidate := directory / _FILE_NAME):
            return candidate.absolute()
    return None


def _existing(path: Path, named_by: str) -> Path:
    path = path.expanduser()
    if not path.exists():
        raise ConfigError(
            Code.NOT_FOUND,
            f"there is no configuration file {path}",
            details=f"{named_by} names it",
            resolution=f"create the file, or run without {named_by}: every setting has a default",
        )
    return path.absolute()


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode()
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"cannot read the configuration file {path}",
            details=error.strerror or str(error),
            resolution=f"make {path} a readable TOML file",
        ) from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        raise _broken(path, line, column, "the file is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise _broken(path, *_position(str(error), text)) from None


def _position(message: str, text: str) -> tuple[int, int, str]:
    """Line, column and the bare message of a `tomllib` error."""
    if found := re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL):
        return int(found[2]), int(found[3]), found[1]
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1, message.removesuffix(" (at end of document)")


def _broken(path: Path, line: int, column: int, why: str) -> ConfigError:
    return ConfigError(
        Code.INVALID_ARGUMENT,
        f"{path} is not valid TOML: line {line}, column {column}",
        details=why,
        resolution=f"correct line {line} of {path}",
    )


def _leaves(table: Mapping[str, Any], prefix: Key = ()) -> list[tuple[Key, object]]:
    """Every value with its full key. An empty table counts as a value."""
    found: list[tuple[Key, object]] = []
    for name, value in table.items():
        key = (*prefix, name)
        if isinstance(value, dict) and value:
            found += _leaves(value, key)
        else:
            found.append((key, value))
    return found


def env_name(key: Key) -> str:
    """The environment variable that sets `key`."""
    return ENV_PREFIX + "__".join(key).upper()


def _types(key: Key) -> frozenset[Any]:
    found = lookup(Config, key)
    return types_of(found) if isinstance(found, FieldInfo) else frozenset()


def _located(key: Key, value: object, directory: Path) -> object:
    """Make a relative directory from a file relative to that file."""
    if Path in _types(key) and isinstance(value, str) and value not in ("", "auto"):
        return os.path.abspath(directory / Path(value).expanduser())  # noqa: PTH100 - lexical
    return value


def _from_text(key: Key, text: str) -> object:
    """Parse an environment variable or option. Invalid text is returned as it is, for validation
    to refuse."""
    types = _types(key)
    if tuple in types:
        return [part.strip() for part in text.split(",") if part.strip()]
    if bool in types:
        return {"true": True, "false": False}.get(text.lower(), text)
    for read in (int, float):
        if types & {int, float}:
            with contextlib.suppress(ValueError):
                return read(text)
    return _located(key, text, Path.cwd())
