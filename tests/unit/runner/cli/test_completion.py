"""What shells are told when a person presses the key."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wire.v1 import gateway_pb2

from runner.cli import app as app_module
from runner.cli.app import app
from tests.support.gateway.fake_gateway import FakeGateway
from tests.unit.runner.cli.conftest import RunCommand

LINES = {
    "runner conf": "config",
    "runner config ''": "show",
    "runner memory list --js": "--json",
    "runner logs --role ''": "embedder",
    "runner chat --user a": "alice",
    "runner users remove ''": "bob",
}


def test_bash_completes_commands_options_choices_and_users(tmp_path: Path) -> None:
    for user in ("alice", "bob"):
        (tmp_path / "ws" / user).mkdir(parents=True)
    program = tmp_path / "runner"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m runner.cli "$@"\n')
    program.chmod(0o755)
    keys = "\n".join(
        f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _runner_completion runner; "
        'echo "${COMPREPLY[@]}"'
        for line in LINES
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source <(runner completion bash)\n{keys}"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "OXYDRA_WORKSPACE_ROOT": str(tmp_path / "ws"),
        },
        check=True,
    )
    assert done.stderr == ""
    for (line, among), reply in zip(LINES.items(), done.stdout.splitlines(), strict=True):
        assert among in reply.split(), line


@pytest.mark.parametrize("name", ["runner", "oxydra"])
def test_fish_and_zsh_are_answered_under_both_names(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also where the program is called by its path."""
    variable = f"_{name.upper()}_COMPLETE"
    for shell in ("bash", "fish", "zsh"):
        assert variable in CliRunner().invoke(app, ["completion", shell]).output
    (tmp_path / name).touch()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / name)])
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"{name} conf")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    for shell in ("fish", "zsh"):
        monkeypatch.setenv(variable, f"complete_{shell}")
        with pytest.raises(SystemExit) as ended:
            app_module.main()
        assert ended.value.code == 0
        assert "config" in capsys.readouterr().out


def test_sessions_of_a_running_agent_are_completed_by_id_alone(
    memory: FakeGateway, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by titles, which others may have written and a shell would read."""
    for session_id in ("plans", "$(reboot)"):
        memory.sessions[session_id] = gateway_pb2.Session(session_id=session_id, title="`reboot`")
    monkeypatch.setenv("_RUNNER_COMPLETE", "complete_zsh")
    for words in ("runner chat --session ", "runner sessions show "):
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", words)
        done = run_command()
        assert (done.code, done.err) == (0, "")
        assert "plans" in done.out
        assert "reboot" not in done.out


def test_what_goes_wrong_completes_nothing_and_says_nothing(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runner.toml").write_text("log_level = 3")
    monkeypatch.setenv("_RUNNER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "runner chat --user a")
    monkeypatch.setenv("COMP_CWORD", "3")
    done = run_command()
    assert (done.code, done.out.strip(), done.err) == (0, "", "")
