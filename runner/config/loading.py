"""Where settings come from (defaults < file < environment < command line), and what an operator
reads about a wrong one.

Every value remembers its source, so that an error can name the place to correct.
"""

import contextlib
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import platformdirs
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from wire.errors import Code
from wire.settings import Key, UserSettings, dotted, is_free, keys_of, lookup, problems, types_of

from runner.config import trust
from runner.config.models import Config
from runner.errors import ConfigError, file_errors

ENV_PREFIX: Final = "OXYDRA_"
ENV_CONFIG: Final = "OXYDRA_CONFIG"
_FILE_NAME = "runner.toml"
_COMPARED: Final = 100
"""So many characters of an unknown name are compared with each known one: that takes time."""
_NEAR: Final = 0.8
"""So alike, of 1, is a name that was probably meant."""


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


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, the file that they come from (None: there is none), and what has set each key;
    a key that nothing has set has its default."""

    config: Config
    file: Path | None
    sources: Mapping[Key, str]

    def origin(self, key: Key, user_id: str) -> Key | None:
        """The key that decides a setting for a user: of the user's own section, or the general one;
        None for a default."""
        own = ("users", user_id, *key)
        return next((each for each in (own, key) if each in self.sources), None)


def load_settings(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    draft: str | None = None,
) -> LoadedSettings:
    """Load the settings. `overrides` has values of options such as `--log-level`.

    The file is `file`, else what `OXYDRA_CONFIG` names, `./runner.toml`, or the one in the user's
    configuration directory; none at all is fine. With `draft`, `file` is read as if it held that,
    and need not exist. Raises `ConfigError` for an unusable setting, and for a file that a guest
    or, unless it was named, another account may have written.
    """
    try:
        return _load(file, os.environ if environ is None else environ, overrides or {}, draft)
    except RecursionError:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            "the settings are nested too deeply",
            details="no setting has more than two tables around it, besides that of a user",
            resolution=f"correct the file, and the variables that begin with {ENV_PREFIX}",
        ) from None
    except RuntimeError as error:  # pathlib, for a ~ of an unknown user
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "cannot find your home directory",
            details=str(error),
            resolution="set HOME, or write paths without ~",
        ) from None


def _load(
    file: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str],
    draft: str | None,
) -> LoadedSettings:
    layers = _Layers()
    path = file if draft is not None else find_file(file, environ)
    if path is not None:
        trust.check_place(path, ())
        named = None if file or environ.get(ENV_CONFIG) else environ
        content = _read(path, named) if draft is None else _parsed(path, draft)
        source = str(path) if draft is None else f"what was to be written to {path}"
        for key, value in leaves(content):
            if lookup(Config, key) is None:
                raise _unknown(key, source)
            layers.put(key, _located(key, value, path.parent.absolute()), source)
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name != ENV_CONFIG:
            key = _env_key(name)
            if lookup(Config, key) is None:
                raise _unknown(key, "the environment", spelled=env_name)
            layers.put(key, _from_text(key, environ[name]), f"environment variable {name}")
    for option, text in overrides.items():
        key = (option.removeprefix("--").replace("-", "_"),)
        layers.put(key, _from_text(key, text), f"command line option {option}")
    try:
        config = Config.model_validate(layers.values).read_from(path and path.absolute())
    except ValidationError as error:
        raise _explained(error, layers.sources) from None
    if path is not None:
        trust.check_place(path, (config.workspace_root,))
    return LoadedSettings(config, path, layers.sources)


def own_file() -> Path:
    """The configuration file of this account, which is read wherever a command is run."""
    return platformdirs.user_config_path("oxydra") / _FILE_NAME


def find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file that is read, or None. Raises `ConfigError` for one that is named and missing."""
    if file is not None:
        return _existing(file, "--config")
    if named := environ.get(ENV_CONFIG):
        return _existing(Path(named), ENV_CONFIG)
    for candidate in (Path(_FILE_NAME), own_file()):
        if os.path.lexists(candidate):
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


