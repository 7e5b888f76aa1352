"""`runner memory`: its commands, and those for a memory as a whole: statistics, export and import,
backups, keys, and moving."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from wire.disk import whole_file
from wire.errors import Code
from wire.settings import EncryptionSettings
from wire.v1 import bootstrap_pb2, gateway_pb2

from runner.cli.agent import ask_agent, ask_host
from runner.cli.files import refuse_existing
from runner.cli.memory import edit, notes
from runner.cli.memory.output import replica_age_s, time_left
from runner.cli.options import AsJson, Options, Yes
from runner.cli.output import as_json, confirm, discard, fact_table, print_json, print_table
from runner.client import backups
from runner.client.exports import Imported, read_export, write_export
from runner.client.gateway import GatewayClient
from runner.errors import ConfigError, HostError, file_errors
from runner.logs import printable
from runner.tiers.drivers import tier_of
from runner.workspace.credentials import read_memory_key, read_memory_token
from runner.workspace.workspace import Workspace

KeyEnv = Annotated[
    str, typer.Option(metavar="NAME", help="The environment variable that holds that key.")
]
KeyFile = Annotated[Path | None, typer.Option(help="The file that holds that key.")]


def stats(context: typer.Context, json: AsJson = False) -> None:
    """Show how much the agent remembers, where, and how much of it has vectors."""
    found = ask_agent(context.obj, lambda agent: agent.memory_statistics())
    if json:
        print_json(as_json(found))
    else:
        print_table(fact_table(_in_words(found)))


def reembed(context: typer.Context) -> None:
    """Make all vectors anew, in the background: for a model that changed under its name."""
    passages = ask_agent(context.obj, lambda agent: agent.reembed_memory())
    shown = context.obj.mended("`runner status` shows how far that is")
    typer.echo(f"{passages:,} passages get new vectors; {shown}")


def backup(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="Where to put it; else it stays in the workspace.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
) -> None:
    """Copy the whole memory into one file, consistently, while the agent runs.

    In a cluster, what stays in the workspace is on its volume `state`.
    """
    if file is not None:
        refuse_existing(file, force=force)
    options: Options = context.obj
    workspace = Workspace.locate(options.load(), options.user_id)

    async def made_and_taken(agent: GatewayClient) -> gateway_pb2.BackupMemoryReply:
        made = await agent.back_up_memory()
        if file is not None:
            await backups.take(agent, workspace, made, file)
        return made

    made = ask_agent(options, made_and_taken)
    place = file or workspace.backups / made.name
    typer.echo(
        printable(
            f"{place}: {made.notes:,} notes, {made.sessions:,} sessions, "
            f"{made.bytes / 1e6:.1f} MB, sha256 {made.sha256}"
        )
    )


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A backup.")],
    key_env: KeyEnv = "",
    key_file: KeyFile = None,
    yes: Yes = False,
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
        typer.echo(options.mended("from now on the agent uses the server: runner start"))
    else:
        local = "to use the local file from now on, remove memory.remote_url: then runner start"
        typer.echo(options.mended(local))


def token(context: typer.Context) -> None:
    """Give the running agent the token that memory.auth_token_env holds now.

    It takes effect without a restart, if the server accepts it.
    """
    options: Options = context.obj
    memory = options.load().for_user(options.user_id).memory
    if not memory.remote_url or not memory.auth_token_env:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "the configuration names no token for a memory server",
            details="memory.remote_url or memory.auth_token_env is empty",
            resolution="set both, then: runner restart",
        )
    new = read_memory_token(memory, os.environ)
    ask_host(options, lambda host: host.set_memory_token(new))
    typer.echo("the memory server accepts the new token; it is in use")


def _work(
    options: Options,
    job: bootstrap_pb2.MaintenanceJob,
    job_key: str = "",
    incoming: Path | None = None,
) -> None:
    from runner.host.maintenance import run_job

    config = options.load_for_hosting()
    asyncio.run(tier_of(config).require_active(config))
    bars = Bars(console=Console(stderr=True))
    with shown(bars) as task:

        def progress(step: str, done: int, total: int) -> None:
            bars.update(task, description=step, completed=done, total=max(total, 1))

        result = asyncio.run(
            run_job(config, options.user_id, job, progress, incoming=incoming, job_key=job_key)
        )
    for name, value in result.items():
        typer.echo(printable(f"{name.replace('_', ' '):24} {_shown(value)}"))


def _key(env: str, file: Path | None) -> str:
    if env and file:
        raise typer.BadParameter("name a variable or a file, not both")
    section = EncryptionSettings.model_construct(key_env=env, key_file=file)
    return read_memory_key(section, os.environ)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _in_words(found: gateway_pb2.MemoryStatisticsReply) -> dict[str, str]:
    where = f"{found.store or 'local'}, {found.state or 'ready'}"
    passages = f"{found.passages:,}"
    if found.passages and found.embedder != "disabled":
        share = f"{found.passages_embedded / found.passages:.0%} with a vector"
        passages += f", {share}{time_left(found)}"
    words = {
        "store": where,
        "notes": f"{found.notes:,}, and {found.note_versions:,} earlier versions",
        "sessions": f"{found.sessions:,}, of which {found.archived_sessions:,} are archived",
        "events": f"{found.conversation_events:,}",
        "passages": passages,
        "model": found.embedding_model or "not known yet",
        "embedder": found.embedder,
        "size": f"{found.database_bytes / 1e6:.1f} MB",
        "encrypted": "yes" if found.encrypted else "no",
        "schema": f"version {found.schema_version}",
    }
    if len(found.vectors) > 1:
        each = (f"{one.model or 'set aside'} {one.vectors:,}" for one in found.vectors)
        words["vectors"] = "of several models: " + ", ".join(each)
    if found.replica_synced_at:
        words["replica"] = f"as it was {replica_age_s(found):.0f} s ago"
    return words


_PIPE: Final = "-"
_PROBLEMS_SHOWN: Final = 50

File = Annotated[str, typer.Argument(metavar="FILE|-", help="The file; - is the pipe.")]


def export(
    context: typer.Context,
    file: File = _PIPE,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
) -> None:
    """Write everything the agent remembers of the user, as JSON Lines.

    Exit code 1: what is too long for a line was left out, and is named; the rest is there.
    """
    bars = Bars(
        TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), console=Console(stderr=True)
    )
    with new_file(file, force=force) as target, shown(bars) as task:

        def progress(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        exported = ask_agent(context.obj, lambda agent: write_export(agent, target.write, progress))
    counts = exported.counts
    if file != _PIPE:
        told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
        typer.echo(printable(f"{file}: {told or 'an empty memory'}"))
    for each in exported.left_out:
        typer.echo(printable(f"left out: {each}"), err=True)
    if exported.left_out:
        whole = context.obj.mended("runner memory backup copies the whole store instead")
        typer.echo(whole, err=True)
        raise typer.Exit(1)


def import_(
    context: typer.Context,
    file: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Add what an export holds. What is there already stays as it is.

    Exit code 1: some lines could not be imported; they are named, the others were.
    """
    report = Imported()
    try:
        _import(context.obj, file, report, dry_run=dry_run)
    except BaseException:
        if report != Imported():
            typer.echo("not finished; until then:", err=True)
            _show(report, dry_run=dry_run, as_json=json)
        raise
    _show(report, dry_run=dry_run, as_json=json)
    raise typer.Exit(1 if report.problems else 0)


