"""The envelope as the guest checks it: defaults, refusals that name the field, secrets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.errors import Code, WireError
from wire.identity import Party
from wire.settings import UserSettings
from wire.v1.bootstrap_pb2 import BootstrapEnvelope, Directory

from guest.config import GuestLink, load
from guest.egress_client import EgressClient
from guest.memory.models import MemoryConfig, RemoteConfig
from tests.support import parties
from tests.support.settings import TOKEN, configure, envelope_for


@pytest.fixture
def envelope() -> BootstrapEnvelope:
    return envelope_for(Path("/ws"))


def test_an_envelope_without_settings_means_the_defaults(envelope: BootstrapEnvelope) -> None:
    config = load(envelope)
    assert config.settings == UserSettings()
    assert config.memory == MemoryConfig("/ws/internal/memory.db")
    assert config.embedder == GuestLink(unavailable_reason="no embedder was configured")
    assert config.log_level == "info"


def test_settings_links_and_secrets_arrive(envelope: BootstrapEnvelope) -> None:
    configure(envelope, "memory", max_notes=7, remote_url="libsql://{user_id}.example")
    configure(envelope, "shell", deny=["rm *"])
    envelope.secrets.memory_key = "memory-k3y-0123"
    envelope.egress.CopyFrom(parties.link("unix:/run/http.sock", "token-of-egress"))
    envelope.upstreams["memory"] = ""
    envelope.shell.unavailable_reason = "no bubblewrap"
    envelope.embedder.CopyFrom(parties.link("unix:/run/e.sock", "embedder-t0ken"))
    config = load(envelope)
    assert config.memory == MemoryConfig(
        "/ws/internal/memory.db",
        config.settings.memory,
        "memory-k3y-0123",
        RemoteConfig("https://alice.example", timeout_s=10.0, egress=config.egress),
    )
    assert (config.settings.memory.max_notes, config.settings.shell.deny) == (7, ("rm *",))
    assert config.shell == GuestLink(unavailable_reason="no bubblewrap")
    assert config.embedder == GuestLink(parties.linked(envelope.embedder, Party.EMBEDDER))
    assert config.egress == EgressClient(parties.linked(envelope.egress, Party.EGRESS))
    assert config.upstreams == {"memory": ""}
    secrets = {TOKEN, "embedder-t0ken", "token-of-egress", "memory-k3y-0123"}
    assert set(config.redacted) == secrets
    assert not [secret for secret in secrets if secret in repr(config)]


def test_a_guest_with_another_directory_than_was_meant_does_not_begin(
    envelope: BootstrapEnvelope, tmp_path: Path
) -> None:
    """The attack: another user's directory is put in the place of one before it is mounted."""
    for name in ("alices", "bobs"):
        (tmp_path / name).mkdir()
    meant = (tmp_path / "alices").stat()
    envelope.mounted[str(tmp_path / "alices")].CopyFrom(
        Directory(device=meant.st_dev, inode=meant.st_ino)
    )
    assert load(envelope).user_id == "alice"
    (tmp_path / "alices").rename(tmp_path / "away")
    with pytest.raises(WireError, match="is not what the runner has checked"):
        load(envelope)
    (tmp_path / "bobs").rename(tmp_path / "alices")
    with pytest.raises(WireError, match="is not what the runner has checked") as raised:
        load(envelope)
    assert raised.value.code is Code.FAILED_PRECONDITION


def test_a_short_value_is_no_secret(envelope: BootstrapEnvelope) -> None:
    envelope.secrets.servers["git/A"] = "none"
    assert load(envelope).redacted == (TOKEN,)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user_id", ""),
        ("user_id", "../bob"),
        ("user_id", "Alice"),
        ("user_id", "a" * 33),
        ("user_id", "ällice"),
        ("token", ""),
        ("token", "short"),
        ("tier", "No tier"),
        ("gateway", "tcp:0.0.0.0:80"),
        ("paths.shared", "relative"),
        ("paths.vault", ""),
        ("paths.database", ""),
        ("embedder.endpoint", "http://x"),
        ("shell.endpoint", "unix:relative"),
        ("log_level", "loud"),
    ],
)
def test_a_bad_field_is_named(envelope: BootstrapEnvelope, field: str, value: str) -> None:
    target, *path = [envelope, *field.split(".")]
    for name in path[:-1]:
        target = getattr(target, name)
    setattr(target, path[-1], value)
    with pytest.raises(WireError) as raised:
        load(envelope)
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert field.split(".")[-1] in raised.value.brief
    assert raised.value.details.startswith("accepted: ")
    assert raised.value.resolution


def test_the_guest_refuses_what_the_configuration_file_may_not_say(
    envelope: BootstrapEnvelope,
) -> None:
    configure(envelope, "memory", vector_weight=1.5)
    configure(envelope, "agent", max_stepz=3, turn_timeout_s=0)
    with pytest.raises(WireError) as raised:
        load(envelope)
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert raised.value.brief == (
        "bad setting memory.vector_weight: 1.5; accepted: a number from 0 to 1"
    )
    assert "agent.turn_timeout_s: 0; accepted: a number of seconds" in raised.value.details
    assert "agent.max_stepz: no such setting; accepted: provider, model" in (raised.value.details)
    assert "runner.toml" in raised.value.resolution


@given(
    st.builds(
        BootstrapEnvelope,
        user_id=st.text(),
        tier=st.text(),
        token=st.text(),
        settings=st.dictionaries(st.text() | st.just("memory"), st.text()),
    )
)
def test_any_envelope_is_refused_or_accepted_cleanly(envelope: BootstrapEnvelope) -> None:
    with pytest.raises(WireError):
        load(envelope)
