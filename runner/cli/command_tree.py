"""The commands as a tree: groups that load at their first use, help that shows the options of every
command with each of them, and flags without a type; and completion of all this in shells."""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from importlib import import_module
from typing import Any, Final, Literal

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from wire.errors import WireError
from wire.limits import ID_PATTERN

from runner.cli.options import Options, called, options_first

PANELS: Final = {
    "Talk": (
        *("chat", "ask", "sessions", "turns", "memory", "projects", "skills", "schedules"),
        *("approvals", "usage", "notices"),
    ),
    "Set up and run": (
        *("init", "start", "stop", "restart", "status", "serve", "access", "users", "config"),
        *("credentials", "tools"),
    ),
    "Look after it": ("doctor", "logs", "audit", "egress", "upgrade", "images"),
    "For other programs": ("mcp", "acp", "completion"),
}
"""The commands, those that are used most first."""

OF_EVERY_COMMAND: Final = "Options of every command"
_OPTIONS: Final = "Options"
_OF_THE_ROOT_ALONE: Final = frozenset({"version"})


class Command(TyperCommand):
    """A command whose help shows the options of every command too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            vars(error).update(ctx=ctx)  # the parser leaves it out where a value is missing
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return _shown(super().get_params(ctx), self, ctx)


class Group(TyperGroup):
    """A group of commands. `source` ("module:name") is a `typer.Typer` with further ones, which is
    imported when they are first asked for."""

    source = ""
    _only_commands = False

    def get_params(self, ctx: Any) -> list[Any]:
        return [] if self._only_commands else _shown(super().get_params(ctx), self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the commands first, and the options after them."""
        panels: dict[str, list[TyperOption]] = {}
        for each in self.get_params(ctx):
            if not each.hidden:
                panels.setdefault(each.rich_help_panel or _OPTIONS, []).append(each)
        self._only_commands = True
        super().format_help(ctx, formatter)
        self._only_commands = False
        from typer import rich_utils

        console = rich_utils._get_rich_console()
        for name, params in panels.items():
            rich_utils._print_options_panel(
                name=name, params=params, ctx=ctx, markup_mode="rich", console=console
            )

    def list_commands(self, ctx: Any) -> list[str]:
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if self.source and not self.commands:
            module, _, name = self.source.partition(":")
            found: typer.Typer = getattr(import_module(module), name)
            self.commands.update(typer.main.get_group(with_full_help(found)).commands)


class Root(Group):
    """The whole command line. The options of every command may stand anywhere in it, and its help
    has the commands in the order of `PANELS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        places = {name: place for place, name in enumerate(itertools.chain(*PANELS.values()))}
        return sorted(super().list_commands(ctx), key=lambda name: places.get(name, len(places)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        for panel, names in PANELS.items():
            if cmd_name in names:
                command.rich_help_panel = panel
        return command

    def make_context(
        self, info_name: Any, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        return super().make_context(info_name, options_first(args), parent, **extra)


def group(source: str, text: str) -> typer.Typer:
    """The commands of the `typer.Typer` at `source`; `text` is the help of the group."""
    lazy = type("Lazy", (Group,), {"source": source})
    return typer.Typer(cls=lazy, help=text, no_args_is_help=True)


def with_full_help(app: typer.Typer) -> typer.Typer:
    """`app`, whose commands show the options of every command in their help."""
    for each in app.registered_commands:
        each.cls = Command
    return app


def _shown(params: list[Any], command: object, ctx: Any) -> list[Any]:
    root = ctx.find_root().command
    if command is not root:
        own = {option for each in params for option in each.opts}
        params = [*params, *(each for each in _everywhere(root) if own.isdisjoint(each.opts))]
    for each in params:
        if isinstance(each, TyperOption) and each.is_bool_flag:
            each.metavar = ""
    return params


def _everywhere(root: TyperGroup) -> Iterator[TyperOption]:
    """The root's options as its commands show them; `Root` has taken them out of the line when a
    command reads its own."""
    for each in root.params:
        if isinstance(each, TyperOption) and each.name not in _OF_THE_ROOT_ALONE:
            option = copy(each)
            option.expose_value = False
            option.rich_help_panel = OF_EVERY_COMMAND
            yield option


Shell = Literal["bash", "zsh", "fish"]

_PROGRAMS: Final = ("runner", "oxydra")
_SESSIONS: Final = 50
_WITHIN_S: Final = 1.0
"""So long an agent has to name its sessions: a person waits at the key."""


def script(shell: Shell) -> str:
    """What a shell reads to complete the words of this program, under both of its names."""
    from typer._completion_shared import get_completion_script

    return "\n".join(
        get_completion_script(prog_name=name, complete_var=_variable(name), shell=shell)
        for name in _PROGRAMS
    )


def to_complete(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a shell has called, which sets a variable."""
    return bool(environ.get(_variable(called())))


def complete(app: typer.Typer) -> int:
    """Answer a shell; returns the exit code that it expects. What goes wrong completes nothing."""
    from typer._completion_classes import completion_init

    completion_init()
    try:
        app(prog_name=called(), complete_var=_variable(called()), standalone_mode=False)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except Exception:
        return 1
    return 0


def user_names(context: typer.Context, incomplete: str) -> list[str]:
    from runner.config.users import known_users

    with suppress(WireError, OSError):
        return [name for name in known_users(_options(context).load()) if _fits(name, incomplete)]
    return []


def session_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The latest sessions of a running agent: ids alone, as no shell should read others' titles."""
    import asyncio

    from runner.cli.agent import connect

    async def listed() -> Iterable[str]:
        async with asyncio.timeout(_WITHIN_S), await connect(_options(context)) as agent:
            return [session.session_id for session in await agent.list_sessions(_SESSIONS)]

    with suppress(WireError, OSError, TimeoutError):
        return [each for each in asyncio.run(listed()) if _fits(each, incomplete)]
    return []


def _variable(name: str) -> str:
    return f"_{name.upper()}_COMPLETE"


def _fits(name: str, incomplete: str) -> bool:
    return name.startswith(incomplete) and re.fullmatch(ID_PATTERN, name) is not None


def _options(context: typer.Context) -> Options:
    """The options of every command as far as they are typed."""
    typed = context.find_root().params
    return Options(
        config_file=typed.get("config"),
        user_id=typed.get("user") or Options.user_id,
        tier=typed.get("tier"),
        insecure=bool(typed.get("insecure")),
        workspace_root=typed.get("workspace_root"),
        connect=typed.get("connect"),
    )
