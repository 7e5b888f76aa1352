"""`runner credentials set|list|clear`: the keys of models' providers that a running agent uses.

A key is read from a variable, a file, the system's keyring or standard input, never from the
command line, where other accounts and the shell's history would see it.
"""

import asyncio
import getpass
import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from wire.errors import Code
from wire.providers import KEYED, OFFLINE, PROVIDERS, KeyedName
from wire.settings import KEY_SETTINGS
from wire.v1 import control_pb2, gateway_pb2

from runner.cli.agent import ask_host, host_runs
from runner.cli.options import AsJson, Options
from runner.cli.output import Shape, one_line, to_the_second
from runner.cli.setup.config import change_settings, settings_file
from runner.config.loading import LoadedSettings
from runner.errors import ConfigError
from runner.workspace.keys import (
    key_source,
    read_key_file,
    read_keyring,
    read_variable,
    store_key,
    stored_file,
    usable_key,
)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FROM_STDIN: Final = "standard input"

credentials = typer.Typer(name="credentials")

OfProvider = Annotated[KeyedName | None, typer.Option("--provider", help="Whose key it is.")]


@credentials.command(
    "set", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def set_key(
    context: typer.Context,
    provider: OfProvider = None,
    from_env: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable that holds the key.")
    ] = "",
    from_file: Annotated[Path | None, typer.Option(help="The file that holds the key.")] = None,
    keyring: Annotated[
        bool, typer.Option("--keyring", help="The system's keyring holds the key.")
    ] = False,
) -> None:
    """Give the agent a key. Without an option it is read from standard input.

    The key is used from the next request on, at the address that the settings name. One that was
    typed or piped is stored, and survives `runner stop`; others stay in memory until then.
    """
    if context.args:
        raise _in_the_open()
    if sum(map(bool, (from_env, from_file, keyring))) > 1:
        raise typer.BadParameter("name one of --from-env, --from-file and --keyring")
    options: Options = context.obj
    chosen = provider or _configured(options)
    loaded = options.load_settings()
    agent = loaded.config.for_user(options.user_id).agent
    origin = agent.origin(chosen)
    if from_env:
        source = f"the environment variable {_variable(from_env)}"
        key = read_variable(from_env, os.environ, "--from-env names it")
    elif from_file:
        source = f"the file {from_file}"
        key = read_key_file(from_file, "--from-file", origin)
    elif keyring:
        source, key = "the system's keyring", read_keyring(chosen, origin)
    else:
        source, key = _FROM_STDIN, _asked_for(chosen)
    kept = "it is kept in memory: after runner stop, set it again"
    in_use, runs = False, True
    if source == _FROM_STDIN and chosen == agent.provider:
        source, kept = _stored(options, loaded, key)
        runs = asyncio.run(host_runs(loaded.config, options.user_id))
    if runs:
        in_use = ask_host(options, lambda host: host.set_credential(chosen, key, source, origin))
    used = "is in use from the next request on" if in_use else "is used when the agent has started"
    typer.echo(f"the key of {chosen} at {origin} {used}")
    typer.echo(options.mended(kept))


def _stored(options: Options, loaded: LoadedSettings, key: str) -> tuple[str, str]:
    """Store a key, and let the settings name it. Returns where it is, and what there is to know."""
    agent = loaded.config.for_user(options.user_id).agent
    named = loaded.origin(("agent", agent.key_setting(agent.provider)), options.user_id)
    decided = named or loaded.origin(("agent", "provider"), options.user_id) or ()
    section = decided[:-1]
    owner = options.user_id if section[:1] == ("users",) else ""
    found = store_key(agent.provider, agent.base_url, key, owner)
    [(name, value)] = found.items()
    source = key_source(agent.model_copy(update={**dict.fromkeys(KEY_SETTINGS), **found}))
    if str(getattr(agent, name)) != str(value):
        if (origin := loaded.sources.get(decided)) != str(loaded.file):
            return source, (
                f"it is stored in {source}; after runner stop {name} = {json.dumps(value)} finds "
                f"it, if that takes the place of {origin}"
            )
        changes = {(*section, each): found.get(each) for each in KEY_SETTINGS}
        path = settings_file(options)
        change_settings(options, path, changes)
        typer.echo(f"{path} says: {name} = {json.dumps(value)}", err=True)
    return source, f"it is stored in {source}"


