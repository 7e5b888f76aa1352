"""`runner init`: asks what a first configuration needs, tries it, and writes the file."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

import typer
from pydantic import ValidationError
from wire.errors import Code, WireError
from wire.settings import AgentSettings, Provider, Tier, problems

from runner.cli.options import Options
from runner.cli.output import neutralise
from runner.cli.setup.template import template
from runner.config.loading import ENV_CONFIG, own_file
from runner.doctor.provider import CannotTry, try_provider
from runner.errors import ConfigError, HostError
from runner.workspace.directories import whole_file

_KEY_VARIABLES: Final = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GEMINI_API_KEY",
}
"""What the providers' own documentation calls them."""
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "provider": get_args(Provider),
    "tier": get_args(Tier),
}

Answers = dict[str, str]
"""Settings of `[agent]`; empty ones were left out on purpose."""


def init(options: Options, given: dict[str, str | None], *, force: bool, test: bool) -> None:
    """Ask for what is not `given`, try one request, and write a commented configuration file.

    Without a terminal nothing is asked: what is missing is left out, or refused if it is needed.
    Raises `WireError` if the file is there and not `force`, for an answer that is not accepted, and
    if the request failed and the person does not want the file all the same.
    """
    path = _place(options)
    if os.path.lexists(path) and not force:
        raise HostError(
            Code.ALREADY_EXISTS,
            f"there is a configuration file already: {path}",
            resolution=f"{options.command('config', 'edit')}; or replace it: "
            f"{options.command('init', '--force')}",
        )
    ask = _asked if sys.stdin.isatty() else _not_asked
    agent = _agent(given, ask)
    asked_tier = "process" if options.insecure else options.tier
    tier = ask("tier", asked_tier, f"Tier ({', '.join(get_args(Tier))})", "container")
    text = template(tier, agent)
    settings = replace(options, config_file=path).load_settings(draft=text).config.agent
    if settings.provider == "offline":
        typer.echo("the offline model needs no test", err=True)
    elif test:
        _test(settings, tier)
    else:
        typer.echo(f"not tested; {_test_later(options)}", err=True)
    _write(path, text)
    typer.echo(f"written: {path}")
    insecure = tier == "process"
    start = replace(options, tier=None).command("chat", insecure=insecure)
    typer.echo(f"  settings  {options.command('config', 'show')}")
    typer.echo(f"  begin     {start}")


def _place(options: Options) -> Path:
    """Where the file is to be: as it will be looked for later."""
    named = options.config_file or os.environ.get(ENV_CONFIG)
    return Path(named).expanduser().absolute() if named else own_file()


def _agent(given: dict[str, str | None], ask: "Ask") -> Answers:
    choices = ", ".join(get_args(Provider))
    provider = ask("provider", given["provider"], f"Provider ({choices})", "offline")
    if provider == "offline":
        return {"provider": provider}
    model = ask("model", given["model"], "Model", None)
    base_url = ask(
        "base_url", given["base_url"], "Address of another server (empty: the provider's own)", ""
    )
    usual = "" if base_url else _KEY_VARIABLES[provider]
    question = "Variable that holds the key, by its name"
    key = ask("api_key_env", given["api_key_env"], question, usual)
    return {"provider": provider, "model": model, "api_key_env": key, "base_url": base_url}


Ask = Callable[[str, str | None, str, str | None], str]
"""Returns the answer for a setting: what was given, what a person says to the question, or the
default, which is None if there is none."""


def _asked(name: str, given: str | None, question: str, default: str | None) -> str:
    if given is not None:
        return _checked(name, given)
    while True:
        shown = bool(default)
        answer: str = typer.prompt(question, default=default, show_default=shown, err=True)
        if not (problem := _problem(name, answer.strip())):
            return answer.strip()
        typer.echo(neutralise(problem), err=True)


def _not_asked(name: str, given: str | None, question: str, default: str | None) -> str:  # noqa: ARG001
    if given is not None:
        return _checked(name, given)
    if default is None:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"no {name} was given",
            details="standard input is no terminal, so nobody can be asked",
            resolution=f"runner init {_option(name)} …",
        )
    return default


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
        typer.echo(f"not tested: {error.brief} ({error.details})", err=True)
        return
    except WireError as error:
        if not sys.stdin.isatty():
            error.resolution = f"{error.resolution}; or write the file untested: --no-test"
            raise
        typer.echo(neutralise(str(error)), err=True)
        if not typer.confirm("Write the file all the same?", default=False, err=True):
            raise WireError(Code.CANCELLED, "no file was written") from None
        return
    typer.echo(f"it answered in {took_s:.1f} s", err=True)


def _test_later(options: Options) -> str:
    return f"to see whether it answers: {options.command('ask', 'hello')}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text.encode())
