"""`runner tools`: tools that others have made, added by a preset or as their README says."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer
from wire.errors import Code

from runner.cli.logins import tools
from runner.cli.options import Options, Yes
from runner.cli.output import confirm, neutralise, one_line
from runner.cli.setup.config import change_settings, settings_file
from runner.errors import ConfigError
from runner.tools.blocks import BLOCK_MAX_CHARS, read_block
from runner.tools.drafts import Draft, added, facts, preset, presets, remove, told
from runner.tools.drafts import add as add_to
from runner.workspace import logins


@tools.command("list")
def list_(
    context: typer.Context,
    available: Annotated[
        bool, typer.Option("--available", help="The presets that can be added.")
    ] = False,
) -> None:
    """List the servers whose tools the agent has, or the presets, with what each may reach."""
    options: Options = context.obj
    own = options.load().for_user(options.user_id)
    lines = [f"{name}: {fact}" for name, each in own.mcp.servers.items() for fact in facts(each)]
    lines += [f"{each.name}: {each.notes[0]}" for each in added(own)]
    if available:
        change = partial(change_settings, options, settings_file(options))
        lines = told(_mended(options, presets()), options.user_id, lambda key, _: key, change)
    none = options.mended("none was added; for what can be: runner tools list --available")
    _show(lines or [none])


@tools.command()
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A preset, or the path of one.")] = "",
    block: Annotated[
        typer.FileText | None,
        typer.Option("--json", metavar="FILE|-", help="The block that its README prints."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Say what a server would reach, see and be given, and add it after a yes."""
    if bool(name) == bool(block):
        raise typer.BadParameter("name a preset, or --json FILE; - reads standard input")
    options: Options = context.obj
    path = settings_file(options)
    change = partial(change_settings, options, path)
    found = read_block(block.read(BLOCK_MAX_CHARS)) if block else [preset(name)]
    drafts = _mended(options, found)
    answers: dict[str, str] = {}

    def ask(key: str, question: str) -> str:
        if key not in answers and not yes and sys.stdin.isatty():
            text = neutralise(f"{key}: {question}")
            with suppress(typer.Abort):
                answers[key] = typer.prompt(text, err=True, hide_input=not key.islower())
        if answers.get(key):
            return answers[key]
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"{key} is not known",
            details=question,
            resolution=f"run this in a terminal, without --yes; or first: export {key}=VALUE",
        )

    _show(told(drafts, options.user_id, ask, change))
    if not any(each.settings for each in drafts):
        return
    if not yes:
        given = ["--json", "-" if block.name == "<stdin>" else block.name] if block else [name]
        again = options.command("tools", "add", *given, "--yes")
        confirm(f"Write this to {path}?", what="add this", command=again)
    before = change({}, write=False).config
    after = add_to(drafts, options.user_id, ask, change).config
    done = "was there already, with these settings" if after == before else "added"
    names = logins.servers(after.for_user(options.user_id)).keys() & {d.name for d in drafts}
    then = "".join(f"; if it wants a login: runner tools login {each}" for each in sorted(names))
    typer.echo(options.mended(f"{done}; an agent that runs has it after: runner restart{then}"))


@tools.command("remove")
def remove_(
    context: typer.Context, name: Annotated[str, typer.Argument(help="As it was added.")]
) -> None:
    """Take away a server, or what a preset has set, with the keys that were stored for it."""
    options: Options = context.obj
    change = partial(change_settings, options, settings_file(options))
    others = remove(name, options.user_id, options.load_settings(), change)
    done = f"removed, but for what {' and '.join(others)} sets, too" if others else "removed"
    typer.echo(options.mended(f"{done}; an agent that runs has it until: runner restart"))


def _show(lines: Iterable[str]) -> None:
    """Print lines `NAME: FACT`, each name once."""
    shown = ""
    for line in lines:
        name, _, fact = line.partition(": ")
        typer.echo(f"  {one_line(fact)}" if name == shown else one_line(line))
        shown = name


def _mended(options: Options, drafts: Iterable[Draft]) -> list[Draft]:
    """The drafts, with the commands in their notes for the same user and settings."""
    return [each._replace(notes=tuple(map(options.mended, each.notes))) for each in drafts]
