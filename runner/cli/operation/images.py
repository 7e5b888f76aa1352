"""`runner images`: build, save, load, list and prune the images of the container tiers."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import docker
import typer
from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from runner.cli.options import Options, Yes
from runner.cli.output import confirm, print_table, table_of
from runner.images.archive import list_images, load_images, save_images
from runner.images.bootstrap import bootstrap_base
from runner.images.build import Progress, Recipe, build_images
from runner.images.naming import OFFICIAL_BASE, USUAL_ROLES, ImageRole
from runner.images.pruning import old_images, remove_images
from runner.images.wheels import Pip, collect, own_wheel
from runner.tiers.container.engine import Engine

images = typer.Typer()

_PATIENCE_S: Final = 600
"""Writing and removing layers takes long on a slow disk."""

Roles = Annotated[
    list[ImageRole] | None,
    typer.Option("--role", help="Only this image; may be given several times."),
]

AnyModel = Annotated[
    bool,
    typer.Option(
        "--with-sentence-transformers",
        help="Any embedding model in the embedder image, by PyTorch; not only the default one.",
    ),
]


@images.command()
def build(
    context: typer.Context,
    role: Roles = None,
    base_image: Annotated[str, typer.Option(help="What the images build on.")] = OFFICIAL_BASE,
    bootstrap: Annotated[
        bool,
        typer.Option(
            "--bootstrap-base",
            help="Build on a base made from Debian packages, where no registry can be "
            "reached. Needs root, debootstrap and debian-archive-keyring.",
        ),
    ] = False,
    wheelhouse: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Install from the wheels in this directory and make none.",
        ),
    ] = None,
    with_build_tools: Annotated[
        bool, typer.Option("--with-build-tools", help="Compilers in the shell image.")
    ] = False,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="PACKAGE",
            help="A package of Debian's in the shell image; may be given several times.",
        ),
    ] = None,
    any_model: AnyModel = False,
) -> None:
    """Build the images that guests run from."""
    if bootstrap and base_image != OFFICIAL_BASE:
        raise typer.BadParameter("--bootstrap-base makes the base that --base-image would name")
    with _engine(context) as (engine, prefix), _Shown() as shown:
        if bootstrap:
            base_image = bootstrap_base(
                engine, lambda line: shown.step("base", line), own_wheels=wheelhouse is None
            )
            shown.done("base")
        recipe = Recipe(
            *(prefix, base_image, role or USUAL_ROLES, wheelhouse, with_build_tools),
            *(packages or (), any_model),
        )
        build_images(engine, recipe, shown)
    show(context)


@images.command()
def wheels(
    directory: Annotated[Path, typer.Argument(file_okay=False)],
    role: Roles = None,
    any_model: AnyModel = False,
) -> None:
    """Collect what `build --wheelhouse` needs, for machines that reach no package index."""
    with tempfile.TemporaryDirectory(prefix="oxydra-wheels-") as scratch, _Shown() as shown:
        shown.step("wheels", f"collecting into {directory}")
        pip = Pip(Path(scratch))
        own = own_wheel(pip, Path(scratch))
        found = collect(pip, role or USUAL_ROLES, own, directory, any_model=any_model)
        shown.done("wheels")
    typer.echo(f"{directory}: {len(found)} wheels")


@images.command()
def save(context: typer.Context, file: Path, role: Roles = None) -> None:
    """Write the images into a file, to load on another host."""
    if not os.access(file.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"cannot write into {file.absolute().parent}")
    with _engine(context) as (engine, prefix):
        save_images(engine, prefix, role or USUAL_ROLES, file)
    typer.echo(f"{file}: {_megabytes(file.stat().st_size)}")


@images.command()
def load(context: typer.Context, file: Annotated[Path, typer.Argument(exists=True)]) -> None:
    """Load the images of a file that `save` wrote."""
    with _engine(context) as (engine, _):
        for name in load_images(engine, file):
            typer.echo(name)


@images.command("list")
def show(context: typer.Context) -> None:
    """Show the images of this version and their sizes."""
    table = table_of("role", "image", "size", "id")
    table.columns[2].justify = "right"
    with _engine(context) as (engine, prefix):
        for each in list_images(engine, prefix):
            if each.image_id is None:
                none = context.obj.mended("(none; runner images build)")
                table.add_row(each.role, each.name, "-", none)
            else:
                short = each.image_id.removeprefix("sha256:")[:12]
                table.add_row(each.role, each.name, _megabytes(each.size), short)
    print_table(table)


@images.command()
def prune(context: typer.Context, yes: Yes = False) -> None:
    """Remove the images of other versions. Asks first."""
    options: Options = context.obj
    with _engine(context) as (engine, prefix):
        found = old_images(engine, prefix)
        unused = [each for each in found if not each.containers]
        for each in found:
            if each.containers:
                typer.echo(f"{each.name} stays: {', '.join(each.containers)} was made from it")
        if not unused:
            typer.echo(f"no images of {prefix} to remove")
            return
        rows = [(each.name, _megabytes(each.size)) for each in unused]
        print_table(table_of("image", "size", rows=rows))
        if not yes:
            confirm(
                f"Remove {_counted(len(unused))}? `runner images build` of that version makes them "
                "again",
                what="remove images",
                command=options.command("images", "prune", "--yes"),
            )
        remove_images(engine, unused)
    typer.echo(f"{_counted(len(unused))} removed")


def _counted(images: int) -> str:
    return "1 image" if images == 1 else f"{images} images"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


@contextmanager
def _engine(context: typer.Context) -> Iterator[tuple[docker.APIClient, str]]:
    """The configured engine, and the prefix of image names."""
    section = context.obj.load().container
    with Engine(section.engine).client() as client:
        client.timeout = _PATIENCE_S
        yield client, section.images


class _Shown(Progress):
    """One line for each image on a terminal; elsewhere one line for each step."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars = Bars(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.fields[role]:<9}{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "_Shown":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def step(self, role: str, line: str) -> None:
        line = line[:100]
        if not self._console.is_terminal:
            self._console.print(f"{role}: {line}", markup=False)
        elif role in self._tasks:
            self._bars.update(self._tasks[role], description=line)
        else:
            self._tasks[role] = self._bars.add_task(line, total=1, role=role)

    def done(self, role: str) -> None:
        if role in self._tasks:
            self._bars.update(self._tasks[role], completed=1, description="done")
