"""`runner projects`, and `--with`: directories of the operator's that the agent sees."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from wire.errors import Code, WireError
from wire.settings import ProjectSettings
from wire.v1 import control_pb2

from runner.cli.agent import ask_host, connect_host
from runner.cli.options import AsJson, Hide, Lift, Options
from runner.cli.output import Shape, one_line
from runner.config.models import Config
from runner.host.control import ControlClient
from runner.host.projects import wanted

projects = typer.Typer()

_AGAIN_S: Final = 1.0
_READ_ONLY: Final = ":ro"


Folders = tuple[ProjectSettings, ...]
"""What a command line names, in its order."""


def folders_of(
    directories: Iterable[str] | None,
    hide: Sequence[str] | None = None,
    lift: Sequence[str] | None = None,
) -> Folders:
    """A relative directory is below the working directory; of a link, where it leads.

    Raises `typer.BadParameter`.
    """
    named = [*(directories or ())]
    if (hide or lift) and not named:
        raise typer.BadParameter("--hide and --lift go with --with DIR")
    return tuple(_folder(each, hide or (), lift or ()) for each in named)


def named(folders: Folders, config: Config, user_id: str) -> dict[str, ProjectSettings]:
    """As a host that starts has them open, besides the projects of its settings."""
    known = dict(config.for_user(user_id).workspace.projects)
    found: dict[str, ProjectSettings] = {}
    for each in folders:
        name, settings = wanted({**each.model_dump(), "name": ""}, known, found)
        known[name] = found[name] = settings
    return found


def _folder(given: str, hide: Sequence[str], lift: Sequence[str]) -> ProjectSettings:
    read_only = given.endswith(_READ_ONLY)
    path = Path(given.removesuffix(_READ_ONLY)).expanduser().resolve()
    try:
        return ProjectSettings(path=path, write=not read_only, hide=tuple(hide), lift=tuple(lift))
    except ValueError as error:
        raise typer.BadParameter("--hide and --lift take paths below the directory") from error


async def open_all(
    folders: Folders,
    config: Config,
    user_id: str,
    told: Callable[[str], object],
    *,
    wait: bool,
) -> list[control_pb2.OpenedProject]:
    """Open them in the host that runs. With `wait`, a turn that runs is waited for; `told` shows
    that, and what there is to know. Raises `WireError`."""
    opened = []
    for folder in folders:
        waits = False
        while True:
            async with await connect_host(config, user_id, resolution="run this again") as control:
                try:
                    reply = await _open(control, folder)
                    break
                except WireError as error:
                    if error.code is not Code.UNAVAILABLE or not wait:
                        raise
                    if not waits:
                        told(f"{error.brief}: waiting for its end; Ctrl-C gives up")
                    waits = True
            await asyncio.sleep(_AGAIN_S)
        told(line_of(reply.project))
        for notice in reply.notices:
            told(one_line(notice))
        opened.append(reply.project)
    return opened


async def opened_first(
    folders: Folders,
    config: Config | None,
    user_id: str,
    told: Callable[[str], object],
    *,
    wait: bool = False,
) -> str:
    """Open them, and return the name of the first, in which a conversation works; "" where there is
    none. Without `config` the host is somebody else's. Raises `WireError`."""
    if not folders:
        return ""
    if config is None:
        raise not_ours()
    return (await open_all(folders, config, user_id, told, wait=wait))[0].name


def not_ours() -> WireError:
    """The error where the agent is that of another account or machine."""
    return WireError(
        Code.PERMISSION_DENIED,
        "directories can be opened only to an agent of this account",
        details="--connect leads to the agent of another account or machine",
        resolution="leave out --with and --with-folder, or ask the person who runs it",
    )


async def _open(
    control: ControlClient, folder: ProjectSettings, name: str = ""
) -> control_pb2.OpenProjectReply:
    return await control.open_project(
        str(folder.path), name=name, write=folder.write, hide=folder.hide, lift=folder.lift
    )


def line_of(project: control_pb2.OpenedProject) -> str:
    parts = [f"/projects/{project.name} is {one_line(project.path)}", how(project)]
    return " · ".join(filter(None, (*parts, one_line(project.reason))))


def how(project: control_pb2.OpenedProject) -> str:
    """What the agent may do in a project."""
    if not project.writable:
        return "read-only"
    but = f", but for {', '.join(map(one_line, project.walls))}" if project.walls else ""
    return f"read-write{but}"


PROJECTS: Final = Shape[control_pb2.OpenedProject](
    {
        "project": lambda each: f"/projects/{each.name}",
        "directory": lambda each: one_line(each.path),
        "access": how,
        "hidden": lambda each: ", ".join(map(one_line, each.hidden)),
        "from": lambda each: "settings" if each.configured else "opened",
        "": lambda each: one_line(each.reason),
    },
    "name path writable reason walls hidden configured",
)
NONE: Final = "no directory of yours is open; to open one: runner projects open DIR"


@projects.command("list")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the directories of yours that the agent sees."""
    options: Options = context.obj
    status = ask_host(options, lambda control: control.status())
    PROJECTS.show(status.projects, json=json, none=options.mended(NONE))


@projects.command("open")
def open_(
    context: typer.Context,
    directory: Annotated[str, typer.Argument(metavar="DIR[:ro]", help="Which directory.")],
    name: Annotated[str, typer.Option(help="Its name below /projects.")] = "",
    hide: Hide = None,
    lift: Lift = None,
) -> None:
    """Let the agent that runs work in a directory of yours, until it ends."""
    (folder,) = folders_of([directory], hide, lift)
    reply = ask_host(context.obj, lambda control: _open(control, folder, name))
    for line in (line_of(reply.project), *reply.notices):
        typer.echo(one_line(line))


@projects.command("close")
def close(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name below /projects.")],
) -> None:
    """Take a directory away from the agent that runs."""
    plain = name.removeprefix("/projects/")
    ask_host(context.obj, lambda control: control.close_project(plain))
    typer.echo(f"/projects/{plain} is closed")
