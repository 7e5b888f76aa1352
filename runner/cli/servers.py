"""Commands that serve other programs: HTTP with the web console, and MCP and the Agent Client
Protocol over standard input and output."""

import asyncio
import fcntl
import gc
import html
import json
import logging
import os
import signal
import stat
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, cast

import typer
from wire.disk import store
from wire.errors import Code, WireError

from runner.cli.agent import connect, lasting_agent
from runner.cli.operation.launching import launch, waking
from runner.cli.operation.lifecycle import at_first_signal, start_all
from runner.cli.options import Options
from runner.cli.projects import folders_of, not_ours, opened_first
from runner.cli.setup.config import change_settings, settings_file
from runner.config.loading import LoadedSettings
from runner.config.models import Config
from runner.config.user_id import DEFAULT_USER_ID
from runner.errors import packages
from runner.logs import printable
from runner.serve.login.links import LINK_S, Links
from runner.workspace.configuration_file import Changes
from runner.workspace.directories import descriptor

_DESKTOP: Final = ("DISPLAY", "WAYLAND_DISPLAY")
_EDITORS: Final = "acp"
_MCP_CLIENTS: Final = "mcp"
"""The channels that sessions and notes of this account's own editors and clients record."""


def serve_http(options: Options, *, with_link: bool, everybody: bool = False) -> int:
    """Serve until Ctrl-C; with `everybody`, start the agents of all users, too. With a link, for a
    server that runs already show one and return.

    Returns the exit code.
    """
    config = options.load()
    links = Links.locate(config)
    if with_link and (url := _running(links)):
        _show_link(links, url, options.user_id)
        return 0
    if everybody:
        server = _serving(options, config, links, with_link=with_link)
        return asyncio.run(start_all(options, detach=False, server=server))
    return asyncio.run(_serve(options, config, links, with_link=with_link))


async def _serve(options: Options, config: Config, links: Links, *, with_link: bool) -> int:
    ended = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with at_first_signal(ended.set, signals) as received:
        async with _serving(options, config, links, with_link=with_link):
            await ended.wait()
    return 130 if received[0] == signal.SIGINT else 0


@asynccontextmanager
async def _serving(
    options: Options, config: Config, links: Links, *, with_link: bool
) -> AsyncIterator[None]:
    """The server, and what is to be told of it."""
    with packages("serve", "the HTTP server"):
        from runner.serve.operator.host import Commands
        from runner.serve.operator.settings import SettingsFile
        from runner.serve.server import HttpServer
    _show_log(config)

    def start(user_id: str, insecure: bool) -> list[str]:
        whose = replace(options, user_id=user_id, insecure=insecure or options.insecure)
        whose.load_for_hosting()
        return launch(whose).notices

    def change(changes: Changes, write: bool) -> LoadedSettings:
        return change_settings(options, settings_file(options), changes, write=write)

    file = SettingsFile(options.load_settings, change)
    everybodys = replace(options, user_id=DEFAULT_USER_ID).command().strip()
    commands = Commands(options.load, start, file, everybodys)
    async with HttpServer(config, commands) as server, waking(options, "serve"):
        gc.freeze()  # so that what connections leave behind is looked for more often
        if with_link:
            _show_link(links, server.url, options.user_id)
        else:
            outside = " and ".join(server.lets_in)
            typer.echo(f"serving at {server.url or config.serve.socket or outside}")
            if outside:
                typer.echo(f"  people with access files are let in at  {outside}")
            typer.echo(f"  a link that lets you in  {options.command('serve', '--open')}")
        yield


def _running(links: Links) -> str:
    """The address of the server that runs; empty: none does."""
    try:
        with descriptor(links.directory / "serving", os.O_RDWR) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return ""
    except FileNotFoundError:
        return ""
    except BlockingIOError:
        return str(json.loads((links.directory / "address.json").read_bytes())["url"])


def _show_link(links: Links, url: str, user_id: str) -> None:
    """Print a link that lets the operator in once, and open it where there is a desktop."""
    link = f"{url}/#link={links.make(user_id)}"
    typer.echo(printable(link))
    typer.echo(f"it works once, within {LINK_S / 60:.0f} minutes", err=True)
    if sys.stdout.isatty() and any(os.environ.get(name) for name in _DESKTOP):
        # A file, because the arguments of a browser can be read by other accounts.
        page = links.directory / "open.html"
        store(page, f'<meta http-equiv="refresh" content="0;url={html.escape(link)}">')
        webbrowser.open(page.as_uri())


def _show_log(config: Config) -> None:
    """Show in the terminal, or the journal, what the server logs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("serve: %(message)s"))
    for name in ("runner.serve", "runner.access", "runner.host.awake"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(config.log_level.upper())
    failures = logging.getLogger("uvicorn.error")  # what it warns of, anybody can cause
    failures.addHandler(handler)
    failures.setLevel(logging.ERROR)


def in_one_line(record: logging.LogRecord) -> bool:
    """Let the library say what an editor did wrong without a traceback."""
    why = record.exc_info[1] if record.exc_info else None
    record.msg, record.args = f"{record.getMessage()}: {why}" if why else record.getMessage(), ()
    record.exc_info = record.exc_text = None
    return True


async def serve_editor(options: Options, with_folder: str | None = None) -> None:
    """Serve one editor until it leaves. `with_folder`, "rw" or "ro", opens the folder of each of
    its sessions as a project. Raises `WireError` if there is none at the other end of the
    standard streams, or no agent to begin with."""
    with packages("acp", "the Agent Client Protocol"):
        import acp

        from runner.acp import EditorAgent
    modes = [os.fstat(number).st_mode for number in (0, 1)]
    if not all(stat.S_ISFIFO(each) or stat.S_ISSOCK(each) for each in modes):
        raise WireError(
            Code.INVALID_ARGUMENT,
            "no editor has started this: standard input and output are no pipes",
            resolution="name this command in the editor's settings (docs/guide/editors.md)",
        )
    lines = logging.StreamHandler()
    lines.addFilter(in_one_line)
    logging.getLogger().addHandler(lines)
    config = None if options.connect is not None else options.load()

    async def open_folder(cwd: str) -> str:
        suffix = ":ro" if with_folder == "ro" else ""
        folders = folders_of([cwd + suffix])
        return await opened_first(folders, config, options.user_id, logging.getLogger().info)

    if with_folder is not None and config is None:
        raise not_ours()
    await (await connect(options)).close()
    async with lasting_agent(options, _EDITORS) as gateway:
        agent = EditorAgent(gateway, open_folder if with_folder else None)
        try:
            await acp.run_agent(cast("acp.Agent", agent))
        finally:
            await agent.close()


async def serve_mcp(options: Options) -> None:
    """Serve one client until it leaves. Raises `WireError` if there is no agent to begin with.

    Ctrl-C ends the process at once, because a read of standard input cannot be given up; the agent
    ends what it does for a client that is gone.
    """
    with packages("mcp", "an MCP server"):
        from mcp.server.stdio import stdio_server

        from runner.mcp.server import build
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    await (await connect(options)).close()
    async with lasting_agent(options, _MCP_CLIENTS) as agent:
        server = build(lambda _: agent)
        try:
            async with stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())
        except* BrokenPipeError:
            pass  # it has left before its answer
