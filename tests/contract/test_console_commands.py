"""The console knows each command of the program, so that none is a word in its hints."""

import re
from pathlib import Path

from runner.cli.options import FOR_THE_MACHINE, command_names

SOURCE = (Path(__file__).parents[2] / "web/src/components/notices.js").read_text()


def test_the_console_knows_every_command() -> None:
    table = SOURCE.partition("const COMMANDS = {")[2].partition("};")[0]
    assert set(re.findall(r"(\w+):", table)) == command_names()


def test_the_console_knows_which_commands_are_about_no_single_user() -> None:
    found = re.search(r"const MACHINE = /\^\((.*)\)\$/", SOURCE)
    assert found is not None
    assert set(found[1].split("|")) >= FOR_THE_MACHINE & command_names()
