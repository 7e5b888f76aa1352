"""`runner skills`: what others have written down for kinds of tasks, and the agent may use."""

import json
import secrets
import shlex
import shutil
from pathlib import Path
from typing import Annotated, Final

import typer
from wire.errors import Code

from runner.cli.agent import ask_agent
from runner.cli.options import AsJson, Options, Yes
from runner.cli.output import Shape, confirm, one_line
from runner.errors import HostError
from runner.workspace.mounts import MOUNTS, Role
from runner.workspace.skills import MEND, Skill, Skills, skill_at
from runner.workspace.workspace import Workspace

skills = typer.Typer()
UNPACK: Final = "mkdir {1} && cd {1} && (tar -xf {0} 2>/dev/null || python3 -I -m zipfile -e {0} .)"
_IN_SHELL: Final = tuple(f"{each.virtual}/" for each in MOUNTS[Role.SHELL])
SKILLS: Final = Shape[Skill](
    {"skill": lambda it: it.name, "": lambda it: one_line(it.wrong or it.head["description"])},
    "name wrong digest head files remarks",
)
NONE: Final = "no skills yet; to add one: runner skills add DIR, then: runner restart"
Name = Annotated[str, typer.Argument(metavar="NAME", help="Which skill.")]
Source = Annotated[str, typer.Argument(metavar="DIR|GIT|ARCHIVE", help="What has the skill.")]
Inside = Annotated[str, typer.Argument(metavar="PATH", help="Where in it, if it has several.")]


def _skills(options: Options, *, adds: bool = False) -> Skills:
    return Skills(Workspace.locate(options.load(), options.user_id), adds=adds)


@skills.command("add")
def add(context: typer.Context, source: Source, path: Inside = "", yes: Yes = False) -> None:
    """Let the agent use a skill, or one that was changed. Shows it, and asks first."""
    options: Options = context.obj
    own = _skills(options, adds=True)
    skill = _read(options, own.home, source, path)
    (before,) = own.listed(skill.name) or [Skill("")]
    if before.digest == skill.digest and not before.wrong:
        typer.echo(f"{skill.name} is there already, the same as this; nothing was changed")
        return
    _show(skill)
    if before.name:
        paths = sorted({path for path, _ in before.files.items() ^ skill.files.items()})
        other = ", ".join(each + " (gone)" * (each not in skill.files) for each in paths)
        typer.echo(one_line(f"replaces: {before.digest or before.wrong}; other files: {other}"))
    if not yes:
        again = options.command("skills", "add", source, *filter(None, [path]), "--yes")
        confirm(f"Let the agent use {skill.name}?", what=f"add {skill.name}", command=again)
    own.accept(skill)
    did = "replaced" if before.name else "added"
    typer.echo(options.mended(f"{did} {skill.name}; an agent that runs gets it by: runner restart"))


def _read(options: Options, home: Path, source: str, path: str) -> Skill:
    """The skill at `path` of `source`; what is no directory, a command of the shell unpacks."""
    given, name = Path(source).expanduser().resolve(), f"skill-{secrets.token_hex(8)}"
    if given.is_dir():
        return skill_at(given, given, source, path)
    elsewhere = ":" in source or source.startswith(_IN_SHELL)
    if given.suffix == ".md" or not (given.is_file() or elsewhere):
        brief = f"there is no directory, archive or repository {source}"
        fix = shlex.quote(str(given.parent)) if given.is_file() else "DIR"
        raise HostError(Code.NOT_FOUND, brief, resolution=f"runner skills add {fix}")
    packed, there = home / "skills" / f".{name}", home / "tmp" / name
    command = f"git clone -q --depth 1 -- {shlex.quote(source)} ./{name}"
    try:
        if given.is_file():
            shutil.copyfile(given, packed)
            packed.chmod(0o644)
            command = UNPACK.format(f"/skills/{packed.name}", name)
        call = json.dumps({"command": command, "cwd": "/tmp", "timeout_s": 120})  # noqa: S108
        reply = ask_agent(options, lambda agent: agent.call_tool("shell_exec", call))
        ended = json.loads(reply.data_json or "{}")
        if reply.is_error or ended["exit_code"]:
            brief, fix = "the shell cannot unpack it", "get it yourself: runner skills add DIR"
            if "://" in source:
                host = source.split("/")[2].split("@")[-1]
                fix = f"if commands may not reach it: runner egress allow {host}; or {fix}"
            why = ended.get("stderr", "").strip() or reply.text
            why = why.rpartition("\n")[2] if given.is_file() else why  # the rest is a traceback
            raise HostError(Code.FAILED_PRECONDITION, brief, details=why, resolution=fix)
        return skill_at(home, there, source, path)
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(there, ignore_errors=True)


@skills.command("list")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the skills, and why the agent does not get one."""
    _listed(context.obj, json)


@skills.command("check")
def check(context: typer.Context) -> None:
    """List the skills; fails if there is one that the agent does not get."""
    raise typer.Exit(_listed(context.obj))


@skills.command("show")
def show(context: typer.Context, name: Name) -> None:
    """Show what is in a skill."""
    _show(_named(_skills(context.obj), name))


@skills.command("remove")
def remove(context: typer.Context, name: Name) -> None:
    """Remove a skill."""
    own = _skills(context.obj)
    own.remove(_named(own, name).name)
    typer.echo(f"removed {name}")


def _listed(options: Options, json: bool = False) -> bool:
    """Show them. Returns whether there is one that the agent does not get."""
    listed = _skills(options).listed()
    SKILLS.show(listed, json=json, none=options.mended(NONE))
    if wrong := any(each.wrong for each in listed):
        typer.echo(options.mended(f"fix: {MEND}"), err=True)
    return wrong


def _named(own: Skills, name: str) -> Skill:
    for each in own.listed(name):
        return each
    raise HostError(Code.NOT_FOUND, f"there is no skill {name!r}", resolution="runner skills list")


def _show(skill: Skill) -> None:
    told = {"name": skill.name, **skill.head, "wrong": skill.wrong, "digest": skill.digest}
    lines = [f"{key}: {text}" for key, text in told.items() if text]
    for line in (*lines, f"files: {', '.join(skill.files)}", *skill.remarks):
        typer.echo(one_line(line))
