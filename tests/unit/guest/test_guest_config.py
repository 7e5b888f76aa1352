"""The envelope's settings: defaults, refusals that name the field, secrets kept apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.errors import Code
from wire.v1.bootstrap_pb2 import BootstrapEnvelope
from wire.v1.common_pb2 import Endpoint

from guest import config
from guest.agent.settings import AgentSettings
from guest.errors import GuestError
from guest.tools.command_policy import CommandPolicy


def envelope() -> BootstrapEnvelope:
    sample = BootstrapEnvelope(
        user_id="alice", tier="process", token="launch-t0ken-1", launch_id="l1"
    )
    sample.gateway.address = "unix:/tmp/g.sock"
    for name in ("internal", "shared", "tmp", "vault", "ipc", "logs"):
        setattr(sample.paths, name, f"/ws/{name}")
    sample.memory.db_path = "/ws/internal/memory.db"
    return sample


def test_absent_settings_take_their_defaults() -> None:
    checked = config.load(envelope())
    assert checked.agent == AgentSettings()
    assert checked.tools == config.ToolSettings()
    assert checked.memory.vector_weight == checked.memory.keyword_weight == 0.5
    assert (checked.memory.chunk_chars, checked.memory.chunk_overlap) == (640, 96)
    assert checked.embedder == config.Link(unavailable_reason="no embedder was configured")
    assert checked.log_level == "info"


def test_settings_arrive() -> None:
    sample = envelope()
    sample.agent.provider, sample.agent.model, sample.agent.api_key = (
        "openai",
        "m",
        "a-long-api-k3y",
    )
    sample.agent.turn_timeout_s = 1.5
    sample.shell.unavailable_reason = "no bubblewrap"
    sample.embedder.endpoint.CopyFrom(Endpoint(address="unix:/run/e.sock"))
    sample.embedder.token = "embedder-t0ken"
    sample.memory.embed_wait_ms = 250
    checked = config.load(sample)
    assert (checked.agent.provider, checked.agent.model) == ("openai", "m")
    assert checked.agent.turn_timeout_s == 1.5
    assert checked.shell.unavailable_reason == "no bubblewrap"
    assert checked.embedder.endpoint == "unix:/run/e.sock"
    assert checked.memory.embed_wait_s == 0.25
    assert set(checked.secrets) == {"launch-t0ken-1", "a-long-api-k3y", "embedder-t0ken"}


def test_the_operators_word_on_commands_arrives() -> None:
    sample = envelope()
    sample.tools.shell.allow.append("git *")
    sample.tools.shell.deny.extend(["git push *", "rm *"])
    sample.tools.shell.operators_off = True
    sample.tools.shell.timeout_s = 120
    checked = config.load(sample).tools
    assert checked.commands == CommandPolicy(("git *",), ("git push *", "rm *"), operators=False)
    assert checked.command_timeout_s == 120


@pytest.mark.parametrize("timeout", [-1, 0.5, 3601, float("inf"), float("nan")])
def test_a_bad_timeout_of_commands(timeout: float) -> None:
    sample = envelope()
    sample.tools.shell.timeout_s = timeout
    with pytest.raises(GuestError, match=r"tools\.shell\.timeout_s"):
        config.load(sample)


@pytest.mark.parametrize("kind", ["allow", "deny"])
def test_an_empty_glob_over_commands(kind: str) -> None:
    sample = envelope()
    getattr(sample.tools.shell, kind).append(" ")
    with pytest.raises(GuestError, match=rf"tools\.shell\.{kind}"):
        config.load(sample)


def test_a_placeholder_key_is_no_secret() -> None:
    sample = envelope()
    sample.agent.api_key = "ollama"
    assert config.load(sample).secrets == ("launch-t0ken-1",)


def test_secrets_do_not_show() -> None:
    sample = envelope()
    sample.agent.api_key = "k3y"
    shown = repr(config.load(sample))
    assert "k3y" not in shown
    assert "t0ken" not in shown


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
        ("tier", "none"),
        ("gateway.address", "tcp:0.0.0.0:80"),
        ("paths.shared", "relative"),
        ("paths.vault", ""),
        ("memory.db_path", ""),
        ("memory.vector_weight", 1.5),
        ("memory.keyword_weight", float("nan")),
        ("memory.min_similarity", -0.1),
        ("memory.chunk_overlap", 640),
        ("tools.approval", "maybe"),
        ("agent.provider", "magic"),
        ("agent.base_url", "localhost:11434"),
        ("agent.turn_timeout_s", -1.0),
        ("agent.turn_timeout_s", float("inf")),
        ("embedder.endpoint.address", "http://x"),
        ("shell.endpoint.address", "unix:relative"),
        ("log_level", "loud"),
    ],
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    sample = envelope()
    target, *path = [sample, *field.split(".")]
    for name in path[:-1]:
        target = getattr(target, name)
    setattr(target, path[-1], value)
    with pytest.raises(GuestError) as raised:
        config.load(sample)
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert field.removesuffix(".address").split(".")[-1] in raised.value.brief
    assert raised.value.details.startswith("accepted: ")
    assert raised.value.resolution


@given(st.builds(BootstrapEnvelope, user_id=st.text(), tier=st.text(), token=st.text()))
def test_any_envelope_is_refused_or_accepted_cleanly(sample: BootstrapEnvelope) -> None:
    with pytest.raises(GuestError):
        config.load(sample)
