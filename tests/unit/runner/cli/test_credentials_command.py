"""Where `runner credentials` reads a key, and what it refuses unseen."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import keyring
import pytest
from wire.v1 import control_pb2

from runner.cli.operation import credentials
from tests.unit.runner.cli.conftest import RunCommand

KEY = "sk-test-0123456789abcdef"


OPENAI = "https://api.openai.com"


async def a_host(*_: object) -> bool:
    return True


async def no_host(*_: object) -> bool:
    return False


class Host:
    """Notes the keys that it gets."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str, str, str]] = []
        self.in_use = True

    async def set_credential(self, provider: str, key: str, source: str, origin: str) -> bool:
        self.given.append((provider, key, source, origin))
        return self.in_use

    async def clear_credential(self, provider: str) -> bool:
        return any(given[0] == provider for given in self.given)

    async def credentials(self) -> list[control_pb2.Credential]:
        return [control_pb2.Credential(provider="openai", source="the file /k\x1b[2J")]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()

    def ask(_: object, question: Any) -> Any:
        return asyncio.run(question(made))

    monkeypatch.setattr(credentials, "ask_host", ask)
    monkeypatch.setattr(credentials, "host_runs", a_host)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OXYDRA_AGENT__PROVIDER", "openai")
    monkeypatch.setenv("OXYDRA_AGENT__MODEL", "m")
    monkeypatch.setenv("OXYDRA_AGENT__API_KEY_ENV", "K")
    return made


