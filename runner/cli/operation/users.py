"""`runner users`: list the users of this machine, and remove one with everything of theirs."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer
from rich.filesize import decimal
from wire.errors import Code

from runner.access.tokens import Tokens
from runner.cli.command_tree import user_names
from runner.cli.operation.lifecycle import stop
from runner.cli.options import AsJson, Options, Yes
from runner.cli.output import Shape, confirm, print_table, table_of
from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.config.users import check_known, known_users
from runner.errors import HostError
from runner.host.removal import UserData, belongings
from runner.host.runtime import is_running
from runner.serve.login.links import Links
from runner.serve.operator.people import remove_user
from runner.tiers.drivers import tier_of
from runner.workspace.workspace import Workspace

users = typer.Typer()


@dataclass(frozen=True)
class User:
    user_id: str
    workspace: str
    has_workspace: bool
    running: bool


USERS: Final = Shape[User](
    {
        "user": lambda each: each.user_id,
        "host": lambda each: "running" if each.running else "stopped",
        "workspace": lambda each: each.workspace if each.has_workspace else "(none yet)",
    }
)


@users.command("list")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the users, and whose agents run."""
    config = context.obj.load()
    found = []
    for user_id in known_users(config):
        path = Workspace.locate(config, user_id).path
        found.append(User(user_id, str(path), path.is_dir(), is_running(config, user_id)))
    if not any(each.running for each in found):
        asyncio.run(tier_of(config).require_active(config))
    USERS.show(found, json=json, none=f"no users yet: {config.workspace_root}")


@users.command()
def remove(
    context: typer.Context,
    user: Annotated[
        str, typer.Argument(metavar="USER", help="Whom to remove.", autocompletion=user_names)
    ],
    end: Annotated[
        bool, typer.Option("--stop", help="End the user's agent first, if it runs.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove a user's memory, files and logs from this machine. Asks first."""
    given: Options = context.obj
    theirs = replace(given, user_id=check_user_id(user))
    config = theirs.load()
    check_known(config, user)
    asyncio.run(tier_of(config).require_active(config))
    if is_running(config, user) and not end:
        raise HostError(
            Code.FAILED_PRECONDITION,
            f"the agent of user {user} runs",
            details="its guests use what would be removed",
            resolution=f"{theirs.command('stop')}, then the same again; or: "
            f"{given.command('users', 'remove', user, '--stop')}",
        )
    found = belongings(config, user)
    tokens = Tokens.locate(config)
    named = [token.name for token in tokens.all() if token.user_id == user]
    _show(given, user, config, found, named)
    if not (found.parts or found.engine_objects or named):
        return
    if not yes:
        confirm(
            f"Remove all this of user {user}? It cannot be undone",
            what=f"remove user {user}",
            command=given.command("users", "remove", user, *(["--stop"] if end else []), "--yes"),
        )

    async def stop_host(_: str) -> None:
        if is_running(config, user):
            await stop(theirs)

    asyncio.run(remove_user(config, user, tokens, Links.locate(config), stop_host))
    typer.echo(f"user {user} is removed")


def _show(
    given: Options, user: str, config: Config, found: UserData, tokens: Sequence[str]
) -> None:
    if found.parts:
        rows = [(part.what, decimal(part.size), os.fspath(part.path)) for part in found.parts]
        print_table(table_of(f"of user {user}", "size", "place", rows=rows))
    else:
        typer.echo(f"user {user} has nothing in {config.workspace_root}")
    for name in (*found.engine_objects, *(f"access token {token}" for token in tokens)):
        typer.echo(f"and the {name}")
    for told in found.elsewhere:
        typer.echo(f"note: {told}")
    if found.has_settings:
        edit = given.mended("runner config edit")
        typer.echo(f"note: the section [users.{user}] of the configuration stays: {edit}")