@credentials.command("list")
def list_keys(context: typer.Context, json: AsJson = False) -> None:
    """Show where each provider's key is from, and how it has done. Never the key."""
    KEYS.show(ask_host(context.obj, lambda host: host.credentials()), json=json)


@credentials.command("clear")
def clear(context: typer.Context, provider: OfProvider = None) -> None:
    """Forget a key that was set: the running agent's, and the file where a typed one is stored.

    Settings that name the file stay, and so does what the system's keyring holds.
    """
    options: Options = context.obj
    chosen = provider or _configured(options)
    loaded = options.load_settings()
    agent = loaded.config.for_user(options.user_id).agent
    path = stored_file(agent) if chosen == agent.provider else None
    if path is None or asyncio.run(host_runs(loaded.config, options.user_id)):
        cleared = ask_host(options, lambda host: host.clear_credential(chosen))
        typer.echo(
            f"the key of {chosen} is forgotten" if cleared else f"no key of {chosen} was set"
        )
    if path is not None:
        path.unlink(missing_ok=True)
        typer.echo(f"the key file {path} is deleted")
        typer.echo(options.mended("another key is stored there by: runner credentials set"))
        typer.echo(options.mended("an agent that runs has the old one until: runner restart"))


def _source(each: control_pb2.Credential) -> str:
    since = f", set {to_the_second(each.set_at)}" if each.set_at else ""
    return f"{one_line(each.source)}{since}" if each.source else "no key"


def _failure(state: gateway_pb2.ModelProvider) -> str:
    return f"{to_the_second(state.failed_at)} {one_line(state.failure)}" if state.failed_at else ""


KEYS: Final = Shape[control_pb2.Credential](
    {
        "provider": lambda each: each.provider,
        "key from": _source,
        "last answer": lambda each: to_the_second(each.state.answered_at),
        "last failure": lambda each: _failure(each.state),
    },
    "provider source? set_at? answered_at=state.answered_at? failed_at=state.failed_at? "
    "failure=state.failure?",
)


def _configured(options: Options) -> str:
    provider = options.load().for_user(options.user_id).agent.provider
    if provider == OFFLINE:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            "the built-in model needs no key",
            details=f"--provider says for which one it is: {', '.join(PROVIDERS)}",
            resolution=f"runner credentials set --provider {KEYED[0]}",
        )
    return provider


def _variable(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    raise ConfigError(
        Code.INVALID_ARGUMENT,
        "--from-env needs the name of an environment variable, not the key itself",
        details="what was given is not shown; if it was the key, others may have seen it",
        resolution="export MODEL_KEY=…, then: runner credentials set --from-env MODEL_KEY",
    )


def _in_the_open() -> ConfigError:
    return ConfigError(
        Code.INVALID_ARGUMENT,
        "a key must not stand in the command line, and nothing else can",
        details="other accounts can read command lines, and the shell keeps them; what was given "
        "is not shown and was not used",
        resolution="make a new key where others may have seen it; then: runner credentials set, "
        "which asks for it, or --from-env NAME, --from-file PATH, --keyring",
    )


def _asked_for(provider: str) -> str:
    """The key as it was typed, unseen, or the one line of a pipe."""
    if sys.stdin.isatty():
        key = getpass.getpass(f"key of {provider} (it is not shown): ").strip()
    else:
        key = sys.stdin.read().strip()
    if not key:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"{_FROM_STDIN} holds no key",
            resolution="runner credentials set < FILE, or without < it asks for the key",
        )
    return usable_key(key, _FROM_STDIN, "write the key alone, on one line")
