"""The configuration: a file, variables of the environment and options.

It is loaded, or one `ConfigError` names the setting and shows no secret. What was loaded says the
same after its way through an envelope.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from wire.settings import Key, from_json, keys_of, to_json

from runner.config.loading import env_name
from runner.config.models import Config
from runner.errors import ConfigError
from tests.fuzz.material import Choices, OneInput, Target, chosen
from tests.support.settings import load_config

_SECRET: Final = "hunter2-4711"
_KEYS: Final[tuple[Key, ...]] = tuple(key for key, _ in keys_of(Config) if key != ("users",))
_SECRET_KEYS: Final = tuple(
    key for key in _KEYS if key[-1].endswith("_env") or key[-1].endswith("_url")
)
_OPTIONS: Final = ("--workspace-root", "--runtime-dir", "--tier", "--log-level")
_VALUES: Final[tuple[Any, ...]] = (
    *(True, False, 0, 1, -1, 0.5, 2**31, 2**63, 10**30, 1e300, "nan", "inf"),
    *("", "auto", "x", "/tmp/x", "~/x", "~nobody-at-all/x", "../x", "a\0b", "a\nb", "\u2028"),
    *("process", "container", "openai", "offline", "internal", "none", "sentence-transformers"),
    *("https://db/{user_id}", "libsql://x", "http://x/{other}", "unix:///run/x.sock", "KEY"),
    *([], ["git *"], ["memory"], ["shell_exec", "typed"], [1], ["x"] * 40, {}, {"a": {"b": 1}}),
)
_SECRET_VALUES: Final = (
    _SECRET,
    f"https://user:{_SECRET}@host/",
    f"https://host/?key={_SECRET}",
    f"ftp://user:{_SECRET}@host",
    f"libsql://{_SECRET}@host {_SECRET}",
    f"sk-{_SECRET}!",
    [_SECRET],
    {"key": _SECRET},
)


def _one_input(data: bytes, scratch: Path) -> None:
    choices = Choices(data)
    file = scratch / "runner.toml"
    environ: dict[str, str] = {"HOME": str(scratch)}
    overrides: dict[str, str] = {}
    if choices.below(4) == 3:
        file.write_bytes(choices.rest())
    else:
        _write(choices, file, environ, overrides)
    try:
        config = load_config(file, environ=environ, overrides=overrides)
    except ConfigError as error:
        assert error.brief
        assert error.resolution
        assert _SECRET not in str(error), "an error shows a secret"
        assert "cannot find your home directory" not in error.brief or "~" in _texts(
            file, environ, overrides
        ), "the reason is not true"
        return
    assert load_config(file, environ=environ, overrides=overrides) == config
    for user in ("alice", *config.users):
        settings = config.for_user(user)
        assert from_json(to_json(settings)) == settings


def _texts(file: Path, environ: Mapping[str, str], overrides: Mapping[str, str]) -> str:
    return file.read_text(errors="replace") + str(environ) + str(overrides)


def _write(
    choices: Choices, file: Path, environ: dict[str, str], overrides: dict[str, str]
) -> None:
    """Some settings, each in the file, the environment or an option."""
    settings: dict[str, Any] = {}
    for _ in range(1 + choices.below(4)):
        key, value = _setting(choices)
        match choices.below(8):
            case 6 if "\0" not in str(value):
                environ[env_name(key)] = str(value)
            case 7:
                overrides[choices.one_of(_OPTIONS)] = str(choices.one_of(_VALUES))
            case where:
                user = ("users", choices.one_of(("alice", "bob", "..", "A"))) if where == 5 else ()
                _put(settings, (*user, *key), deepcopy(value))
    file.write_text("\n".join(_toml(settings)), errors="replace")


def _setting(choices: Choices) -> tuple[Key, Any]:
    match choices.below(8):
        case 0 | 1:
            return choices.one_of(_SECRET_KEYS), choices.one_of(_SECRET_VALUES)
        case 2:
            key = choices.one_of(_KEYS)
            return (*key[:-1], choices.text() or "x"), choices.one_of((*_VALUES, _SECRET))
        case 3:
            return choices.one_of(_KEYS), choices.text().replace(_SECRET, "")
        case 4:
            return choices.one_of(_KEYS)[:-1] or ("users",), choices.one_of(_VALUES)
        case _:
            return choices.one_of(_KEYS), choices.one_of(_VALUES)


def _put(settings: dict[str, Any], key: Key, value: Any) -> None:
    for name in key[:-1]:
        inner = settings.get(name)
        settings = settings.setdefault(name, {}) if isinstance(inner, dict | None) else settings
    settings[key[-1]] = value


def _toml(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        yield f"{json.dumps(key)} = {_inline(value)}"


def _inline(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(_toml(value)) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case _:
            return json.dumps(value)


@contextmanager
def _opened(scratch: Path) -> Iterator[OneInput]:
    before = os.umask(0o077)
    try:
        yield lambda data: _one_input(data, scratch)
    finally:
        os.umask(before)


def _seeds() -> Mapping[str, bytes]:
    example = (Path(__file__).resolve().parents[3] / "deploy/runner.toml").read_bytes()
    files = {
        "example": example[:2000],
        "nested": b"a = " + b"[" * 1500,
        "dotted": b".".join([b"a"] * 3000) + b" = 1",
        "long-number": b"[memory]\nmax_notes = " + b"9" * 5000,
        "long-hex-number": b"[memory]\nmax_notes = 0x" + b"f" * 5000,
        "not-utf8": b"tier = '\xff'",
        "dates": b"tier = 1979-05-27T07:32:00Z\nlog_level = 2024-13-45",
        "unquoted": f"[agent]\napi_key_env = {_SECRET}".encode(),
        "twice": b"[agent]\nmodel = 'a'\nmodel = 'b'\n[agent]",
        "users": b'[users.alice.tools]\nenabled = ["typed"]\n[tools]\ndisabled = ["typed"]',
        "inline": b'agent = {provider = "openai", model = "m", api_key_env = "KEY"}',
    }
    secrets = {
        f"secret-{number}": bytes([0, 0, 0, number % len(_SECRET_KEYS), number, number % 8])
        for number in range(len(_SECRET_VALUES))
    }
    plain = {
        f"value-{number}": bytes([0, 1, 5, number, number, 0, 5, number + 3, number, 6])
        for number in range(0, 30, 3)
    }
    users = {
        f"user-{number}": bytes([0, 0, 5, 8 + number, number, 5, number]) for number in range(4)
    }
    unknown = {
        "unknown": chosen(0, 0, 2, 30, "api_key", 40, 0),
        "section": bytes([0, 0, 4, 30, 31, 0]),
    }
    return (
        {name: chosen(3, text) for name, text in files.items()} | secrets | plain | users | unknown
    )


TARGET = Target("configuration", 60, _opened, _seeds, longest=8192)
