"""What `runner doctor` says of the server of the configured model, without asking the model."""

from collections.abc import Mapping
from typing import Any

import pytest
from wire.settings import AgentSettings

from runner.doctor.finding import Finding
from runner.doctor.provider import look_at_server
from tests.support.servers import model_servers as fake
from tests.support.servers.model_servers import Route, always, serving, studio_model, tag

OLLAMA = fake.ollama(tag("qwen3:latest", "completion", "tools"), tag("gemma3:4b", "completion"))


def look(routes: Mapping[str, Route], **agent: Any) -> Finding:
    with serving(routes) as server:
        address = f"http://127.0.0.1:{server.port}/v1"
        settings = AgentSettings(base_url=address, **agent)
        (found,) = look_at_server(settings, {"KEY": "sk-wrong-key-0123456789"})
    assert not any("chat" in each for each in server.asked)
    return found


@pytest.mark.parametrize(
    ("routes", "agent", "what", "fix"),
    [
        (OLLAMA, {"provider": "ollama", "model": "qwen3"}, "answers, and has qwen3", ""),
        (
            OLLAMA,
            {"provider": "ollama", "model": "qwen4"},
            "does not have qwen4",
            "ollama pull qwen4; another model is chosen by: runner init",
        ),
        (
            OLLAMA,
            {"provider": "openai", "model": "gemma3:4b"},
            "gemma3:4b cannot call tools, as Ollama 0.32.1",
            "another model is chosen by: runner init",
        ),
        (
            fake.lm_studio(studio_model("qwen/qwen3-8b")),
            {"provider": "lmstudio", "model": "phi"},
            "LM Studio at http://127.0.0.1:",
            "lms get phi",
        ),
        (
            fake.llama_cpp("phi", tools=True),
            {"provider": "compatible", "model": "any"},
            "llama.cpp at http://127.0.0.1:",
            "",
        ),
        (
            {"*": always({"error": "bad key"}, 401)},
            {"provider": "openai", "model": "m", "api_key_env": "KEY"},
            "refused the API key",
            "runner credentials set --provider openai",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_command_that_mends_it(
    routes: Mapping[str, Route], agent: dict[str, Any], what: str, fix: str
) -> None:
    found = look(routes, **agent)
    assert what in found.what
    assert found.fix.startswith(fix)
    assert bool(found.fix) is bool(fix)
    assert "sk-wrong" not in str(found)


def test_one_that_does_not_run_is_started_and_the_demo_has_none() -> None:
    nowhere = AgentSettings(provider="ollama", model="m", base_url="http://127.0.0.1:1/v1")
    (found,) = look_at_server(nowhere, {})
    assert found.what.startswith("nothing answers at http://127.0.0.1:1/v1")
    assert found.fix == "ollama serve"
    assert look_at_server(AgentSettings(), {}) == []
    unset = AgentSettings(provider="openai", model="m", api_key_env="UNSET")
    assert look_at_server(unset, {}) == [], "the check of the credential says that"
