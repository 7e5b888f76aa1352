"""Which model answers: `runner init`, and the one question before a first conversation. What is
chosen is tried, and becomes the section `[agent]` of the configuration file."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import typer
from pydantic import ValidationError
from wire.errors import Code, WireError
from wire.providers import OFFLINE, PROVIDERS
from wire.settings import KEY_SETTINGS, AgentSettings, Key, dotted, problems

from runner.cli.agent import ask_host, host_runs
from runner.cli.options import Options
from runner.cli.output import neutralise
from runner.cli.setup.config import settings_file
from runner.cli.setup.question import DEMO, Choice, ask, complete
from runner.config.loading import ENV_CONFIG
from runner.doctor.provider import CannotTry, try_provider
from runner.errors import ConfigError
from runner.host.runtime import LastStart, Runtime
from runner.workspace.configuration_file import change_file
from runner.workspace.keys import store_key

_TYPED: Final = "TYPED_KEY"
"""Stands for a typed key in settings that are only tried."""


def init(options: Options, given: Mapping[str, str | None], *, test: bool) -> Options | None:
    """Find out which model is to answer, from what is `given` or by asking, try it, and put it into
    the configuration file. Returns the options for a conversation, or None without a terminal.

    Raises `WireError` for an answer that is not accepted, and without a terminal for a request that
    failed; then the file stays as it is.
    """
    on_a_terminal = sys.stdin.isatty()
    values = {name: _checked(name, value) for name, value in given.items() if value is not None}
    try:
        if on_a_terminal and not values:
            _ask_and_set_up(options, test=test)
        else:
            _set_up(options, _given(values, on_a_terminal), test=test)
    except typer.Abort:
        typer.echo(err=True)
        raise WireError(Code.CANCELLED, "nothing was changed") from None
    talking = _as_used_last(options)
    if on_a_terminal and sys.stdout.isatty():
        return talking
    typer.echo(f"  settings  {options.command('config', 'show')}")
    typer.echo(f"  begin     {talking.command('chat', insecure=talking.insecure)}")
    return None


def asks_once(options: Options) -> bool:
    """On a terminal, ask how to talk where no setting says it yet, and put it into the file.
    Returns whether anybody was asked.

    Raises `WireError` if the person leaves.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if options.load_settings().origin(("agent", "provider"), options.user_id) is not None:
        return False
    try:
        _ask_and_set_up(options, test=True)
    except typer.Abort:
        typer.echo(err=True)
        raise WireError(
            Code.CANCELLED, "nothing was chosen", resolution=options.command("init")
        ) from None
    return True


def _ask_and_set_up(options: Options, *, test: bool) -> None:
    """Ask until what is chosen has answered, or is wanted all the same."""
    while True:
        try:
            return _set_up(options, ask(), test=test)
        except _NotWanted:
            continue


class _NotWanted(Exception):  # noqa: N818 - an answer
    """The model did not answer, and the person wants another one."""


def _given(values: Mapping[str, str], on_a_terminal: bool) -> Choice:
    """The choice that options make, with what they leave open asked for."""
    provider, address = values.get("provider", ""), values.get("base_url", "")
    model, key_env = values.get("model", ""), values.get("api_key_env", "")
    if provider == OFFLINE or not values:
        return DEMO
    is_whole = "://" in address and urlsplit(address).path.strip("/")
    if model and provider and (is_whole or not address):
        usual = "" if address else PROVIDERS[provider].key_variable
        if address or key_env or usual in os.environ or not on_a_terminal:
            needed = usual if PROVIDERS[provider].needs_key else ""
            return Choice(provider, model, address, key_env=key_env or needed)
    if not on_a_terminal and not model:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            "no model was given",
            details="standard input is not a terminal, so nobody can be asked",
            resolution="runner init --model …",
        )
    return complete(provider, model, address, key_env)


