"""`runner tools login|logout`: logins of a user at MCP servers that want one."""

import asyncio
import os
from typing import Annotated

import typer
from wire.errors import Code

from runner.cli.agent import ask_host, host_runs
from runner.cli.options import Options
from runner.errors import ConfigError, packages
from runner.workspace import logins

tools = typer.Typer(name="tools")
Server = Annotated[str, typer.Argument(metavar="NAME", help="The server's name in the settings.")]


@tools.command()
def login(context: typer.Context, name: Server) -> None:
    """Log in at an MCP server that wants it, in a browser.

    The agent's egress gets the token and renews it; neither agent nor commands have it.
    """
    options: Options = context.obj
    settings = options.load().for_user(options.user_id)
    if (server := logins.servers(settings).get(name)) is None:
        raise ConfigError(
            Code.NOT_FOUND,
            f"there is no MCP server {name} to log in at",
            details="it must have a url, and no Authorization in headers_env",
            resolution=f"runner config edit; see [mcp.servers.{name}]",
        )
    with packages("mcp", "a login"):
        from runner.egress.login import Login
    ask = "open this in a browser, and log in there:\n{}".format
    begun = Login(name, server, settings.egress, os.environ, lambda url: typer.echo(ask(url)))
    found = asyncio.run(begun.run_here())
    logins.write(options.user_id, name, found)
    _tell(options)
    typer.echo(f"logged in at {name}")
    typer.echo(
        options.mended("an agent that runs connects soon, and at once after: runner restart")
    )


@tools.command()
def logout(context: typer.Context, name: Server) -> None:
    """Forget the login at an MCP server. There, its token stays valid until it ends."""
    found = logins.forget(context.obj.user_id, name)
    _tell(context.obj)
    if not found:
        brief = f"there is no login at {name}"
        raise ConfigError(Code.NOT_FOUND, brief, resolution="runner tools list")
    typer.echo(f"no login at {name} is kept any more")


def _tell(options: Options) -> None:
    """Let the egress of a running agent have the logins of now."""
    if asyncio.run(host_runs(options.load(), options.user_id)):
        ask_host(options, lambda host: host.reload_egress())
