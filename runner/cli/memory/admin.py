"""`runner memory backup|restore|rekey|move|token`: keeping a memory, as an operator."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.progress import Progress as Bars
from wire.errors import Code
from wire.settings import EncryptionSettings
from wire.v1 import bootstrap_pb2

from runner.cli.memory.agent import running
from runner.cli.options import Options
from runner.cli.output import confirm
from runner.client import files
from runner.client.memory import make_backup
from runner.errors import ConfigError, HostError
from runner.host.logs import printable
from runner.host.maintenance import Progress, run_job
from runner.workspace.credentials import read_memory_key, read_memory_token
from runner.workspace.workspace import Workspace

_STEPS_MIN: Final = 1

KeyEnv = Annotated[
    str, typer.Option(metavar="NAME", help="The environment variable that holds that key.")
]
KeyFile = Annotated[
    Path | None, typer.Option(help="The file that holds that key.", show_default=False)
]


def backup(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="Where to put it; else it stays in the workspace.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
) -> None:
    """Copy the whole memory into one file, consistently, while the agent runs."""
    if file is not None and os.path.lexists(file) and not force:
        raise HostError(
            Code.ALREADY_EXISTS, f"{file} is there already", resolution="name another, or --force"
        )
    asyncio.run(_backup(context.obj, file))


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A backup.")],
    key_env: KeyEnv = "",
    key_file: KeyFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Put a backup in the place of the memory; what was there is kept beside it.

    The agent must be stopped. --key-env or --key-file: where the backup has another key
    than the one configured now.
    """
    options: Options = context.obj
    if not yes:
        confirm(
            f"Replace the memory of {options.user_id} with {printable(str(file))}?",
            what="replace this memory",
            command="the same command with --yes",
        )
    job = bootstrap_pb2.MaintenanceJob(restore=bootstrap_pb2.Restore())
    _work(options, job, _key(key_env, key_file), incoming=file)


def rekey(
    context: typer.Context,
    old_key_env: KeyEnv = "",
    old_key_file: KeyFile = None,
) -> None:
    """Encrypt, decrypt or re-encrypt the files of the memory.

    From the old key, given here (none: they are not encrypted), to the one that the
    configuration names now (none: they will not be). The agent must be stopped.
    """
    job = bootstrap_pb2.MaintenanceJob(rekey=bootstrap_pb2.Rekey())
    _work(context.obj, job, _key(old_key_env, old_key_file))


def move(
    context: typer.Context,
    to: Annotated[Literal["remote", "local"], typer.Option(help="Where it shall be.")],
) -> None:
    """Bring the whole memory to the server that memory.remote_url names, or back.

    Nothing is removed where it was. The agent must be stopped.
    """
    options: Options = context.obj
    if not options.load().for_user(options.user_id).memory.remote_url:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "there is no memory server to move to or from",
            details="memory.remote_url is empty",
            resolution="set memory.remote_url and memory.auth_token_env, then try again",
        )
    _work(options, bootstrap_pb2.MaintenanceJob(move=bootstrap_pb2.Move(to_remote=to == "remote")))
    if to == "remote":
        typer.echo("from now on the agent uses the server: runner start")
    else:
        typer.echo("to use the local file from now on, remove memory.remote_url: then runner start")


def token(context: typer.Context) -> None:
    """Give the running agent the token that memory.auth_token_env holds now.

    It takes effect without a restart, if the server accepts it.
    """
    asyncio.run(_token(context.obj))


async def _backup(options: Options, file: Path | None) -> None:
    workspace = Workspace.locate(options.load(), options.user_id)
    async with await running(options) as control:
        made = await make_backup(*await control.gateway())
    place = files.path_of(workspace, made.name)
    if file is not None:
        files.take_out(workspace, made.name, made.sha256, file)
        place = file
    typer.echo(
        printable(
            f"{place}: {made.notes:,} notes, {made.sessions:,} sessions, "
            f"{made.bytes / 1e6:.1f} MB, sha256 {made.sha256}"
        )
    )


async def _token(options: Options) -> None:
    memory = options.load().for_user(options.user_id).memory
    if not memory.remote_url or not memory.auth_token_env:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "the configuration names no token for a memory server",
            details="memory.remote_url or memory.auth_token_env is empty",
            resolution="set both, then: runner restart",
        )
    new = read_memory_token(memory, os.environ)
    async with await running(options) as control:
        await control.set_memory_token(new)
    typer.echo("the memory server accepts the new token; it is in use")


def _work(
    options: Options,
    job: bootstrap_pb2.MaintenanceJob,
    job_key: str = "",
    incoming: Path | None = None,
) -> None:
    config = options.load_for_hosting()
    with _bar() as progress:
        result = asyncio.run(
            run_job(config, options.user_id, job, progress, incoming=incoming, job_key=job_key)
        )
    for name, value in result.items():
        typer.echo(printable(f"{name.replace('_', ' '):24} {_shown(value)}"))


@contextmanager
def _bar() -> Iterator[Progress]:
    """A progress bar on a terminal; nothing else anywhere else."""
    if not sys.stderr.isatty():
        yield lambda _step, _done, _total: None
        return
    with Bars(console=Console(stderr=True)) as bars:
        task = bars.add_task("", total=None)

        def progress(step: str, done: int, total: int) -> None:
            bars.update(task, description=step, completed=done, total=max(total, _STEPS_MIN))

        yield progress


def _key(env: str, file: Path | None) -> str:
    if env and file:
        raise typer.BadParameter("name a variable or a file, not both")
    section = EncryptionSettings.model_construct(key_env=env, key_file=file)
    return read_memory_key(section, os.environ)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
