"""Which model answers, and what is said when it cannot."""

import builtins
import subprocess
import sys
from typing import Any

import pytest
from wire.errors import Code
from wire.installation import adding
from wire.settings import AgentSettings

from guest.agent.models.providers import build_model
from guest.errors import GuestError


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