def _checked(name: str, value: str) -> str:
    option = {"api_key_env": "--key-env"}.get(name, f"--{name.replace('_', '-')}")
    try:
        if name in ("model", "api_key_env"):
            AgentSettings.model_validate({name: value})
    except ValidationError as error:
        raise typer.BadParameter(f"{option}: {problems(AgentSettings, error)[0][1]}") from None
    if name == "model" and not value:
        raise typer.BadParameter(f"{option}: a provider needs the name of a model")
    return value


def _set_up(options: Options, choice: Choice, *, test: bool) -> None:
    """Try the choice, put it into the file, and let the agent that runs take it.

    Raises `WireError` as `init` does, and `_NotWanted`.
    """
    if choice.provider != OFFLINE:
        if test:
            _test(options, _accepted(choice), choice)
        else:
            typer.echo("not tested", err=True)
    path = _file(options)
    found = {} if not choice.key else store_key(choice.provider, choice.base_url, choice.key)
    wanted = _settings(choice, found)
    names = ("provider", "model", "base_url", *KEY_SETTINGS)
    changes: dict[Key, object] = {("agent", name): wanted.get(name) for name in names}
    if options.tier is not None:
        changes["tier",] = options.tier
    reading = replace(options, config_file=path)
    change_file(path, changes, lambda text: reading.load_settings(draft=text))
    typer.echo(f"written: {path}", err=True)
    _restart(options)


def _accepted(choice: Choice) -> AgentSettings:
    """The settings that a choice makes, to be tried."""
    try:
        return AgentSettings.model_validate(_settings(choice, {"api_key_env": _TYPED}))
    except ValidationError as error:
        key, problem = problems(AgentSettings, error)[0]
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            " ".join(filter(None, (dotted(key), problem))),
            resolution="runner init --help",
        ) from None


def _settings(choice: Choice, key: Mapping[str, object]) -> dict[str, object]:
    """The settings of `[agent]` that a choice makes; `key` says where a typed key is."""
    found: dict[str, object] = {"provider": choice.provider}
    for name, value in (("model", choice.model), ("base_url", choice.base_url)):
        if value:
            found[name] = value
    if choice.key:
        return {**found, **key}
    return {**found, "api_key_env": choice.key_env} if choice.key_env else found


def _file(options: Options) -> Path:
    """The file to change: the one that is read, or will be."""
    named = options.config_file or os.environ.get(ENV_CONFIG)
    if named and not Path(named).expanduser().exists():
        return Path(named).expanduser().absolute()
    return settings_file(options)


def _test(options: Options, settings: AgentSettings, choice: Choice) -> None:
    until = "answer" if choice.calls_tools else "tool"
    typer.echo(
        f"asking {neutralise(choice.model)} to call a tool (a model that is not in memory yet may "
        "take a minute) ...",
        err=True,
    )
    try:
        took_s = try_provider(settings, os.environ, choice.key, until=until)
    except CannotTry as error:
        if _as_used_last(options).insecure:
            raise
        typer.echo(f"not tested: {error.brief} ({error.details}); guests may", err=True)
        return
    except WireError as error:
        if not sys.stdin.isatty():
            error.resolution = f"{error.resolution}; or write the file untested: --no-test"
            raise
        typer.echo(neutralise(str(error)), err=True)
        if not typer.confirm("Take it all the same?", err=True):
            raise _NotWanted from None
        return
    typer.echo(f"it answered in {took_s:.1f} s", err=True)


def _restart(options: Options) -> None:
    """Let the agent that runs with the settings before take the new ones."""
    if not asyncio.run(host_runs(options.load(), options.user_id)):
        return
    typer.echo("restarting the agent, which runs with the settings before ...", err=True)
    ask_host(options, lambda host: host.restart(""))


def _as_used_last(options: Options) -> Options:
    """The options for talking in the tier that is asked for, or was used last."""
    if options.insecure or options.tier is not None:
        return options
    config = options.load()
    last = LastStart.load(Runtime.locate(config, options.user_id))
    tier = last.tier if last else config.tier
    return replace(options, insecure=True) if tier == "process" else replace(options, tier=tier)