def _import(options: Options, file: str, report: Imported, *, dry_run: bool) -> None:
    bars = Bars(
        TextColumn("importing"), BarColumn(), DownloadColumn(), console=Console(stderr=True)
    )
    with _old_file(file) as source, shown(bars) as task:
        bars.update(task, total=os.fstat(source.fileno()).st_size or None)

        def progress(done: int) -> None:
            bars.update(task, completed=done)

        ask_agent(
            options, lambda agent: read_export(agent, source, report, progress, dry_run=dry_run)
        )


@contextmanager
def shown(bars: Bars) -> Iterator[TaskID]:
    """Show a progress bar of one task if there is a terminal."""
    bars.disable = not sys.stderr.isatty()
    with bars:
        yield bars.add_task("", total=None)


@contextmanager
def new_file(name: str, *, force: bool) -> Iterator[BinaryIO]:
    """Yield a file of mode 0600 that gets its name once it is complete, and else is removed."""
    if name == _PIPE:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            discard(sys.stdout)
            raise HostError(
                Code.CANCELLED,
                "the export is incomplete",
                details="the reader of standard output is gone",
            ) from None
        return
    path = Path(name)
    refuse_existing(path, force=force)
    fix = f"df -h {path.absolute().parent}; ls -ld {path.absolute().parent}"
    with file_errors(f"cannot write {path}", fix), whole_file(path) as file:
        yield file


@contextmanager
def _old_file(name: str) -> Iterator[BinaryIO]:
    if name == _PIPE:
        yield sys.stdin.buffer
        return
    with file_errors(f"cannot read {name}", f"ls -l {name}"):
        file = Path(name).open("rb")  # noqa: SIM115 - closed below
    with file:
        yield file


def _show(report: Imported, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        problems = [{"line": line, "problem": problem} for line, problem in report.problems]
        done = {name: getattr(report, name) for name in ("created", "updated", "unchanged")}
        print_json({**done, "problems": problems, "dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    for name in ("created", "updated"):
        typer.echo(f"{getattr(report, name):>9,} {would}{name}")
    typer.echo(f"{report.unchanged:>9,} unchanged")
    typer.echo(f"{len(report.problems):>9,} problems")
    for line, problem in report.problems[:_PROBLEMS_SHOWN]:
        typer.echo(printable(f"line {line}: {problem}"), err=True)
    if len(report.problems) > _PROBLEMS_SHOWN:
        more = len(report.problems) - _PROBLEMS_SHOWN
        typer.echo(f"… and {more:,} more; --json lists them all", err=True)


memory = typer.Typer()

_PANELS: Final[Mapping[str, Mapping[str, Callable[..., None]]]] = {
    "Notes": {
        "search": notes.search,
        "list": notes.list_,
        "show": notes.show,
        "save": edit.save,
        "edit": edit.edit,
        "forget": edit.forget,
    },
    "Reminders": {"remind": edit.remind, "done": edit.done},
    "What was changed, and what should be": {
        "history": notes.history,
        "undo": notes.undo,
        "review": notes.review,
    },
    "The memory as a whole": {
        "stats": stats,
        "export": export,
        "import": import_,
        "backup": backup,
        "restore": restore,
        "reembed": reembed,
        "rekey": rekey,
        "move": move,
        "token": token,
    },
}
for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        memory.command(_name, rich_help_panel=_panel)(_command)
