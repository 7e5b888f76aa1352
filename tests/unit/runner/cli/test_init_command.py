"""`runner init`: questions, refusals and the file, without a provider."""

import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError

from runner.cli.setup import init as module
from runner.doctor.provider import CannotTry
from tests.unit.runner.cli.conftest import RunCommand

OPENAI = ("--provider", "openai", "--model", "m")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings with which the provider was tried."""
    seen: list[Any] = []

    def try_provider(settings: Any, _: object) -> float:
        seen.append(settings)
        return 0.5

    monkeypatch.setattr(module, "try_provider", try_provider)
    return seen


@pytest.fixture
def file(run_command: RunCommand, tmp_path: Path) -> Path:
    return tmp_path / "config" / "oxydra" / "runner.toml"


def test_answers_are_asked_for_and_become_a_file_that_is_accepted(
    run_command: RunCommand, file: Path, tried: list[Any]
) -> None:
    typed = "bard\nopenai\n\ngpt-5-mini\n\nsk-0123\nMY_KEY\nprocess\n"
    done = run_command("init", typed=typed)
    assert done.code == 0, done.err
    assert "accepted: offline, ollama, lmstudio, openai, anthropic, google" in done.err
    assert "the NAME of an environment variable" in done.err
    content = tomllib.loads(file.read_text())
    assert content == {
        "tier": "process",
        "agent": {"provider": "openai", "model": "gpt-5-mini", "api_key_env": "MY_KEY"},
    }
    assert file.read_text().count("#") > 5
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.model for each in tried] == ["gpt-5-mini"]
    assert "runner --insecure chat" in done.out
    assert run_command("config", "check").code == 0


def test_flags_answer_without_a_terminal(
    run_command: RunCommand, file: Path, tried: list[Any]
) -> None:
    done = run_command("init", *OPENAI, "--tier", "micro_vm")
    assert done.code == 0, done.err
    content = tomllib.loads(file.read_text())
    assert content["tier"] == "micro_vm"
    assert content["agent"]["api_key_env"] == "OPENAI_API_KEY"
    server = ("--base-url", "http://127.0.0.1:11434/v1")
    assert run_command("init", *OPENAI, *server, "--force", "--no-test").code == 0
    assert "api_key_env" not in tomllib.loads(file.read_text())["agent"]
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--provider", "bard"], 2, "'offline', 'ollama', 'lmstudio', 'openai', 'anthropic'"),
        (["--provider", "openai"], 1, "no model was given"),
        ([*OPENAI, "--key-env", "sk-0123"], 2, "the NAME of an environment variable"),
        ([*OPENAI, "--base-url", "localhost"], 2, "--base-url: "),
    ],
)
def test_a_bad_answer_is_refused_with_what_is_accepted(
    run_command: RunCommand, file: Path, tried: list[Any], words: list[str], code: int, told: str
) -> None:
    done = run_command("init", *words)
    assert done.code == code
    assert told in done.err
    assert not file.exists()
    assert tried == []


def test_a_file_that_is_there_stays(run_command: RunCommand, file: Path) -> None:
    assert run_command("init").code == 0
    before = file.read_text()
    done = run_command("init", *OPENAI, "--no-test")
    assert done.code == 1
    assert f"there is a configuration file already: {file}" in done.err
    assert file.read_text() == before


def failing(monkeypatch: pytest.MonkeyPatch, error: WireError) -> None:
    def try_provider(*_: object) -> float:
        raise error

    monkeypatch.setattr(module, "try_provider", try_provider)


def test_a_request_that_fails_leaves_no_file_unless_it_is_wanted(
    run_command: RunCommand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, WireError(Code.FAILED_PRECONDITION, "refused the key", resolution="x"))
    done = run_command("init", *OPENAI)
    assert done.code == 1
    assert "refused the key" in done.err
    assert "--no-test" in done.err
    for typed in ("\n\n\n\n", "\n\n\n"):  # the second ends at the last question
        assert run_command("init", *OPENAI, typed=typed).code == 1
    assert not file.exists()
    assert run_command("init", *OPENAI, typed="\n\n\ny\n").code == 0
    assert file.exists()


def test_guests_in_containers_may_have_what_this_installation_lacks(
    run_command: RunCommand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, CannotTry(Code.FAILED_PRECONDITION, "cannot ask", resolution="pip"))
    assert run_command("init", *OPENAI, "--insecure").code == 1
    assert not file.exists()
    done = run_command("init", *OPENAI)
    assert done.code == 0
    assert "not tested: cannot ask" in done.err


def test_leaving_at_a_question_writes_nothing(
    run_command: RunCommand, file: Path, tried: list[Any]
) -> None:
    done = run_command("init", typed="openai\n")
    assert done.code == 1
    assert "no file was written" in done.err
    assert not file.exists()


def test_another_file_that_is_read_first_is_named(run_command: RunCommand, file: Path) -> None:
    Path("runner.toml").write_text("")
    done = run_command("init")
    assert f"{Path('runner.toml').absolute()} is read instead" in done.out
