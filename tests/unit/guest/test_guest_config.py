"""The envelope's settings: defaults, refusals that name the field, secrets kept apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.errors import Code
from wire.tools import FAMILIES, NAMES, OFF_BY_DEFAULT
from wire.v1.bootstrap_pb2 import BootstrapEnvelope
from wire.v1.common_pb2 import Endpoint

from guest import config
from guest.agent.settings import AgentSettings
from guest.errors import GuestError
from guest.tools.command_policy.policy import CommandPolicy


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
    assert (checked.memory.max_notes, checked.memory.max_text_bytes) == (100_000, 256 * 2**20)
    assert checked.memory.typed_scope == "user"
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


def test_settings_of_memory_and_of_the_window_arrive() -> None:
    sample = envelope()
    sample.memory.max_notes, sample.memory.max_text_bytes = 7, 1000
    sample.memory.typed_scope, sample.memory.context_tokens = "session", 250
    sample.agent.context_window, sample.agent.summary_min_turns = 8_000, 2
    sample.agent.summary_trigger, sample.agent.summary_target = 0.9, 0.2
    checked = config.load(sample)
    assert (checked.memory.max_notes, checked.memory.max_text_bytes) == (7, 1000)
    assert (checked.memory.typed_scope, checked.memory.context_tokens) == ("session", 250)
    assert (checked.agent.context_window, checked.agent.summary_min_turns) == (8_000, 2)
    assert (checked.agent.summary_trigger, checked.agent.summary_target) == (0.9, 0.2)


def test_no_memory_comes_into_a_prompt_where_the_envelope_says_none() -> None:
    assert config.load(envelope()).memory.context_tokens == 0


def test_what_is_off_follows_from_families_and_tools() -> None:
    sample = envelope()
    assert config.load(sample).tools.off == OFF_BY_DEFAULT
    sample.tools.enabled.extend(["typed_memory", "memory_context"])
    sample.tools.disabled.extend(["files", "recall"])
    off = config.load(sample).tools.off
    assert off == {*FAMILIES["files"], "recall", "search_memory", "write_memory"}


@pytest.mark.parametrize("kind", ["enabled", "disabled"])
def test_an_unknown_tool_is_refused_with_the_known_ones(kind: str) -> None:
    sample = envelope()
    getattr(sample.tools, kind).append("no_such_tool")
    with pytest.raises(GuestError, match=rf"bad setting tools\.{kind}: 'no_such_tool'") as raised:
        config.load(sample)
    assert set(raised.value.details.removeprefix("accepted: ").split(", ")) == NAMES


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
        ("memory.typed_scope", "everyone"),
        ("memory.context_tokens", 16_001),
        ("tools.approval", "maybe"),
        ("agent.provider", "magic"),
        ("agent.base_url", "localhost:11434"),
        ("agent.turn_timeout_s", -1.0),
        ("agent.turn_timeout_s", float("inf")),
        ("agent.context_window", 7_999),
        ("agent.context_window", 10_000_001),
        ("agent.summary_target", 0.7),
        ("agent.summary_target", -0.1),
        ("agent.summary_target", float("nan")),
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
