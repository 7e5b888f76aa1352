"""Several users of one machine: listing them, and starting and stopping all of their hosts.

Every user has a separate runner process, so a failure affects one user only.
"""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import typer
from wire.errors import Code, WireError

from runner.cli.agent import host_runs
from runner.cli.lifecycle import start_detached, stop
from runner.cli.options import Options
from runner.cli.output import print_json, print_table, table_of
from runner.config.models import Config
from runner.config.user_id import is_user_id
from runner.errors import HostError
from runner.host.runtime import Runtime, lock_holder
from runner.workspace.workspace import Workspace

_LOOK_S: Final = 2.0


@dataclass(frozen=True)
class User:
    """One user in `runner users`, known from a workspace, the configuration or both."""

    user_id: str
    workspace: str
    has_workspace: bool
    running: bool


def known_users(config: Config) -> list[str]:
    """All users with a workspace or a section in the configuration."""
    names = set(config.users)
    if config.workspace_root.is_dir():
        names |= {
            path.name
            for path in config.workspace_root.iterdir()
            if is_user_id(path.name) and path.is_dir() and not path.is_symlink()
        }
    return sorted(names)


def show_users(options: Options, *, as_json: bool) -> None:
    """Print all users, and which of their hosts run."""
    config = options.load()
    found = [_look(config, user_id) for user_id in known_users(config)]
    if as_json:
        print_json([vars(user) for user in found])
        return
    if not found:
        typer.echo(f"no users yet: {config.workspace_root}")
        return
    table = table_of("user", "host", "workspace")
    for user in found:
        where = user.workspace if user.has_workspace else "(none yet)"
        table.add_row(user.user_id, "running" if user.running else "stopped", where)
    print_table(table)


async def start_all(options: Options, *, detach: bool) -> int:
    """Start the hosts of all users. A failed start is reported, and the others go on.

    Without `detach`, stay, restart hosts that were killed, and stop all on a signal. Returns 1 if a
    user could not be started, else 0.
    """
    config = options.load_for_hosting()
    users = known_users(config)
    if not users:
        raise HostError(
            Code.FAILED_PRECONDITION,
            "there are no users to start",
            details=f"no workspace in {config.workspace_root} and no [users.<id>] section",
            resolution=replace(options, user_id="alice").command("start"),
        )
    failed = 0
    for user_id in users:
        failed += not await _start(config, options, user_id)
    if not detach:
        await _stay(config, options, users)
        await stop_all(options)
    return 1 if failed else 0


async def stop_all(options: Options) -> None:
    """Stop the hosts of all users. Idempotent."""
    for user_id in known_users(options.load()):
        typer.echo(f"{user_id}: ", nl=False)
        await stop(replace(options, user_id=user_id))


async def _start(config: Config, options: Options, user_id: str) -> bool:
    if await host_runs(config, user_id):
        typer.echo(f"{user_id}: runs already")
        return True
    typer.echo(f"{user_id}: ", nl=False)
    try:
        await asyncio.to_thread(start_detached, replace(options, user_id=user_id))
    except WireError as error:
        typer.echo(str(error), err=True)
        return False
    return True


async def _stay(config: Config, options: Options, users: Sequence[str]) -> None:
    """Wait for a signal, or until all hosts were stopped.

    A host that was killed leaves its control token behind; one that was stopped does not.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    runtimes = {user_id: Runtime.locate(config, user_id) for user_id in users}
    while not ended.is_set():
        running = {user_id for user_id in users if lock_holder(runtimes[user_id].lock)}
        killed = [each for each in users if each not in running and runtimes[each].token.exists()]
        for user_id in killed:
            typer.echo(f"{user_id}: the host was killed and is started again", err=True)
            await _start(config, options, user_id)
        if not running and not killed:
            return
        try:
            async with asyncio.timeout(_LOOK_S):
                await ended.wait()
        except TimeoutError:
            continue


def _look(config: Config, user_id: str) -> User:
    workspace = Workspace.locate(config, user_id)
    running = lock_holder(Runtime.locate(config, user_id).lock) is not None
    return User(user_id, str(workspace.path), workspace.path.is_dir(), running)