def _read(path: Path, found_by: Mapping[str, str] | None) -> dict[str, Any]:
    """`found_by` is the environment for a file that nobody has named."""
    fix = f"make {path} a readable TOML file"
    reading = file_errors(f"cannot read the configuration file {path}", fix, kind=ConfigError)
    with reading, open(path, "rb", opener=open_without_waiting) as file:
        if found_by is not None:
            trust.check_owner(path, os.fstat(file.fileno()), found_by)
        os.set_blocking(file.fileno(), True)
        data = file.read()
    try:
        return _parsed(path, data.decode())
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        raise _broken(path, line, column, "the file is not UTF-8 text") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _broken(path, *_position(str(error), text)) from None
    except ValueError:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"{path} is not valid TOML",
            details="it holds a number of thousands of digits",
            resolution=f"correct that number in {path}",
        ) from None


def open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


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


def leaves(table: Mapping[str, Any], prefix: Key = ()) -> list[tuple[Key, object]]:
    """Every value with its full key. An empty table counts as a value."""
    found: list[tuple[Key, object]] = []
    for name, value in table.items():
        key = (*prefix, name)
        if isinstance(value, dict) and value:
            found += leaves(value, key)
        else:
            found.append((key, value))
    return found


def _env_key(name: str) -> Key:
    """The setting that a variable sets; in a free table the rest is one name, as it is written."""
    parts = name.removeprefix(ENV_PREFIX).split("__")
    key: Key = ()
    while parts and not is_free(lookup(Config, key)):
        key = (*key, parts.pop(0).lower())
    return (*key, "__".join(parts)) if parts else key


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
    """Parse a variable or an option. Invalid text stays as it is, for validation to refuse."""
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


def _explained(error: ValidationError, sources: Mapping[Key, str]) -> ConfigError:
    """Combine all refused settings into one error. `sources` says where each was set."""
    found: dict[Key, str] = {}
    for key, problem in problems(Config, error):
        inherited = key[:1] == ("users",) and key[2:] in found
        if not inherited:
            found.setdefault(key, problem)
    (first, problem), *others = found.items()
    more = [f"{dotted(key)}: {said} (in {_source(key, sources)})" for key, said in others]
    return ConfigError(
        Code.INVALID_ARGUMENT,
        f"bad setting {dotted(first) or 'of several sections'}: {problem}",
        details="; ".join([f"it is set in {_source(first, sources)}", *more]),
        resolution="correct the setting" + ("s named above" if others else ""),
    )


def _source(key: Key, sources: Mapping[Key, str]) -> str:
    """Where a value was set. For a section: every place that set a part of it."""
    if key in sources:
        return sources[key]
    below = {source for known, source in sources.items() if known[: len(key)] == key}
    if not below and key[:1] == ("users",):
        return _source(key[2:], sources)
    if not below and len(key) > 1:  # a setting is missing in this table
        return _source(key[:-1], sources)
    return ", ".join(sorted(below)) or "the defaults"


def _unknown(key: Key, source: str, spelled: Callable[[Key], str] = dotted) -> ConfigError:
    """The error for a setting that does not exist, with the most similar one if it is near."""
    section = key
    while not isinstance(model := lookup(Config, section), type):
        section = section[:-1]
    general = key[:1] != ("users",) or len(key) < 2
    root, prefix = (Config, ()) if general else (UserSettings, key[:2])
    own, own_section = key[len(prefix) :] or key, section[len(prefix) :]
    likeness, nearest = max(
        (_likeness(own, known, own_section), known)
        for known, _ in keys_of(root)
        if known != ("users",)
    )
    near = max(likeness) >= _NEAR
    meant = f"; did you mean {spelled((*prefix, *nearest))}?" if near else ""
    where = f"[{dotted(section)}]" if section else "the top level"
    return ConfigError(
        Code.INVALID_ARGUMENT,
        f"unknown setting {spelled(key)}{meant} ({where} has {', '.join(model.model_fields)})",
        details=f"it is set in {source}",
        resolution="correct or remove it",
    )


def _likeness(key: Key, known: Key, section: Key) -> tuple[float, float]:
    """How similar two keys are: by the whole names or by the last parts. Whole names break ties."""
    whole = difflib.SequenceMatcher(None, dotted(key)[:_COMPARED], dotted(known)).ratio()
    last = difflib.SequenceMatcher(None, key[-1][:_COMPARED], known[-1]).ratio()
    return max(whole, last + (0.1 if known[:-1] == section else 0.0)), whole
