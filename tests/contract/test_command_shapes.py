"""What commands show of each thing is frozen: in tables and for programs."""

import json

import command_shapes


def test_what_commands_show_is_what_was_frozen() -> None:
    now = json.dumps(command_shapes.current(), indent=1) + "\n"
    assert now == command_shapes.SNAPSHOT.read_text(), (
        "after a change that was decided: .venv/bin/python tools/command_shapes.py"
    )