def test_a_key_comes_from_a_pipe_a_variable_a_file_or_the_keyring(
    host: Host, run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER", f" {KEY}2\n")
    (tmp_path / "key").write_text(f"{KEY}3\n")
    (tmp_path / "key").chmod(0o600)
    stored = tmp_path / "config" / "oxydra" / "keys" / "openai@api.openai.com"
    entries = {("oxydra", "openai@https://api.openai.com"): f"{KEY}4"}
    monkeypatch.setattr(keyring, "get_password", lambda *entry: entries.get(entry))
    done = run_command("credentials", "set", stdin=f"{KEY}1\n".encode())
    used = "is in use from the next request on"
    assert f"the key of openai at https://api.openai.com {used}" in done.out
    host.in_use = False
    done = run_command("credentials", "set", "--from-env", "OTHER", "--provider", "anthropic")
    assert "at https://api.anthropic.com is used when the agent has started" in done.out
    assert "kept in memory" in done.out
    run_command("credentials", "set", "--from-file", str(tmp_path / "key"))
    run_command("credentials", "set", "--keyring")
    assert host.given == [
        ("openai", f"{KEY}1", f"the file {stored}", OPENAI),
        ("anthropic", f"{KEY}2", "the environment variable OTHER", "https://api.anthropic.com"),
        ("openai", f"{KEY}3", f"the file {tmp_path / 'key'}", OPENAI),
        ("openai", f"{KEY}4", "the system's keyring", OPENAI),
    ]


def test_a_typed_key_is_stored_where_no_host_runs(
    host: Host, run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "host_runs", no_host)
    done = run_command("credentials", "set", stdin=KEY.encode())
    stored = tmp_path / "config" / "oxydra" / "keys" / "openai@api.openai.com"
    assert stored.read_text() == f"{KEY}\nfor https://api.openai.com\n"
    assert f'api_key_file = "{stored}" finds it' in done.out
    assert "environment variable OXYDRA_AGENT__API_KEY_ENV" in done.out
    assert host.given == []
    monkeypatch.delenv("OXYDRA_AGENT__API_KEY_ENV")
    monkeypatch.setenv("OXYDRA_AGENT__API_KEY_FILE", str(stored))
    done = run_command("credentials", "set", stdin=f"{KEY}2".encode())
    assert f"it is stored in the file {stored}\n" in done.out
    assert stored.read_text().startswith(f"{KEY}2\n")


@pytest.mark.parametrize(
    ("section", "file"),
    [("agent", "openai@api.openai.com"), ("users.alice.agent", "alice@openai@api.openai.com")],
)
def test_the_settings_name_a_stored_key_in_the_section_that_named_one(
    host: Host,
    run_command: RunCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    file: str,
) -> None:
    for name in ("PROVIDER", "MODEL", "API_KEY_ENV"):
        monkeypatch.delenv(f"OXYDRA_AGENT__{name}")
    settings = tmp_path / "runner.toml"
    settings.write_text(
        f"[{section}]  # mine\nprovider = 'openai'\nmodel = 'm'\napi_key_env = 'K'\n"
    )
    done = run_command(
        *("--config", str(settings), "--user", "alice", "credentials", "set"), stdin=KEY.encode()
    )
    stored = tmp_path / "config" / "oxydra" / "keys" / file
    assert done.code == 0, done.err
    assert settings.read_text() == (
        f"[{section}]  # mine\nprovider = 'openai'\nmodel = 'm'\napi_key_file = \"{stored}\"\n"
    )
    assert stored.read_text().startswith(KEY)
    assert host.given == [("openai", KEY, f"the file {stored}", OPENAI)]


def test_a_stored_key_is_deleted_and_one_of_the_person_is_not(
    host: Host, run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command("credentials", "set", stdin=KEY.encode())
    stored = tmp_path / "config" / "oxydra" / "keys" / "openai@api.openai.com"
    (mine := tmp_path / "mine").write_text(KEY)
    monkeypatch.delenv("OXYDRA_AGENT__API_KEY_ENV")
    monkeypatch.setenv("OXYDRA_AGENT__API_KEY_FILE", str(mine))
    assert run_command("credentials", "clear").out == "the key of openai is forgotten\n"
    monkeypatch.setenv("OXYDRA_AGENT__API_KEY_FILE", str(stored))
    run_command("credentials", "clear", "--provider", "anthropic")
    assert mine.exists()
    assert stored.exists()
    assert f"\nthe key file {stored} is deleted\n" in run_command("credentials", "clear").out
    assert not stored.exists()
    monkeypatch.setattr(credentials, "host_runs", no_host)
    assert "is deleted" in run_command("credentials", "clear").out


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        ((KEY,), "", "a key must not stand in the command line"),
        (("--from-env", KEY), "", "needs the name of an environment variable"),
        (("--key", KEY), "", "a key must not stand in the command line"),
        ((f"--key={KEY}",), "", "a key must not stand in the command line"),
        ((), "", "holds no key"),
        ((), f"{KEY}\n{KEY}", "holds something that is not a key"),
        (("--from-env", "UNSET"), "", "UNSET is not set"),
        (("--from-file", "open"), "", "others can read the key file"),
        (("--from-env", "A", "--keyring"), "", "name one of"),
    ],
)
def test_what_is_no_key_or_is_seen_by_others_is_refused_and_not_shown(
    host: Host, run_command: RunCommand, tmp_path: Path, words: Any, stdin: str, why: str
) -> None:
    (tmp_path / "open").write_text(KEY)
    (tmp_path / "open").chmod(0o644)
    done = run_command("--user", "alice", "credentials", "set", *words, stdin=stdin.encode())
    assert done.code in (1, 2)
    assert why in done.err
    assert KEY not in done.out + done.err
    assert host.given == []
    if done.code == 1 and "runner" in done.err:
        assert "runner --user alice credentials set" in done.err


def test_the_keyring_is_explained(
    host: Host, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    done = run_command("credentials", "set", "--keyring")
    assert "the package keyring is not installed" in done.err
    assert "keyring set oxydra openai@https://api.openai.com" in done.err


@pytest.mark.usefixtures("host")
def test_the_list_shows_where_a_key_is_from(run_command: RunCommand) -> None:
    done = run_command("credentials", "list")
    assert "the file /k␛[2J" in done.out
    assert '"source": "the file /k' in run_command("credentials", "list", "--json").out
