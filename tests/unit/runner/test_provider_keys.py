"""Where a provider's key may be, what is stored of a typed one, and that it goes to one address."""

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import keyring.errors
import pytest
from wire.errors import Code
from wire.settings import AgentSettings, UserSettings, from_json, origin_of, to_json

from runner.config.loading import load_settings
from runner.config.models import Config
from runner.errors import ConfigError
from runner.workspace import keys
from runner.workspace.keys import key_source, read_api_key, store_key

KEY = "sk-test-0123456789abcdef"
OTHER = "https://models.example.org/v1"


def openai(**more: Any) -> AgentSettings:
    return AgentSettings(provider="openai", model="m", **more)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


class Ring(keyring.backend.KeyringBackend):
    """A keyring that answers."""

    priority = 5.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@pytest.fixture
def ring() -> Iterator[Ring]:
    before, made = keyring.get_keyring(), Ring()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


def test_a_typed_key_goes_into_a_file_that_nobody_else_can_read(home: Path) -> None:
    found = store_key("openai", "", f" {KEY}\n")
    path = home / "config" / "oxydra" / "keys" / "openai@api.openai.com"
    assert found == {"api_key_file": str(path)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    agent = openai(**found)
    assert read_api_key(agent, {}) == KEY
    assert key_source(agent) == f"the file {path}"
    assert store_key("openai", "", f"{KEY}2") == found
    assert read_api_key(agent, {}) == f"{KEY}2"
    own = store_key("openai", OTHER, KEY, "alice")
    assert own["api_key_file"].endswith("alice@openai@models.example.org")


@pytest.mark.parametrize("key", ["", f"{KEY}\nx", "sk-ü"])
def test_what_is_no_key_is_not_stored(home: Path, key: str) -> None:
    with pytest.raises(ConfigError, match="what was typed holds") as raised:
        store_key("openai", "", key)
    assert KEY not in str(raised.value)
    assert not (home / "config").exists()


def test_a_stored_key_goes_to_its_own_address_alone() -> None:
    found = store_key("openai", "https://api.example.org:443/v1", KEY)
    assert read_api_key(openai(base_url="https://API.example.org/v2", **found), {}) == KEY
    for url in ("", OTHER, "http://api.example.org/v1", "https://api.example.org:8443/v1"):
        with pytest.raises(
            ConfigError, match=r"was given for https://api\.example\.org,"
        ) as raised:
            read_api_key(openai(base_url=url, **found), {})
        assert KEY not in str(raised.value)
        assert "runner credentials set" in raised.value.resolution


def test_a_typed_key_goes_into_the_keyring_where_one_answers(home: Path, ring: Ring) -> None:
    found = store_key("openai", "", KEY)
    assert found == {"api_key_keyring": True}
    assert ring.entries == {("oxydra", "openai@https://api.openai.com"): KEY}
    assert not (home / "config").exists()
    assert read_api_key(openai(**found), {}) == KEY
    assert key_source(openai(**found)) == "the system's keyring"
    with pytest.raises(ConfigError, match="no key for openai at https://models"):
        read_api_key(openai(base_url=OTHER, **found), {})


@pytest.mark.parametrize("fails", ["priority", "set_password", "get_password"])
def test_a_keyring_that_does_not_keep_a_key_is_left_alone(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def locked(*_: str) -> str:
        raise keyring.errors.KeyringLocked("no")

    monkeypatch.setattr(Ring, fails, 0 if fails == "priority" else locked)
    assert "api_key_file" in store_key("openai", "", KEY)


def test_a_password_manager_prints_the_key(home: Path) -> None:
    agent = openai(api_key_command=(sys.executable, "-c", f"print('{KEY}\\nuser: me')"))
    assert read_api_key(agent, {}) == KEY
    command = ("sh", "-c", f'sleep 3600 & echo $! > "$0"; echo {KEY}', str(home / "pid"))
    assert read_api_key(openai(api_key_command=command), {}) == KEY, "it waits for nobody else"
    os.kill(int((home / "pid").read_text()), signal.SIGKILL)
    for words in (
        f"set -e; echo hm > /dev/stderr; echo {KEY} > /dev/stdout",
        f"echo {KEY} | tee /dev/stderr",
    ):
        assert read_api_key(openai(api_key_command=("sh", "-c", words)), {}) == KEY
    assert key_source(agent) == f"the command {sys.executable}"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('the store is locked')", "ended with status 1"),
        ("", "printed no key"),
        (f"print('{KEY} \\x07')", "holds something that is not a key"),
        ("while True: print('k' * 4096)", "takes too long"),
        ("import sys\nwhile True: sys.stderr.write('k' * 4096)", "takes too long"),
        (None, "cannot be run"),
    ],
)
def test_a_command_without_a_key_is_explained(
    monkeypatch: pytest.MonkeyPatch, code: str | None, why: str
) -> None:
    if why == "takes too long":
        monkeypatch.setattr(keys, "COMMAND_WITHIN_S", 0.5)
    command = ("/no/such/program",) if code is None else (sys.executable, "-c", code)
    with pytest.raises(ConfigError, match=why) as raised:
        read_api_key(openai(api_key_command=command), {})
    assert KEY not in str(raised.value)
    if code and "locked" in code:
        assert "the store is locked" in raised.value.details


