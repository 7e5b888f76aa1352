"""The commands as a tree: groups that load at their first use, and help that shows the options of
every command with each of them, and flags without a type."""

from collections.abc import Iterator
from copy import copy
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from runner.cli.options import options_first

OF_EVERY_COMMAND: Final = "Options of every command"
_OF_THE_ROOT_ALONE: Final = frozenset({"version"})


class Command(TyperCommand):
    """A command whose help shows the options of every command too."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _shown(super().get_params(ctx), self, ctx)


class Group(TyperGroup):
    """A group of commands. `source` ("module:name") is a `typer.Typer` with further ones, which is
    imported when they are first asked for."""

    source = ""

    def get_params(self, ctx: Any) -> list[Any]:
        return _shown(super().get_params(ctx), self, ctx)

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
    """The whole command line. The options of every command may stand anywhere in it."""

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
