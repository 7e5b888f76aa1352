"""`runner memory`: its commands, and under which heading its help lists them."""

from collections.abc import Callable, Mapping
from typing import Final

import typer

from runner.cli.memory import admin, edit, history, notes, transfer

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
    "What was changed, and what should be": {
        "history": history.history,
        "undo": history.undo,
        "review": notes.review,
    },
    "The memory as a whole": {
        "stats": admin.stats,
        "export": transfer.export,
        "import": transfer.import_,
        "backup": admin.backup,
        "restore": admin.restore,
        "reembed": admin.reembed,
        "rekey": admin.rekey,
        "move": admin.move,
        "token": admin.token,
    },
}
for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        memory.command(_name, rich_help_panel=_panel)(_command)
