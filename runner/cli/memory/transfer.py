"""`runner memory export|import`: a memory as a file, and back."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from wire.errors import Code

from runner.cli.agent import ask_agent
from runner.cli.options import AsJson, Options
from runner.cli.output import discard, print_json
from runner.client.exports import Exported, Imported, read_export, write_export
from runner.errors import HostError
from runner.logs import printable
from runner.workspace.directories import whole_file

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
    exported = _export(context.obj, file, force=force)
    counts = exported.counts
    if file != _PIPE:
        told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
        typer.echo(printable(f"{file}: {told or 'an empty memory'}"))
    for each in exported.left_out:
        typer.echo(printable(f"left out: {each}"), err=True)
    if exported.left_out:
        typer.echo("runner memory backup copies the whole store instead", err=True)
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


def _export(options: Options, file: str, *, force: bool) -> Exported:
    bars = Bars(
        TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), console=Console(stderr=True)
    )
    with new_file(file, force=force) as target, shown(bars) as task:

        def progress(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        return ask_agent(options, lambda agent: write_export(agent, target.write, progress))


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


def refuse_existing(file: Path, *, force: bool) -> None:
    if os.path.lexists(file) and not force:
        raise HostError(
            Code.ALREADY_EXISTS, f"{file} is there already", resolution="name another, or --force"
        )


@contextmanager
def new_file(name: str, *, force: bool) -> Iterator[BinaryIO]:
    """Yield a file of mode 0600 that gets its name only once it is complete, and is removed
    otherwise."""
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
    try:
        with whole_file(path) as file:
            yield file
    except OSError as error:
        raise HostError(
            Code.FAILED_PRECONDITION,
            f"cannot write {path}",
            details=error.strerror or str(error),
            resolution=f"df -h {path.absolute().parent}; ls -ld {path.absolute().parent}",
        ) from None


@contextmanager
def _old_file(name: str) -> Iterator[BinaryIO]:
    if name == _PIPE:
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise HostError(
            Code.NOT_FOUND, f"cannot read {name}", details=error.strerror or str(error)
        ) from None
    with file:
        yield file


def _show(report: Imported, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        problems = [{"line": line, "problem": problem} for line, problem in report.problems]
        done = {name: getattr(report, name) for name in ("created", "updated", "unchanged")}
        told = {**done, "problems": problems, "dry_run": dry_run}
        print_json(told)
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
