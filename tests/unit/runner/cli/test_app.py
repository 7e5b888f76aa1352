"""The command line itself: exit codes, refusals, what is printed where."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from wire.installation import adding

from runner.cli import app as app_module
from runner.cli.options import UNCONFINED, for_the_same
from runner.tiers.process import packages


@dataclass
class Done:
    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OXYDRA_WORKSPACE_ROOT", str(tmp_path / "ws"))
    monkeypatch.setenv("OXYDRA_RUNTIME_DIR", f"/tmp/oxydra-test-none-{tmp_path.name}")

    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["runner", *words])
        with pytest.raises(SystemExit) as raised:
            app_module.main()
        captured = capsys.readouterr()
        code = raised.value.code
        assert isinstance(code, int)
        assert "Traceback" not in captured.err
        return Done(code, captured.out, captured.err)

    yield run
    assert not (tmp_path / "ws").exists()


def three_lines(text: str) -> bool:
    what, why, fix = text.splitlines()
    return not what.startswith(" ") and why.startswith("  why: ") and fix.startswith("  fix: ")


def test_version(command: Command) -> None:
    done = command("--version")
    assert (done.code, done.out, done.err) == (0, "oxydra 0.1.0\n", "")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["start", "--help"], ["logs", "-h"]])
def test_help_hides_what_is_not_for_people(command: Command, words: list[str]) -> None:
    done = command(*words)
    assert done.code == 0
    assert "notify" not in done.out


@pytest.mark.parametrize("words", [["start"], ["start", "--detach"], ["chat"]])
@pytest.mark.parametrize("tier", ["container", "micro_vm"])
def test_a_tier_that_is_not_there_is_refused_and_nothing_weaker_taken(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], tier: str
) -> None:
    monkeypatch.setenv("OXYDRA_CONTAINER__ENGINE", "unix:///nowhere/docker.sock")
    options = [] if tier == "container" else ["--tier", tier]
    done = command(*options, *words)
    assert done.code == 1
    assert three_lines("\n".join(done.err.splitlines()[-3:]))
    assert "no container engine answers at /nowhere/docker.sock" in done.err
    assert done.out == ""


@pytest.mark.parametrize("words", [["start"], ["chat"]])
@pytest.mark.parametrize("how", ["option", "variable", "file"])
def test_the_process_tier_must_be_asked_for_by_name(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], how: str
) -> None:
    if how == "variable":
        monkeypatch.setenv("OXYDRA_TIER", "process")
    if how == "file":
        Path("runner.toml").write_text('tier = "process"')
    done = command(*(["--tier", "process"] if how == "option" else []), *words)
    assert done.code == 1
    assert three_lines(done.err)
    assert "no container is around the agent" in done.err
    assert "runner --insecure start" in done.err


@pytest.mark.parametrize("words", [[], ["start"], ["start", "--detach"], ["chat"]])
def test_the_process_tier_without_the_agents_packages_makes_nothing(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda _: None)
    done = command("--insecure", *words)
    assert done.code == 1
    assert three_lines("\n".join(done.err.splitlines()[-3:]))
    assert done.err.endswith(f"fix: {adding('guest')}\n")


def test_the_fix_repeats_the_options_that_were_given(command: Command) -> None:
    done = command("--user", "bob", "--log-level", "debug", "--tier", "process", "start")
    assert "fix: runner --insecure --user bob --log-level debug start" in done.err


@pytest.mark.parametrize(
    ("words", "what", "of"),
    [
        (["--insecure", "--tier", "container"], "--insecure asks for the process tier", ""),
        (["--tier", "vm"], "'vm'", ""),
        (["--log-level", "loud"], "'loud'", ""),
        (["sart"], "Did you mean", ""),
        (["--nope"], "No such option", ""),
        (["logs", "--tail", "-1"], "'--tail'", "logs "),
        (["logs", "--tail"], "'--tail' requires an argument", "logs "),
        (["ask", "what?", "--attach"], "'--attach' requires an argument", "ask "),
        (["memory", "save", "x", "--tag"], "'--tag' requires an argument", "memory save "),
        (["status", "--json=1"], "'--json' does not take a value", "status "),
        (["logs", "--role", "shelf"], "'--role'", "logs "),
        (["init", "--provider", "ollma"], "'--provider': 'ollma' is not one of", "init "),
        (["start", "extra"], "extra", "start "),
        (["--user"], "--user", ""),
        (["memory", "edit", "note-1", "--nope"], "No such option", "memory edit "),
        (["memory", "save", "\udc9b"], "this is not UTF-8 text: b'\\x9b'", ""),
    ],
)
def test_a_command_line_that_makes_no_sense_is_2(
    command: Command, words: list[str], what: str, of: str
) -> None:
    done = command(*words)
    assert done.code == 2
    assert what in done.err
    assert done.err.endswith(f"  fix: runner {of}--help\n")


@pytest.mark.parametrize("group", [[], ["memory"], ["sessions"], ["images"], ["users"], ["config"]])
def test_a_bare_group_shows_its_help(command: Command, group: list[str]) -> None:
    done = command(*group)
    assert (done.code, done.err) == (2, "")
    assert done.out.rstrip() == command(*group, "--help").out.rstrip()
    assert any(heading in done.out for heading in ("Commands", "Notes", "Talk"))


def test_options_without_a_command_start(command: Command) -> None:
    done = command("--tier", "process", "--user", "bob")
    assert "fix: runner --insecure --user bob start" in done.err


@pytest.mark.parametrize("words", [["status"], ["stop"], ["logs"], ["restart"], ["start"]])
def test_a_bad_user_id_is_one_error_everywhere(command: Command, words: list[str]) -> None:
    done = command("--insecure", "--user", "../bob", *words)
    assert done.code == 1
    assert three_lines(done.err)
    assert "bad user id: '../bob'" in done.err


def test_terminal_tricks_in_errors_are_shown_and_not_sent(command: Command) -> None:
    done = command("--user", "\x1b[31mred", "status")
    assert "\x1b" not in done.err


def test_a_closed_standard_input_is_an_empty_one(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert command("memory", "save", "-").err.startswith("there is no text: nothing was changed")


def test_status_of_nothing_is_3(command: Command, tmp_path: Path) -> None:
    done = command("--user", "bob", "status")
    assert done.code == 3
    assert "not running: user bob" in done.out
    done = command("status", "--json")
    assert done.code == 3
    assert json.loads(done.out) == {
        "running": False,
        "user": "default",
        "workspace": str(tmp_path / "ws" / "default"),
        "next_due": "",
        "started_by": "",
        "problem": "",
    }


def test_stopping_nothing_is_fine(command: Command) -> None:
    done = command("stop")
    assert (done.code, done.out, done.err) == (0, "not running\n", "")


def test_restarting_nothing_is_an_error_with_the_fix(command: Command) -> None:
    done = command("restart")
    assert done.code == 1
    assert "no runner runs for user default" in done.err
    assert "fix: runner start --detach" in done.err


@pytest.mark.parametrize("role", ["agent", "embedder", "host"])
def test_logs_of_nothing_say_where_they_would_be(command: Command, role: str) -> None:
    done = command("logs", "--role", role)
    assert done.code == 0
    assert done.out == ""
    assert "nothing logged yet: /" in done.err


def test_a_missing_credential_is_named_before_anything_is_made(command: Command) -> None:
    Path("runner.toml").write_text(
        '[agent]\nprovider = "openai"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY_HERE"'
    )
    done = command("--insecure", "start")
    assert done.code == 1
    warning, rest = done.err.split("--boundary\n")
    assert f"{warning}--boundary".split() == for_the_same(UNCONFINED, ["--insecure"]).split()
    assert three_lines(rest.rstrip())
    assert "NO_SUCH_KEY_HERE is not set" in done.err


def test_ctrl_c_is_130(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(coroutine: object) -> None:
        coroutine.close()  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run", interrupted)
    assert command("status").code == 130
