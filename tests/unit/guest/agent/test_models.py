"""Which model answers, and what is said when it cannot."""

import builtins
import subprocess
import sys
from typing import Any

import pytest
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError
from wire.errors import Code
from wire.identity import Party, Peer
from wire.installation import adding
from wire.settings import AgentSettings

from guest.agent.models.errors import from_model, is_too_long
from guest.agent.models.providers import build_model
from guest.egress_client import NO_KEY, EgressClient
from guest.errors import GuestError
from tests.support import parties


def test_without_a_provider_the_built_in_model_answers() -> None:
    assert build_model(AgentSettings()).model_name == "offline"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_a_provider_is_built_from_the_settings_alone(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.invalid")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere.invalid")
    model = build_model(AgentSettings(provider=provider, model="some-model", api_key_env="K"), "k")
    assert model.model_name == "some-model"
    assert "elsewhere" not in str(model.base_url)


def test_a_compatible_server_needs_no_key_and_gets_none_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    model: Any = build_model(
        AgentSettings(provider="openai", model="llama", base_url="http://127.0.0.1:11434/v1")
    )
    assert model.base_url == "http://127.0.0.1:11434/v1/"
    assert model.client.api_key == "api-key-not-set"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_a_missing_key_is_a_clear_error(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "from-the-environment")
    with pytest.raises(GuestError) as raised:
        build_model(AgentSettings(provider=provider, model="m", api_key_env="K"))
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert raised.value.brief == f"no API key for provider {provider!r}"
    assert raised.value.resolution == f"runner credentials set --provider {provider}"


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pydantic_ai.models.anthropic"):
            raise ImportError("No module named 'anthropic'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(GuestError) as raised:
        build_model(AgentSettings(provider="anthropic", model="m", api_key_env="K"), "k")
    assert raised.value.resolution == adding("anthropic")


def test_the_built_in_model_imports_no_provider() -> None:
    script = (
        "import sys; from guest.agent.models.providers import build_model; "
        "from wire.settings import AgentSettings; import guest.agent.turn_loop; "
        "build_model(AgentSettings()); "
        "print([m for m in ('openai', 'anthropic', 'google.genai', 'torch') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


TOO_LONG = [
    (400, "request (5012 tokens) exceeds the available context size (4096 tokens)"),  # llama.cpp
    (500, "the request exceeds the available context size. try increasing the context size"),
    (400, "You passed 5001 input tokens. However, the model's context length is only 4096"),  # vLLM
    (400, "The decoder prompt (length 5012) is longer than the maximum model length of 4096."),
    (400, "the model is loaded with context length of only 4096 tokens"),  # LM Studio
    (400, "The input token count (5000) exceeds the maximum number of tokens allowed (4096)."),
    (400, "This model's maximum prompt length is 4096 but the request contains 5000 tokens."),
    (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),  # TGI
    (422, "`inputs` must have less than 4096 tokens. Given: 5000"),
    (400, "prompt is too long: 5000 tokens > 4096 maximum"),
    (400, "Input is too long for requested model."),
    (400, "too many tokens: size limit exceeded by 904 tokens"),
    (413, "no"),
]
NOT_TOO_LONG = [
    (400, "Invalid schema for function 'x': schema must have type 'object'"),
    (400, "tools.0.custom.input_schema: JSON schema is invalid"),
    (400, "Invalid 'tools[0].function.name': string too long. Expected at most 64 characters"),
    (400, "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"),
    (400, "max_tokens is too large: 99999. This model supports at most 16384 completion tokens"),
    (400, "thinking.budget_tokens must be less than max_tokens"),
    (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum"),
    (401, "the maximum number of tokens"),
    (429, "Rate limit reached: maximum 6000 tokens per minute"),
    (503, "the context size is not known yet"),
]


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [*((*each, True) for each in TOO_LONG), *((*each, False) for each in NOT_TOO_LONG)],
)
def test_a_request_that_is_too_long_is_known_by_many_servers_words(
    status: int, message: str, expected: bool
) -> None:
    error = ModelHTTPError(status, "small", {"error": {"message": message, "code": status}})
    assert is_too_long(error) == is_too_long(FallbackExceptionGroup("all", [error])) == expected
    failure = from_model(error, "openai", "small")
    assert failure is not None
    assert ("too long" in failure.message) == expected


@pytest.mark.parametrize("provider", ["openai", "ollama", "anthropic"])
def test_how_long_an_answer_through_egress_may_take_is_a_matter_of_turns_alone(
    provider: str,
) -> None:
    peer = Peer("unix:/none", Party.EGRESS, "t0ken", parties.identity(Party.AGENT))
    settings = AgentSettings.model_construct(provider=provider, model="m")
    model: Any = build_model(settings, NO_KEY, egress=EgressClient(peer))
    assert model.client.timeout.read is None
