"""Where global options may stand on a command line."""

import sys
from pathlib import Path

import pytest

from runner.cli.options import (
    FOR_THE_MACHINE,
    HOSTING,
    Options,
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
        (
            "--config c.toml start",
            "runner --tier container",
            "runner --config c.toml --tier container",
        ),
        (
            "--config c.toml start",
            "runner --config c.toml start; .venv/bin/runner start",
            "runner --config c.toml start; .venv/bin/runner start",
        ),
        ("memory save --user", "runner logs", "runner logs"),
    ],
)
def test_a_fix_is_for_the_user_who_was_named(line: str, resolution: str, told: str) -> None:
    assert for_the_same(resolution, line.split()) == told


def test_what_is_for_the_machine_or_starts_guests_is_a_command() -> None:
    assert command_names() > FOR_THE_MACHINE | HOSTING


def test_fixes_name_the_program_as_it_was_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "export it where the runner starts, then: runner restart; or `runner images build`"
    assert for_the_same(text, ()) == text
    monkeypatch.setattr(sys, "argv", ["/usr/bin/oxydra", "status"])
    assert for_the_same(text, ["--user", "bob", "status"]) == (
        "export it where the runner starts, then: oxydra --user bob restart; "
        "or `oxydra images build`"
    )
    place = tmp_path / ".venv" / "bin" / "runner"
    place.parent.mkdir(parents=True)
    place.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [".venv/bin/runner", "--insecure", "chat"])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert for_the_same("runner logs", ()) == ".venv/bin/runner logs"
    monkeypatch.setenv("PWD", "/")
    assert for_the_same("runner logs", ()) == f"{place} logs".removeprefix("/")
    monkeypatch.setenv("PWD", "/elsewhere")
    assert for_the_same("runner logs", ()) == f"{place} logs"
    monkeypatch.setenv("PATH", str(place.parent))
    assert for_the_same("runner logs", ()) == "runner logs"
    place = place.parent.rename(tmp_path / "a place") / "runner"
    monkeypatch.setattr(sys, "argv", [str(place)])
    for fix in (Options().mended("runner logs"), Options().command("logs")):
        assert fix == f"'{place}' logs"


def test_a_fix_in_a_chat_is_a_command_of_the_chat() -> None:
    bob = Options(user_id="bob")
    assert bob.mended_in_chat("runner sessions list --all") == "/sessions"
    assert bob.mended_in_chat("`runner usage` says it") == "/usage says it"
    assert bob.mended_in_chat("then: runner restart") == "then: runner --user bob restart"
