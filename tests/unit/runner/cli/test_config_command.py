"""`runner config`."""

import json
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runner.cli.conftest import RunCommand

FILE = """\
log_level = "debug"

[agent]
provider = "openai"
model = "m"
base_url = "https://me:hunter2@models.example/v1?token=s3cret"
instructions = '''
[memory]
recency_weight = 1
'''
[users.bob.agent]
model = "better"
[agent.prices."openai:m"]
input = 1.5
output = 2.5
"""


@pytest.fixture(autouse=True)
def in_place(run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in a directory of their own, in which files are put after this."""
    monkeypatch.delenv("OXYDRA_CONFIG", raising=False)


def shown(run_command: RunCommand, *options: str) -> dict[str, dict[str, Any]]:
    done = run_command("config", "show", "--json", *options)
    assert done.code == 0, done.err
    return {each["key"]: each for each in json.loads(done.out)["settings"]}


def test_every_value_is_shown_with_where_it_comes_from(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runner.toml").write_text(FILE)
    monkeypatch.setenv("OXYDRA_MEMORY__RETENTION_DAYS", "30")
    found = shown(run_command, "--user", "bob", "--insecure")
    file = str(Path("runner.toml").absolute())

    def where(key: str) -> tuple[Any, str, int | None]:
        each = found[key]
        return each["value"], each["source"], each["line"]

    assert where("log_level") == ("debug", file, 1)
    assert where("agent.model") == ("better", file, 12)
    assert where("agent.provider") == ("openai", file, 4)
    assert found["agent.instructions"]["line"] == 7
    assert where("memory.recency_weight") == (0.05, "default", None)
    variable = "environment variable OXYDRA_MEMORY__RETENTION_DAYS"
    assert where("memory.retention_days") == (30, variable, None)
    assert where('agent.prices."openai:m".input') == (1.5, file, 14)
    assert where("tier") == ("process", "command line option --insecure", None)
    table = run_command("config", "show", "--user", "bob").out
    assert f"{file}:12" in table
    assert shown(run_command)["agent.model"]["value"] == "m"


def test_a_table_with_a_name_of_its_own_is_shown_setting_by_setting(
    run_command: RunCommand,
) -> None:
    prices = '[agent.prices."a:b"]\ninput = 1\noutput = 2\n'
    Path("runner.toml").write_text(prices)
    found = {key: each for key, each in shown(run_command).items() if "prices" in key}
    assert {key: (each["value"], each["line"]) for key, each in found.items()} == {
        'agent.prices."a:b".input': (1.0, 2),
        'agent.prices."a:b".output': (2.0, 3),
        'agent.prices."a:b".cached_input': (None, None),
    }
    Path("runner.toml").write_text("")
    assert shown(run_command)["agent.prices"]["value"] == {}


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_no_secret_is_shown(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, json_too: list[str]
) -> None:
    """Also one that was put in the place of the name of its variable."""
    Path("runner.toml").write_text(
        FILE.replace(
            "[users.bob.agent]\n", 'api_key_env = "gsk_0123abcDEF0123"\n[users.bob.agent]\n'
        )
    )
    monkeypatch.setenv("MY_TOKEN", "t0ps3cret")
    monkeypatch.setenv("OXYDRA_MEMORY__AUTH_TOKEN_ENV", "MY_TOKEN")
    done = run_command("config", "show", *json_too)
    for secret in ("hunter2", "s3cret", "gsk_0123abcDEF0123", "t0ps3cret"):
        assert secret not in done.out
    assert "models.example/v1" in done.out
    assert "MY_TOKEN" in done.out


def test_a_check_is_a_sentence_and_an_exit_code(run_command: RunCommand) -> None:
    assert run_command("config", "check").code == 0
    Path("runner.toml").write_text(FILE)
    done = run_command("config", "check")
    assert done.code == 0
    assert done.out.startswith(f"{Path('runner.toml').absolute()}: ")
    Path("runner.toml").write_text("[agent]\nmax_steps = 0")
    done = run_command("config", "check")
    assert done.code == 1
    assert "bad setting agent.max_steps: 0; accepted: a whole number from 1 to 1000" in done.err
    Path("runner.toml").write_text('[tools]\nweb_search = "provider"')
    done = run_command("config", "check")
    assert done.code == 1
    assert 'of several sections: tools.web_search: only "anthropic" has a search' in done.err


def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *texts: str) -> None:
    """An editor that writes one of `texts` after the other."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import json, pathlib, sys\n"
        f"left = pathlib.Path({str(tmp_path / 'left.json')!r})\n"
        "text, *more = json.loads(left.read_text())\n"
        "left.write_text(json.dumps(more))\n"
        "pathlib.Path(sys.argv[1]).write_text(text)\n"
    )
    (tmp_path / "left.json").write_text(json.dumps(texts))
    monkeypatch.setenv("EDITOR", shlex.join([sys.executable, str(script)]))


def test_an_edit_replaces_the_file_once_it_is_accepted(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = Path("runner.toml")
    path.write_text(FILE)
    path.chmod(0o640)
    editor(monkeypatch, tmp_path, "log_level = 3", 'log_level = "warning"')
    done = run_command("config", "edit", typed="y\n")
    assert done.code == 0, done.err
    assert "bad setting log_level: 3" in done.err
    assert path.read_text() == 'log_level = "warning"'
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_an_edit_that_is_given_up_changes_nothing_and_keeps_the_draft(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = Path("runner.toml")
    path.write_text(FILE)
    editor(monkeypatch, tmp_path, "log_level = 3")
    done = run_command("config", "edit", typed="n\n")
    assert done.code == 1
    assert path.read_text() == FILE
    draft = done.err.partition("your draft is ")[2].split()[0]
    assert Path(draft).read_text() == "log_level = 3"


def test_a_first_edit_begins_with_explanations(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    assert run_command("config", "edit", typed="").code == 0
    text = (tmp_path / "config" / "oxydra" / "runner.toml").read_text()
    assert "# api_key_env" in text
    assert run_command("config", "check").code == 0


def test_without_a_terminal_nothing_is_edited(run_command: RunCommand) -> None:
    done = run_command("config", "edit")
    assert done.code == 1
    assert "there is no terminal for an editor" in done.err
