"""`runner config`: the settings that hold and where they come from, whether they are right, and
editing the file."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import BaseModel
from rich.text import Text
from wire.errors import Code, WireError
from wire.providers import OFFLINE, PROVIDERS
from wire.settings import Key, dotted, shown_address

from runner.cli.files import decoded, edited, written
from runner.cli.options import AsJson, Options
from runner.cli.output import Shape, clip, neutralise, one_line, print_json
from runner.config.loading import LoadedSettings, find_file, own_file
from runner.config.positions import lines_of
from runner.errors import ConfigError, HostError
from runner.workspace.configuration_file import HEAD, Changes, change_file, replace_file
from runner.workspace.keys import variable_file

config = typer.Typer()

_SHOWN_CELLS: Final = 60
_ENV_NAME: Final = re.compile(r"[A-Z][A-Z0-9]{0,11}(_[A-Z0-9]{1,12})*")
"""What a name looks like, and a key that was put in its place does not."""


@dataclass(frozen=True)
class Setting:
    """A setting as it holds. `remark` says of a variable that a setting names whether it is set."""

    key: str
    value: Any
    source: str
    line: int | None = None
    remark: str = ""

    @property
    def place(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"

    @property
    def shown(self) -> str:
        told = " ".join(filter(None, (_toml(self.value), self.remark)))
        return clip(one_line(told), _SHOWN_CELLS)

    @property
    def style(self) -> str:
        return "dim" if self.source == "default" else ""


SETTINGS: Final = Shape[Setting](
    {
        "setting": lambda each: Text(each.key, each.style),
        "value": lambda each: Text(each.shown, each.style),
        "from": lambda each: Text(one_line(each.place), each.style),
    },
    "key value source line",
)


@config.command()
def show(context: typer.Context, json: AsJson = False) -> None:
    """Show every setting that holds for the user, and where it comes from."""
    options: Options = context.obj
    loaded = options.load_settings()
    settings = list(_settings(loaded, options, os.environ))
    if json:
        file = None if loaded.file is None else os.fspath(loaded.file)
        values = list(map(SETTINGS.as_json, settings))
        print_json({"user_id": options.user_id, "file": file, "settings": values})
    else:
        SETTINGS.show(settings, json=False)


@config.command()
def check(context: typer.Context) -> None:
    """Say whether every setting is accepted. Whether they work, `runner doctor` says."""
    loaded = context.obj.load_settings()
    count = len(loaded.sources)
    where = "there is no configuration file" if loaded.file is None else loaded.file
    typer.echo(f"{where}: {count} setting{'' if count == 1 else 's'} given, all accepted")


@config.command()
def edit(context: typer.Context) -> None:
    """Open the file in your editor, and put it in place if its settings are accepted."""
    options: Options = context.obj
    if not sys.stdin.isatty():
        raise HostError(
            Code.FAILED_PRECONDITION,
            "there is no terminal for an editor",
            details="standard input is not a terminal",
            resolution="edit the file itself, then: runner config check",
        )
    path = settings_file(options)
    before = path.read_bytes() if path.exists() else b""
    text = decoded(before, os.fspath(path)) if before else template()
    after = _accepted(replace(options, config_file=path), text)
    if after == text and before:
        typer.echo("nothing was changed")
        return
    _put(path, before, after)
    again = options.mended("runner restart")
    typer.echo(f"{path} is changed; agents that run take it with: {again}")


def _settings(
    loaded: LoadedSettings, options: Options, environ: Mapping[str, str]
) -> Iterator[Setting]:
    user_id = options.user_id
    lines: dict[Key, int] = {}
    if loaded.file is not None:
        lines = lines_of(loaded.file.read_text(encoding="utf-8"))
    holding = {**vars(loaded.config), **vars(loaded.config.for_user(user_id))}
    del holding["users"]
    for key, found in _leaves(holding):
        origin = loaded.origin(key, user_id)
        source = "default" if origin is None else loaded.sources[origin]
        if options.insecure and key == ("tier",):
            source = "command line option --insecure"
        line = lines.get(origin) if origin and source == str(loaded.file) else None
        value, remark = _without_secrets(key, _plain(found), environ)
        yield Setting(dotted(key), value, source, line, remark)


def _leaves(section: Mapping[str, object], above: Key = ()) -> Iterator[tuple[Key, object]]:
    for name, value in section.items():
        inner = vars(value) if isinstance(value, BaseModel) else value
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*above, name))
        else:
            yield (*above, name), inner


def _plain(value: object) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return os.fspath(value) if isinstance(value, Path) else value


def _without_secrets(key: Key, value: Any, environ: Mapping[str, str]) -> tuple[Any, str]:
    """The value as it may be shown, and a remark. A key that somebody has written in the place of
    the name of its variable, into an address, or among the variables of a server, is not shown."""
    *_, table, name = ("", *key)
    if name == "api_key_command":
        return [*value[:1], *(["…"] if value[1:] else [])], ""
    if table == "env":
        return "…", "(not shown: it may hold a key)"
    if (name.endswith("_env") or table.endswith("_env")) and value:
        if value in environ:
            return value, "(set)"
        if variable_file(value).exists():
            return value, "(stored)"
        if _ENV_NAME.fullmatch(value):
            return value, "(not set)"
        return "…", "(not shown: it does not look like the name of a variable, and none is set)"
    if isinstance(value, str) and "://" in value:
        return shown_address(value), ""
    return value, ""


def _toml(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def settings_file(options: Options) -> Path:
    """The file to edit, where it really is; the account's own if there is none yet.

    Raises `ConfigError` for a file that is not used because others may have written it.
    """
    try:
        options.load_settings()
    except ConfigError as error:
        if error.code is Code.PERMISSION_DENIED:
            raise
    return (find_file(options.config_file, os.environ) or own_file()).resolve()


def change_settings(
    options: Options, path: Path, changes: Changes, *, write: bool = True
) -> LoadedSettings:
    """Change settings in the file at `path` as `change_file` does. Returns all settings with the
    changes. Raises `WireError` if they are not accepted, or the file cannot be changed."""
    there = replace(options, config_file=path)
    return change_file(path, changes, lambda text: there.load_settings(draft=text), write=write)


def _accepted(options: Options, text: str) -> str:
    """What the person makes of `text`, once its settings are accepted."""
    while True:
        text = edited(text, name="runner-", suffix=".toml", otherwise=f"edit {options.config_file}")
        try:
            options.load_settings(draft=text)
        except WireError as error:
            typer.echo(neutralise(str(error)), err=True)
            if not _again():
                draft = written(text, name="runner-", suffix=".toml")
                raise WireError(
                    Code.CANCELLED, "nothing was changed", details=f"your draft is {draft}"
                ) from None
        else:
            return text


def _again() -> bool:
    try:
        return typer.confirm("Go back into the editor?", default=True, err=True)
    except typer.Abort:
        return False


def _put(path: Path, before: bytes, after: str) -> None:
    """Replace the file. If somebody else has changed it, `HostError` says where the draft is."""
    try:
        replace_file(path, before, after)
    except HostError as error:
        draft = written(after, name="runner-", suffix=".toml")
        error.details, error.resolution = f"your draft is {draft}", f"diff {path} {draft}"
        raise


_EXPLAINED: Final[Mapping[str, str]] = {
    "provider": f'who answers: "{OFFLINE}" (built in, knows a few commands), '
    + ", ".join(f'"{name}"' for name in PROVIDERS),
    "model": "the provider's name of the model",
    "api_key_env": "the NAME of the runner's variable that holds the key, never the key itself",
    "base_url": "another server that speaks the provider's protocol, such as Ollama",
}
_TAIL: Final = """
# What one user has otherwise:
# [users.alice.agent]
# model = "…"
"""


def template() -> str:
    """A configuration file with comments, in which everything is commented out."""
    lines = [
        HEAD,
        '# how guests are confined: "container", "micro_vm", or "process", which has to be asked',
        "# for with --insecure at each start, because no container is around the agent there",
        '# tier = "container"',
        "",
        "[agent]",
    ]
    for name, meaning in _EXPLAINED.items():
        lines += [f"# {meaning}", f'# {name} = "…"']
    return "\n".join(lines) + "\n" + _TAIL
