"""The manual page of the command, made from its own help.

`python tools/man_page.py` rewrites `deploy/man/runner.1`, which a test compares and the wheel
brings as `share/man/man1/runner.1`. A change of a command or an option needs a new one.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from runner.cli.app import app

PAGE = Path(__file__).resolve().parent.parent / "deploy" / "man" / "runner.1"

_OF_THIS_PYTHON = re.compile(r"python:3\.\d+")
EXIT_CODES = {
    "0": "done, also where the reader of the output has gone away",
    "1": "an error, with the reason and the fix on standard error; also where you were asked and "
    "did not say yes",
    "2": "a command line that makes no sense",
    "3": "the status of an agent that does not run",
    "130": "ended by Ctrl-C",
}
ENVIRONMENT = {
    "OXYDRA_CONFIG": "the configuration file, where --config names none",
    "OXYDRA_SECTION__KEY": "a setting, such as OXYDRA_EMBEDDER__BACKEND; it wins over the file",
    "VISUAL, EDITOR": "the editor of config edit, memory save and memory edit",
    "NO_COLOR": "no colours",
}
_FILES = {
    "~/.config/oxydra/runner.toml": "the configuration, unless ./runner.toml is there",
    "~/.local/share/oxydra/workspaces/": "a workspace for each user",
}


def page() -> str:
    """The manual page as troff."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    context = typer.Context(root, info_name="runner")
    lines = [
        '.TH RUNNER 1 "" "Oxydra" "Oxydra"',
        ".SH NAME",
        f"runner, oxydra {_escaped('-')} {_text(_lowered(root.help))}",
        ".SH SYNOPSIS",
        ".B runner",
        r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        _text(
            "A self-hosted host for LLM agents: an agent that remembers, and a shell that cannot "
            "see what it knows. The same program is called oxydra too."
        ),
        ".SH OPTIONS OF EVERY COMMAND",
        _text("They may stand before or behind the command."),
        *_options(root.params, context),
        ".SH COMMANDS",
    ]
    for path, command, inner in commands(root, context):
        lines += [f".SS {_escaped(' '.join((*path, *arguments(command))))}", _text(command.help)]
        lines += _options(command.params, inner)
    for title, entries in (
        ("EXIT STATUS", EXIT_CODES),
        ("ENVIRONMENT", ENVIRONMENT),
        ("FILES", _FILES),
    ):
        lines.append(f".SH {title}")
        for name, meaning in entries.items():
            lines += [".TP", f".B {_escaped(name)}", _text(meaning)]
    lines += [".SH SEE ALSO", _text("The guide, in share/oxydra/guide of the installation.")]
    return "\n".join(lines) + "\n"


def commands(
    group: TyperGroup, context: Any, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every command that is shown: its words, itself, and its context."""
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        assert command is not None
        inner = typer.Context(command, info_name=name, parent=context)
        if isinstance(command, TyperGroup):
            yield from commands(command, inner, (*above, name))
        elif not command.hidden:
            yield (*above, name), command, inner


def arguments(command: Any) -> Iterator[str]:
    """Its arguments, those that may be left out in brackets."""
    for each in command.params:
        if each.param_type_name == "argument":
            name = each.metavar or each.name.upper()
            yield name if each.required else f"[{name}]"


def options(params: list[Any], context: Any) -> Iterator[tuple[str, str]]:
    """The options among `params`, each with what it means."""
    for each in params:
        if each.param_type_name == "option" and not each.hidden:
            name, meaning = each.get_help_record(context)
            yield name, _OF_THIS_PYTHON.sub("python:3", meaning)


def _options(params: list[Any], context: Any) -> Iterator[str]:
    for name, meaning in options(params, context):
        yield from (".TP", f".B {_escaped(name)}", _text(meaning))


def _lowered(text: str | None) -> str:
    return (text or "")[:1].lower() + (text or "")[1:].rstrip(".")


def _text(text: str | None) -> str:
    return _escaped(re.sub(r"\s+", " ", text or "").strip())


def _escaped(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    print(f"the manual page is in {PAGE}")
