"""Tokens, keys and certificates for the memory: read where the configuration says, and
refused in words that never show them."""

import os
from pathlib import Path

import pytest
from wire.envelope import Secrets
from wire.errors import Code
from wire.settings import EncryptionSettings, MemorySettings
from wire.v1 import bootstrap_pb2

from runner.config.models import Config
from runner.errors import ConfigError
from runner.host.launch import AgentLauncher
from runner.tiers.base import Capabilities
from runner.workspace.credentials import (
    by_name,
    read_certificates,
    read_memory_key,
    read_secrets,
)
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.settings import load_config

KEY = "correct horse battery staple 42"
TOKEN = "eyJhbGciOiJFZERTQSJ9.e30.c2ln"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def key_file(path: Path, content: str = KEY, mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def test_everything_is_read_from_where_it_is_named(tmp_path: Path) -> None:
    certificates = tmp_path / "ca.pem"
    certificates.write_text(PEM)
    memory = MemorySettings(
        remote_url="libsql://memory.example",
        auth_token_env="MEMORY_TOKEN",
        ca_file=certificates,
        encryption=EncryptionSettings(key_file=key_file(tmp_path / "key", f"{KEY}\n")),
    )
    settings = Config(memory=memory).for_user("alice")
    found = read_secrets(settings, {"MEMORY_TOKEN": f" {TOKEN} "})
    assert found == Secrets(memory_token=TOKEN, memory_key=KEY)
    assert by_name(found)["the memory's encryption key"] == KEY
    assert read_certificates(settings.memory.ca_file) == PEM


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (KEY, 0o640, "others can read the key file"),
        ("", 0o600, "is empty"),
        ("tiny#", 0o600, "too short"),
        ("schlüssel-mit-umlaut", 0o600, "not a key"),
        (f"{KEY}\n{KEY}", 0o600, "not a key"),
    ],
)
def test_a_bad_key_file_is_refused(tmp_path: Path, content: str, mode: int, said: str) -> None:
    section = EncryptionSettings(key_file=key_file(tmp_path / "key", content, mode))
    with pytest.raises(ConfigError) as raised:
        read_memory_key(section, {})
    assert said in raised.value.brief
    assert raised.value.resolution
    if content:
        assert content not in str(raised.value)


def test_a_missing_key_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe", 0o600)
    for section, said in (
        (EncryptionSettings(key_file=pipe), "cannot read"),
        (EncryptionSettings(key_file=Path("/dev/zero")), "cannot read /dev/zero"),
        (EncryptionSettings(key_env="MY_KEY"), "MY_KEY is not set"),
        (EncryptionSettings(key_file=tmp_path / "no"), f"cannot read {tmp_path / 'no'}"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_memory_key(section, {})
    assert read_memory_key(EncryptionSettings(), {}) == ""


def test_a_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("hello")
    with pytest.raises(ConfigError, match="holds no certificate"):
        read_certificates(wrong)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "memory.example",
            "ftp://x",
            "http://",
            "https://{name}.x",
            "https://u:p@x",
            "http://x?a=b",
        ),
        *("http://[::1", "https://x:99999", "libsql://x:port"),
    ],
)
def test_other_addresses_are_refused(tmp_path: Path, url: str) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(f'[memory]\nremote_url = "{url}"\n')
    with pytest.raises(ConfigError, match=r"memory\.remote_url") as raised:
        load_config(file, environ={})
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert "u:p" not in str(raised.value)


def test_a_users_own_key_stands_beside_the_common_settings(tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(
        '[memory]\nretention_days = 30\n[memory.encryption]\nkey_env = "COMMON"\n'
        '[users.alice.memory.encryption]\nkey_env = "HERS"\n'
        "[users.bob.memory]\nretention_days = 7\n"
    )
    config = load_config(file, environ={})
    alice, bob = config.for_user("alice").memory, config.for_user("bob").memory
    assert (alice.encryption.key_env, alice.retention_days) == ("HERS", 30)
    assert (bob.encryption.key_env, bob.retention_days) == ("COMMON", 7)


def test_two_sources_of_one_key_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text('[memory.encryption]\nkey_env = "A"\nkey_file = "key"\n')
    with pytest.raises(ConfigError) as raised:
        load_config(file, environ={})
    assert "both set" in str(raised.value)


@pytest.mark.parametrize("remote", [True, False])
def test_the_envelope_carries_what_the_guest_needs(tmp_path: Path, *, remote: bool) -> None:
    tmp_path.chmod(0o700)
    memory = MemorySettings(
        remote_url="libsql://{user_id}.example" if remote else "",
        auth_token_env="MEMORY_TOKEN",
        encryption=EncryptionSettings(key_env="KEY"),
    )
    config = Config(workspace_root=tmp_path, tier="process", memory=memory)
    workspace = Workspace.locate(config, "alice")
    workspace.provision()
    capabilities = Capabilities("process", {})
    environ = {**os.environ, "MEMORY_TOKEN": TOKEN, "KEY": KEY}
    launcher = AgentLauncher(config, workspace, capabilities, parties.AUTHORITY, environ=environ)
    spec = launcher.prepare(bootstrap_pb2.Link(), bootstrap_pb2.Link()).spec
    assert spec.role is Role.AGENT
    sent = bootstrap_pb2.BootstrapEnvelope.FromString(spec.envelope[4:])
    assert Secrets.of(sent.secrets) == Secrets(memory_key=KEY)
    assert TOKEN.encode() not in spec.envelope
    for secret in (TOKEN, KEY):
        assert secret not in repr(spec.environment)
        assert secret not in " ".join(spec.command)
