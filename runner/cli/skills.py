"""`runner skills`: what others have written down for kinds of tasks, and the agent may use."""

import json
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from wire.errors import Code

from runner.cli.agent import ask_agent
from runner.cli.options import Options, Yes
from runner.cli.output import confirm, one_line
from runner.errors import HostError
from runner.workspace.skills import Skill, Skills
from runner.workspace.workspace import Workspace

skills = typer.Typer()
UNPACK: Final = "mkdir {1} && cd {1} && (tar -xf {0} 2>/dev/null || python3 -I -m zipfile -e {0} .)"
Name = Annotated[str, typer.Argument(metavar="NAME", help="Which skill.")]
Source = Annotated[str, typer.Argument(metavar="DIR|GIT|ARCHIVE", help="What has the skill.")]
Inside = Annotated[str, typer.Argument(metavar="PATH", help="Where in it, if it has several.")]


def _skills(options: Options, *, adds: bool = False) -> Skills:
    return Skills(Workspace.locate(options.load(), options.user_id), adds=adds)


@skills.command("add")
def add(context: typer.Context, source: Source, path: Inside = "", yes: Yes = False) -> None:
    """Let the agent use a skill, or one that was changed. Shows it, and asks first."""
    options: Options = context.obj
    found = _skills(options, adds=True)
    with _unpacked(options, found.home, source) as at, found.draft(*at, path) as (skill, copy):
        _show(skill)
        if not yes:
            again = options.command("skills", "add", source, *filter(None, [path]), "--yes")
            confirm(f"Let the agent use {skill.name}?", what=f"add {skill.name}", command=again)
        found.accept(skill, copy)
    typer.echo(options.mended(f"added {skill.name}; an agent that runs gets it by: runner restart"))


@contextmanager
def _unpacked(options: Options, home: Path, source: str) -> Iterator[tuple[Path, Path]]:
    """Where `source` lies, unpacked by a command of the user's shell where it is no directory."""
    given, name = Path(source).expanduser().resolve(), f"skill-{secrets.token_hex(8)}"
    if given.is_dir():
        yield given, given
        return
    packed, there = home / "skills" / f".{name}", home / "tmp" / name
    command = f"git clone -q --depth 1 -- {shlex.quote(source)} ./{name}"
    try:
        if given.is_file():
            shutil.copyfile(given, packed)
            packed.chmod(0o644)
            command = UNPACK.format(f"/skills/{packed.name}", name)
        call = json.dumps({"command": command, "cwd": "/tmp", "timeout_s": 120})  # noqa: S108
        reply = ask_agent(options, lambda agent: agent.call_tool("shell_exec", call))
        if reply.is_error or json.loads(reply.data_json)["exit_code"]:
            brief, fix = "the shell cannot unpack it", "get it yourself: runner skills add DIR"
            raise HostError(Code.FAILED_PRECONDITION, brief, details=reply.text, resolution=fix)
        yield home, there
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(there, ignore_errors=True)


@skills.command("list")
def list_(context: typer.Context) -> None:
    """List the skills, and why the agent does not get one."""
    found = _skills(context.obj).listed()
    lines = [f"{each.name}: {each.wrong or each.head['description']}" for each in found]
    none = context.obj.mended("no skills yet; to add one: runner skills add DIR")
    typer.echo("\n".join(map(one_line, lines or [none])))


@skills.command("check")
def check(context: typer.Context) -> None:
    """List the skills; fails if there is one that the agent does not get."""
    list_(context)
    raise typer.Exit(any(each.wrong for each in _skills(context.obj).listed()))


@skills.command("show")
def show(context: typer.Context, name: Name) -> None:
    """Show what is in a skill."""
    _show(_named(_skills(context.obj), name))


@skills.command("remove")
def remove(context: typer.Context, name: Name) -> None:
    """Remove a skill."""
    found = _skills(context.obj)
    found.remove(_named(found, name).name)
    typer.echo(f"removed {name}")


def _named(found: Skills, name: str) -> Skill:
    for each in found.listed():
        if each.name == name:
            return each
    raise HostError(Code.NOT_FOUND, f"there is no skill {name!r}", resolution="runner skills list")


def _show(skill: Skill) -> None:
    told = {"name": skill.name, **skill.head, "wrong": skill.wrong, "digest": skill.digest}
    lines = [f"{key}: {text}" for key, text in told.items() if text]
    for line in (*lines, f"files: {', '.join(skill.files)}", *skill.remarks):
        typer.echo(one_line(line))
