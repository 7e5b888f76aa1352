"""`runner init`: asks what a first configuration needs, tries it, and writes the file."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import typer
from pydantic import ValidationError
from wire.errors import Code, WireError
from wire.providers import NAMES, OFFLINE, PROVIDERS
from wire.settings import AgentSettings, problems

from runner.cli.options import Options
from runner.cli.output import confirm, neutralise
from runner.cli.setup.config import template
from runner.config.loading import ENV_CONFIG, find_file, own_file
from runner.config.tiers import NAMES as TIERS
from runner.doctor.provider import CannotTry, try_provider
from runner.errors import ConfigError, HostError
from runner.workspace.directories import whole_file

_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "provider": NAMES,
    "tier": TIERS,
}


def init(options: Options, given: Mapping[str, str | None], *, force: bool, test: bool) -> None:
    """Ask for what is not `given`, try one request, and write a commented configuration file.

    Without a terminal nothing is asked: what is missing has its default, or is refused if it has
    none. Raises `WireError` if the file is there and not `force`, for an answer that is not
    accepted, and if the request failed and the person does not want the file all the same.
    """
    path = _place(options)
    if os.path.lexists(path) and not force:
        raise HostError(
            Code.ALREADY_EXISTS,
            f"there is a configuration file already: {path}",
            resolution=f"{options.command('config', 'edit')}; or replace it: "
            f"{options.command('init', '--force')}",
        )
    try:
        agent = _agent(given)
        asked = "process" if options.insecure else options.tier
        tier = _answer("tier", asked, f"Tier ({', '.join(TIERS)})", "container")
    except typer.Abort:
        typer.echo(err=True)
        raise WireError(Code.CANCELLED, "no file was written") from None
    text = template(tier, agent)
    settings = replace(options, config_file=path).load_settings(draft=text).config.agent
    if settings.provider == "offline":
        typer.echo("the offline model needs no test", err=True)
    elif test:
        _test(settings, tier)
    else:
        typer.echo("not tested", err=True)
    _write(path, text)
    typer.echo(f"written: {path}")
    if (read := find_file(options.config_file, os.environ)) != path:
        typer.echo(f"note: in this directory {read} is read instead")
    insecure = tier == "process"
    begin = replace(options, tier=None, insecure=False).command("chat", insecure=insecure)
    typer.echo(f"  settings  {options.command('config', 'show')}")
    typer.echo(f"  begin     {begin}")


def _place(options: Options) -> Path:
    """Where the file is to be: as it will be looked for later."""
    named = options.config_file or os.environ.get(ENV_CONFIG)
    return Path(named).expanduser().absolute() if named else own_file()


def _agent(given: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of `[agent]`; one that was left out on purpose is empty."""
    choices = ", ".join(NAMES)
    provider = _answer("provider", given["provider"], f"Provider ({choices})", OFFLINE)
    if provider == OFFLINE:
        return {"provider": provider}
    base_url = "Address of another server (empty: the provider's own)"
    model = _answer("model", given["model"], "Model", None)
    server = _answer("base_url", given["base_url"], base_url, "")
    usual = "" if server else PROVIDERS[provider].key_variable
    key = _answer("api_key_env", given["api_key_env"], "Name of the key's variable", usual)
    return {"provider": provider, "model": model, "api_key_env": key, "base_url": server}


def _answer(name: str, given: str | None, question: str, default: str | None) -> str:
    """What was given for a setting, what a person says to the question or, without a terminal, the
    default, which is None if there is none."""
    if given is not None:
        return _checked(name, given)
    if not sys.stdin.isatty():
        if default is None:
            raise ConfigError(
                Code.INVALID_ARGUMENT,
                f"no {name} was given",
                details="standard input is not a terminal, so nobody can be asked",
                resolution=f"runner init {_option(name)} …",
            )
        return default
    while True:
        answer = str(typer.prompt(question, default=default, show_default=bool(default), err=True))
        if not (problem := _problem(name, answer.strip())):
            return answer.strip()
        typer.echo(neutralise(problem), err=True)


def _checked(name: str, given: str) -> str:
    if problem := _problem(name, given):
        raise typer.BadParameter(f"{_option(name)}: {problem}")
    return given


def _option(name: str) -> str:
    return {"api_key_env": "--key-env"}.get(name, f"--{name.replace('_', '-')}")


def _problem(name: str, answer: str) -> str:
    """What is wrong with an answer, or empty."""
    if name in _CHOICES:
        return "" if answer in _CHOICES[name] else f"accepted: {', '.join(_CHOICES[name])}"
    if name == "model" and not answer:
        return "a provider needs the name of a model"
    try:
        AgentSettings.model_validate({name: answer})
    except ValidationError as error:
        return problems(AgentSettings, error)[0][1]
    return ""


def _test(settings: AgentSettings, tier: str) -> None:
    typer.echo(f"asking {settings.provider} {settings.model} for one word ...", err=True)
    try:
        took_s = try_provider(settings, os.environ)
    except CannotTry as error:
        if tier == "process":
            raise
        typer.echo(f"not tested: {error.brief} ({error.details}); guests may", err=True)
        return
    except WireError as error:
        if not isinstance(error, ConfigError):  # what a guest says is for a file that there is
            error.resolution = "give other answers, if it was one of them"
        if not sys.stdin.isatty():
            error.resolution = f"{error.resolution}; or write the file untested: --no-test"
            raise
        typer.echo(neutralise(str(error)), err=True)
        confirm("Write the file all the same?", what="write the file", command="--no-test")
        return
    typer.echo(f"it answered in {took_s:.1f} s", err=True)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text.encode())
