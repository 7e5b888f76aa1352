"""How to talk: which model answers. A person is asked on a terminal."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from wire.errors import Code, WireError
from wire.providers import COMPATIBLE, NAMES, OFFLINE, PROVIDERS
from wire.settings import shown_address

from runner.cli.output import clip, neutralise, one_line, plain_console, say, without_padding
from runner.errors import ConfigError
from runner.providers.servers import (
    SUGGESTED,
    Model,
    Server,
    addresses,
    best,
    local_servers,
    pull,
    ranked,
    server_at,
)

_SHOWN: Final = 12
_NAME_CELLS: Final = 36
_KEY: Final = re.compile(r"[!-~]{20,}")
"""What could be a key; an address has a dot or a colon."""


@dataclass(frozen=True)
class Choice:
    """A model, and where its key is.

    Attributes:
        base_url: Empty for the provider's own address.
        key: One that was typed, which no setting names yet.
        key_env: The variable that holds the key.
        calls_tools: Whether its server says that it can call tools.
    """

    provider: str
    model: str = ""
    base_url: str = ""
    key: str = ""
    key_env: str = ""
    calls_tools: bool = False


DEMO: Final = Choice(OFFLINE)


def ask(so_far: str = "") -> Choice:
    """Ask how to talk; `so_far` is what answers now. Raises `typer.Abort` if the person leaves."""
    servers = asyncio.run(local_servers(os.environ))
    found = best(servers)
    cannot = found is None or found[1].tools is False
    if cannot and (ollama := _ollama(servers)) and _pulled(ollama):
        return Choice("ollama", SUGGESTED[0], ollama.base_url, calls_tools=True)
    local = ranked(servers)[:_SHOWN]
    keyed = _with_keys(os.environ)
    say("How do you want to talk?" + (f" (so far: {one_line(so_far)})" if so_far else ""))
    if not servers:
        say("No server of models answers here (Ollama, LM Studio, llama.cpp and vLLM would).")
    choices: list[tuple[str, str, Callable[[], Choice]]] = [
        *(
            (model.name, _facts(server, model), partial(_of, server, model))
            for server, model in local
        ),
        *(
            (name, f"with the key in {PROVIDERS[name].key_variable}", partial(complete, name))
            for name in keyed
        ),
        ("demo", "no model: understands ten sentences, needs nothing", lambda: DEMO),
    ]
    _listed([(name, facts) for name, facts, _ in choices])
    say(f"Or type an address (192.168.1.5:11434), a key, or a provider: {', '.join(PROVIDERS)}.")
    usual = len(choices) if cannot else 1
    while True:
        typed = _prompt(f"Enter takes {usual}") or str(usual)
        number = int(typed) if typed.isdecimal() else 0
        try:
            if 1 <= number <= len(choices):
                return choices[number - 1][2]()
            if typed.isdecimal():
                say(f"the numbers are 1 to {len(choices)}")
                continue
            named = next((make for name, _, make in choices if name == typed), None)
            return named() if named else _typed(typed)
        except WireError as error:
            say(neutralise(str(error)))


def complete(
    provider: str = "",
    model: str = "",
    address: str = "",
    key_env: str = "",
    key: str = "",
) -> Choice:
    """A choice of which some is known already; the rest is asked for, or found at the provider.

    Raises `WireError` if the provider cannot be asked, and `typer.Abort` if the person leaves.
    """
    row = PROVIDERS[provider or COMPATIBLE]
    its_own = not address
    if not address and not row.url:
        address = _prompt(f"Address of {provider}, such as https://NAME.example.com")
    if row.needs_key and its_own and not key and not key_env:
        if row.key_variable in os.environ:
            key_env = row.key_variable
        else:
            key = ask_unseen(f"Key of {provider} (it is not shown; empty: none)")
    value = key or os.environ.get(key_env, "").strip()
    try:
        server = asyncio.run(server_at(address, value, provider))
    except WireError as error:
        wants_key = error.code is Code.FAILED_PRECONDITION and not value
        if wants_key and (key := ask_unseen(f"{error.brief}. Key (it is not shown)")):
            return complete(provider, model, address, "", key)
        if error.code is not Code.NOT_FOUND:
            raise
        say(neutralise(str(error)))
        url = addresses(address, row, with_key=bool(value))[0]
        server = Server.at(provider or COMPATIBLE, url)
    _require_own(server)
    provider = provider or server.provider
    known = {each.name: each for each in server.models}
    model = model or _which(server, PROVIDERS[provider].usual)
    url = (
        ""
        if server.base_url == PROVIDERS[provider].url and not server.is_local
        else server.base_url
    )
    calls_tools = model in known and known[model].tools is True
    return Choice(provider, model, url, key, key_env, calls_tools)


def _require_own(server: Server) -> None:
    """Ask about a server of another person. Raises `typer.Abort` unless it is wanted."""
    if server.is_foreign:
        whose = (
            f"The account {one_line(server.account)} runs this server and can read what you send"
        )
        typer.confirm(f"{whose}. Use it?", abort=True, err=True)


def _of(server: Server, model: Model) -> Choice:
    _require_own(server)
    calls_tools = model.tools is True
    return Choice(server.provider, model.name, server.base_url, calls_tools=calls_tools)


def _typed(text: str) -> Choice:
    """What is no number: a provider, a key or an address."""
    if text == OFFLINE:
        return DEMO
    if text in NAMES:
        return complete(text)
    if _KEY.fullmatch(text) and not re.search(r"[:/]|\.[a-z]", text):
        sys.stderr.write("\x1b[1A\x1b[2K")  # a key stays on no screen
        begins = [name for name, row in PROVIDERS.items() if row.key_begins]
        begins = [name for name in begins if text.startswith(PROVIDERS[name].key_begins)]
        whose = max(begins, key=lambda name: len(PROVIDERS[name].key_begins), default="")
        whose = whose or _prompt(f"Whose key is it ({', '.join(PROVIDERS)})")
        if whose not in PROVIDERS:
            raise ConfigError(
                Code.INVALID_ARGUMENT,
                f"not a provider: {whose!r}",
                resolution=f"type one of {', '.join(PROVIDERS)}",
            )
        say(f"a key of {whose} (not shown)")
        return complete(whose, key=text)
    hosts = {urlsplit(row.url).hostname: name for name, row in PROVIDERS.items() if row.needs_key}
    host = ""
    with suppress(ValueError):  # it is none, which is said below
        host = urlsplit(text if "://" in text else f"//{text}").hostname or ""
    if host in hosts:
        return complete(hosts[host])
    return complete(address=text)


def _which(server: Server, usual: str) -> str:
    """The model that the person wants of a server."""
    models = [model for _, model in ranked([server])]
    names = [model.name for model in models]
    if len(names) == 1:
        return names[0]
    shown = sorted(models, key=lambda each: each.name != usual)[:_SHOWN]
    say(
        f"{len(names) or 'No'} models at {shown_address(server.base_url)}"
        + (":" if names else " are listed.")
    )
    _listed([(each.name, _facts(server, each)) for each in shown])
    default = usual if usual in names else ""
    question = f"Model, by number or name; Enter takes {default}" if default else "Model"
    while True:
        typed = _prompt(question) or default
        if typed.isdecimal() and 1 <= int(typed) <= len(shown):
            return shown[int(typed) - 1].name
        if typed in names or (typed and not names):
            return typed
        close = [name for name in names if typed and typed in name][:5]
        say(f"it has none of that name{'; near: ' + ', '.join(close) if close else ''}")


def _ollama(servers: Sequence[Server]) -> Server | None:
    """The Ollama of this machine, which can get a model."""
    own = (each for each in servers if each.provider == "ollama" and not each.is_foreign)
    return next(own, None)


def _pulled(ollama: Server) -> bool:
    """Whether the person wanted the model that is suggested, and Ollama has got it."""
    name, size = SUGGESTED
    has = "has no model yet" if not ollama.models else "has no model that can call tools"
    if not typer.confirm(
        f"{ollama.program} runs here and {has}. Get one ({name}, {size})?", default=True, err=True
    ):
        return False
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=plain_console(stderr=True)) as progress:
        task = progress.add_task(name, total=None)

        async def get() -> None:
            async with aclosing(pull(ollama, name)) as steps:
                async for step in steps:
                    described = clip(one_line(step.status or name), _NAME_CELLS)
                    progress.update(
                        task,
                        description=described,
                        completed=step.completed,
                        total=step.total or None,
                    )

        try:
            asyncio.run(get())
        except WireError as error:
            progress.stop()
            say(neutralise(str(error)))
            return False
    return True


def _with_keys(environ: Mapping[str, str]) -> list[str]:
    """The providers whose usual variable holds a key; one of each variable."""
    found: dict[str, str] = {}
    for name, row in PROVIDERS.items():
        if row.needs_key and environ.get(row.key_variable, "").strip():
            found.setdefault(row.key_variable, name)
    return list(found.values())


def _facts(server: Server, model: Model) -> str:
    """What there is to know before a model is chosen."""
    where = f"runs at {one_line(model.runs_at)}" if model.runs_at else ""
    can = {True: "calls tools", False: "no tools: it can remember nothing", None: ""}
    size = f"{model.size_bytes / 1e9:.1f} GB" if model.size_bytes and not where else ""
    loaded = "in memory" if model.loaded else ""
    account = f"run by the account {one_line(server.account)}" if server.account else ""
    who = account + (", who can read what you send" if server.is_foreign else "")
    facts = (one_line(server.program), can[model.tools], where, loaded, size, who)
    return " · ".join(filter(None, facts))


def _listed(rows: Sequence[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    for number, (name, facts) in enumerate(rows, 1):
        table.add_row(f"  {number:2}", clip(one_line(name), _NAME_CELLS), facts)
    say(without_padding(plain_console(stderr=True), table))


def _prompt(question: str) -> str:
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def ask_unseen(question: str) -> str:
    typed = typer.prompt(question, default="", show_default=False, hide_input=True, err=True)
    return str(typed).strip()