def test_a_key_file_where_tools_can_read_is_refused(home: Path) -> None:
    for name in (".oxydra", "shared", "vault", "ipc"):
        (home / "w" / name).mkdir(parents=True)
    path = home / "w" / "shared" / "key"
    path.write_text(KEY)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="is not used") as raised:
        read_api_key(openai(api_key_file=path), {})
    assert raised.value.code is Code.PERMISSION_DENIED
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="others can read"):
        read_api_key(openai(api_key_file=path), {})


def test_a_key_file_of_another_account_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = openai(**store_key("openai", "", KEY))
    monkeypatch.setattr(keys, "own_accounts", lambda _: {os.geteuid() + 1})
    with pytest.raises(ConfigError, match="others can read") as raised:
        read_api_key(found, {})
    assert raised.value.resolution.startswith(f"chown {os.geteuid()} ")


def test_only_one_source_counts() -> None:
    with pytest.raises(ValueError, match="api_key_env and api_key_keyring are both set"):
        openai(api_key_env="K", api_key_keyring=True)


@pytest.mark.parametrize(
    ("own", "setting"),
    [
        ("", "api_key_env"),
        ("model = 'other'", "api_key_env"),
        ("base_url = 'https://api.openai.com/v1/other'", "api_key_env"),
        (f"base_url = '{OTHER}'", ""),
        (f"base_url = '{OTHER}'\napi_key_env = 'MINE'", "api_key_env"),
        ("api_key_keyring = true", "api_key_keyring"),
        (f"base_url = '{OTHER}'\napi_key_command = ['pass']", "api_key_command"),
        (f"base_url = '{OTHER}'\nkeys.openai_env = 'THE_OTHER'", ""),
    ],
)
def test_the_general_key_does_not_follow_a_user_to_another_server(
    home: Path, own: str, setting: str
) -> None:
    general = "[agent]\nprovider = 'openai'\nmodel = 'm'\napi_key_env = 'K'\n"
    (home / "runner.toml").write_text(f"{general}[users.bob.agent]\n{own}\n")
    loaded = load_settings(home / "runner.toml", environ={}).config
    assert loaded.for_user("bob").agent.key_setting("openai") == setting
    assert loaded.for_user("alice").agent.key_setting("openai") == "api_key_env"


def test_another_provider_of_a_user_needs_a_key_of_its_own() -> None:
    general = openai(api_key_env="K")
    with pytest.raises(ValueError, match='provider "anthropic" needs a credential'):
        Config.model_validate(
            {"agent": general, "users": {"bob": {"agent": {"provider": "anthropic"}}}}
        )


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://user:pw@Host.example:443/v1?x=1", "https://host.example"),
        ("http://[::1]:11434/v1", "http://[::1]:11434"),
        ("http://host:80", "http://host"),
        ("http://host:x", "http://host:x"),
        ("", ""),
    ],
)
def test_an_address_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "where",
    [
        {"api_key_file": "/k/openai@api.openai.com"},
        {"api_key_command": ("pass", "show", "openai")},
        {"api_key_keyring": True},
        {"keys": {"openai_env": "THE_KEY"}},
    ],
)
def test_guests_are_not_told_where_the_runner_finds_the_key(where: dict[str, Any]) -> None:
    told = to_json(UserSettings(agent=openai(**where)))
    assert not {"/k/", "pass", "keyring"} & set(told["agent"].split('"'))
    assert "api_key_file" not in told["agent"]
    assert from_json(told).agent.key_setting("openai") == "api_key_env"
