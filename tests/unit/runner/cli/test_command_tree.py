"""The help of every command."""

import re
from collections.abc import Iterator

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from runner.cli.app import app
from runner.cli.command_tree import OF_EVERY_COMMAND, PANELS
from runner.cli.options import VALUED


def paths(group: TyperGroup, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and every group of commands."""
    context = Context(group)
    for word in group.list_commands(context):
        yield (*above, word)
        command = group.get_command(context, word)
        if isinstance(command, TyperGroup):
            yield from paths(command, (*above, word))


def tree() -> TyperGroup:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    return root


@pytest.mark.parametrize("path", list(paths(tree())), ids=" ".join)
def test_help_shows_the_options_of_every_command_and_no_type_of_a_flag(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERMINAL_WIDTH", "120")
    shown = CliRunner().invoke(app, [*path, "--help"]).output
    of_its_own, _, of_all = shown.partition(OF_EVERY_COMMAND)
    assert [option for option in (*VALUED, "--insecure") if option not in of_all] == []
    assert "--user" not in of_its_own
    assert "<bool>" not in shown
    assert not re.search(r"--version", shown)


@pytest.mark.parametrize(("words", "last"), [([], "│ completion "), (["memory"], "│ token ")])
def test_help_of_a_group_has_the_commands_before_the_options(words: list[str], last: str) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"]).output
    options = shown.index("─ Options ─")
    assert 0 < shown.index(last) < options
    assert shown.count("--config ") == 1


@pytest.mark.parametrize("line", ["--user ../bob users list", "users list --user ../bob"])
def test_an_option_of_every_command_means_the_same_before_and_behind_it(line: str) -> None:
    done = CliRunner().invoke(app, line.split())
    assert "bad user id: '../bob'" in str(done.exception)


def test_every_command_is_in_a_group_and_the_most_used_come_first() -> None:
    listed = tree().list_commands(Context(tree()))
    assert listed == [name for names in PANELS.values() for name in names]
    assert listed[0] == "chat"
