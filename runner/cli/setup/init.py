"""Which model answers: `runner init`, and the one question before a first conversation. What is
chosen is tried, and becomes the section `[agent]` of the configuration file."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import typer
from pydantic import ValidationError
from wire.egress.loopback import handed, is_loopback
from wire.errors import Code, WireError
from wire.providers import AT_THE_ROOT, OFFLINE, PROVIDERS
from wire.settings import KEY_SETTINGS, AgentSettings, Key, problems

from runner.cli.agent import as_used_last, ask_host, host_runs, tier_in_use
from runner.cli.options import Options
from runner.cli.output import neutralise, say
from runner.cli.setup.config import change_settings, settings_file
from runner.cli.setup.question import DEMO, Choice, ask, complete
from runner.config.loading import ENV_CONFIG
from runner.config.models import Config
from runner.config.tiers import installed
from runner.config.users import known_users
from runner.doctor.provider import CannotTry, try_as_agent
from runner.errors import ConfigError
from runner.tiers.drivers import driver_for
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
        elif not _set_up(options, _given(values, on_a_terminal), test=test):
            raise typer.Abort
    except typer.Abort:
        typer.echo(err=True)
        raise WireError(Code.CANCELLED, "nothing was changed") from None
    talking = as_used_last(options)
    if on_a_terminal and sys.stdout.isatty():
        return talking
    typer.echo(f"  settings  {options.command('config', 'show')}")
    typer.echo(f"  begin     {talking.command('chat', insecure=talking.insecure)}")
    return None


def ask_first(options: Options) -> None:
    """Before a first conversation, ask how to talk, and put it into the file.

    Raises `WireError` if the person leaves.
    """
    try:
        _ask_and_set_up(options, test=True)
    except typer.Abort:
        typer.echo(err=True)
        raise WireError(
            Code.CANCELLED, "nothing was chosen", resolution=options.command("init")
        ) from None


def _ask_and_set_up(options: Options, *, test: bool) -> None:
    """Ask until what is chosen has answered, or is wanted all the same."""
    while not _set_up(options, ask(_so_far(options)), test=test):
        pass


def _so_far(options: Options) -> str:
    """The model that the settings name; empty if they name none."""
    if not _file(options).exists():
        return ""
    loaded = options.load_settings()
    agent = loaded.config.for_user(options.user_id).agent
    chosen = loaded.origin(("agent", "provider"), options.user_id) is not None
    return f"{agent.provider} {agent.model}".strip() if chosen else ""


def _given(values: Mapping[str, str], on_a_terminal: bool) -> Choice:
    """The choice that options make, with what they leave open asked for."""
    provider, address = values.get("provider", ""), values.get("base_url", "")
    model, key_env = values.get("model", ""), values.get("api_key_env", "")
    if provider in (OFFLINE, "demo") or not values:
        return DEMO
    is_whole = re.search("://[^/?#]*/+[^/?#]", address) is not None
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


def _set_up(options: Options, choice: Choice, *, test: bool) -> bool:
    """Try the choice, put it into the file, and let the agent that runs take it.

    Returns whether the choice is wanted. Raises `WireError` as `init` does.
    """
    path = _file(options)
    changes = _changes(options, choice)
    if choice.provider != OFFLINE:
        changes |= _handed_over(_draft(options, path, changes), options.user_id, choice)
        if not test:
            typer.echo("not tested", err=True)
        elif not _test(options, _draft(options, path, changes), choice):
            return False
    if choice.key:
        found = store_key(choice.provider, choice.base_url, choice.key)
        changes |= {("agent", name): found.get(name) for name in KEY_SETTINGS}
    change_settings(options, path, changes)
    typer.echo(f"written: {path}", err=True)
    _restart(options)
    return True


def _draft(options: Options, path: Path, changes: Mapping[Key, object]) -> Config:
    """The settings to come, in the tier in use. Raises `ConfigError` for what is refused."""
    config = change_settings(options, path, changes, write=False).config
    return config.model_copy(update={"tier": tier_in_use(options, config)})


def _handed_over(config: Config, user_id: str, choice: Choice) -> dict[Key, object]:
    """The setting that lets egress reach a server on this machine's loopback, where its guest has a
    loopback of its own and the person wants that."""
    listed, url = config.for_user(user_id).egress.host_loopback, choice.base_url
    hands_over = is_loopback(urlsplit(url).hostname or "") and sys.stdin.isatty()
    if not hands_over or handed(url, listed) or not handed(url, [url]):
        return {}
    if not driver_for(config).capabilities.host_loopback:
        return {}
    only = ", ".join(("this address and path", *AT_THE_ROOT.get(choice.provider, ())))
    question = f"Let the agent's egress reach {url} on this machine? Only {only}"
    if not typer.confirm(question, default=True, err=True):
        return {}
    return {("egress", "host_loopback"): [*listed, url]}


def _changes(options: Options, choice: Choice) -> dict[Key, object]:
    """What changes in the file: the settings of a choice, with a word in the place of where its
    typed key will be, and a tier that is asked for by name."""
    wanted: dict[str, object] = {
        "provider": choice.provider,
        "model": choice.model or None,
        "base_url": choice.base_url or None,
        "api_key_env": _TYPED if choice.key else choice.key_env or None,
    }
    names = (*wanted, *KEY_SETTINGS)
    changes: dict[Key, object] = {("agent", name): wanted.get(name) for name in names}
    if options.tier is not None:
        changes["tier",] = options.tier
    return changes


def _file(options: Options) -> Path:
    """The file to change: the one that is read, or will be."""
    named = options.config_file or os.environ.get(ENV_CONFIG)
    if named and not Path(named).expanduser().exists():
        return Path(named).expanduser().absolute()
    return settings_file(options)


def _test(options: Options, config: Config, choice: Choice) -> bool:
    """Whether the model answers, or is wanted all the same."""
    say(
        f"asking {neutralise(choice.model)} to call a tool (a model that is not in memory yet may "
        "take a minute) ..."
    )
    try:
        until = "answer" if choice.calls_tools else "tool"
        trial = try_as_agent(config, options.user_id, choice.key, until=until)
    except WireError as error:
        if isinstance(error, CannotTry) and installed(config.tier).images:
            typer.echo(f"not tested: {error.brief} ({error.details}); guests may", err=True)
            return True
        if not sys.stdin.isatty():
            error.resolution = f"{error.resolution}; or write the file untested: --no-test"
            raise
        say(neutralise(str(error)))
        return typer.confirm("Take it all the same?", err=True)
    if trial.why_from_here:
        typer.echo(f"asked from here and not by a guest: {trial.why_from_here}", err=True)
    typer.echo(f"it answered in {trial.took_s:.1f} s", err=True)
    return True


def _restart(options: Options) -> None:
    """Let the agent that runs with the settings before take the new ones, and name the others."""
    config = options.load()
    others = [each for each in known_users(config) if each != options.user_id]
    if running := [each for each in others if asyncio.run(host_runs(config, each))]:
        typer.echo(
            f"{', '.join(running)} run with the settings before, until: "
            f"{options.command('restart', '--all')}",
            err=True,
        )
    if asyncio.run(host_runs(config, options.user_id)):
        typer.echo("restarting the agent, which runs with the settings before ...", err=True)
        ask_host(options, lambda host: host.restart(""))
