"""Where global options may stand on a command line."""

import sys

import pytest

from runner.cli.options import (
    FOR_THE_MACHINE,
    HOSTING,
    as_called,
    command_names,
    for_the_same,
    options_first,
)


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("chat --user alice", "--user alice chat"),
        (
            "--tier container start --detach --user=alice",
            "--tier container --user=alice start --detach",
        ),
        ("start --insecure --log-level debug", "--insecure --log-level debug start"),
        ("--user bob logs --role shell --tail 3", "--user bob logs --role shell --tail 3"),
        ("images build --role agent", "images build --role agent"),
        ("chat --session plans --user", "chat --session plans --user"),
        ("chat -- --user alice", "chat -- --user alice"),
        ("", ""),
    ],
)
def test_global_options_may_stand_behind_the_command(given: str, understood: str) -> None:
    assert options_first(given.split()) == understood.split()


@pytest.mark.parametrize(
    ("line", "resolution", "told"),
    [
        ("memory show x", "runner logs", "runner logs"),
        (
            "--user bob memory show x",
            "runner memory list --all",
            "runner --user bob memory list --all",
        ),
        (
            "--insecure --config=my.toml --log-level debug --user bob stop",
            "free some notes, then: runner restart; or `runner stop`",
            "free some notes, then: runner --config=my.toml --user bob restart; "
            "or `runner --config=my.toml --user bob stop`",
        ),
        (
            "--user bob start",
            "runner --user bob start --detach",
            "runner --user bob start --detach",
        ),
        ("--user bob start", "runner images build", "runner images build"),
        (
            "--config x.toml --tier micro_vm --user bob start",
            "runner images build; then: runner doctor, or `runner status`; runner upgrade",
            "runner --config x.toml images build; then: runner --config x.toml --tier micro_vm "
            "--user bob doctor, or `runner --config x.toml --user bob status`; runner upgrade",
        ),
        (
            "--insecure chat",
            "runner restart, or runner start",
            "runner restart, or runner --insecure start",
        ),
        ("memory save --user", "runner logs", "runner logs"),
    ],
)
def test_a_fix_is_for_the_user_who_was_named(line: str, resolution: str, told: str) -> None:
    assert for_the_same(resolution, line.split()) == told


def test_what_is_for_the_machine_or_starts_guests_is_a_command() -> None:
    assert command_names() > FOR_THE_MACHINE | HOSTING


def test_fixes_name_the_program_as_it_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "export it where the runner starts, then: runner restart; or `runner images build`"
    assert as_called(text) == text
    monkeypatch.setattr(sys, "argv", ["/usr/bin/oxydra", "status"])
    assert for_the_same(text, ["--user", "bob", "status"]) == (
        "export it where the runner starts, then: oxydra --user bob restart; "
        "or `oxydra images build`"
    )
