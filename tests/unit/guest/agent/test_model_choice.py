"""Which model a turn may ask for, and what is said of the others."""

from typing import Any

import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from wire.errors import Code
from wire.settings import AgentSettings

from guest.agent.models import models
from guest.agent.models.models import Models
from guest.errors import GuestError

OPENAI = AgentSettings(
    provider="openai", model="small", base_url="http://127.0.0.1:1/v1", api_key_env="K"
)


class Building:
    """Builds stand-ins; `built` is what was asked for."""

    def __init__(self) -> None:
        self.built: list[tuple[str, str, str, str]] = []

    def __call__(self, settings: AgentSettings, key: str) -> Model:
        self.built.append((settings.provider, settings.model, settings.base_url, key))
        return TestModel()


def test_a_turn_gets_the_configured_model_or_the_one_that_it_asks_for() -> None:
    build = Building()
    known = Models(OPENAI, {"openai": "k1", "anthropic": "k2"}, build=build)
    for asked in ("", "openai:small", "small", "llama3.2:3b", "anthropic:large", "anthropic:large"):
        known.choose(asked)
    assert build.built == [
        ("openai", "small", OPENAI.base_url, "k1"),
        ("openai", "llama3.2:3b", OPENAI.base_url, "k1"),
        ("anthropic", "large", "", "k2"),  # no other provider's key goes to base_url
    ]
    assert known.choose("anthropic:large").label == "anthropic:large"
    assert known.choose("offline").label == "offline"
    assert known.configured == "openai:small"


@pytest.mark.parametrize(
    ("settings", "asked", "code", "why"),
    [
        (OPENAI, "anthropic:large", Code.FAILED_PRECONDITION, "no API key for provider"),
        (OPENAI, "anthropic:", Code.INVALID_ARGUMENT, "names none"),
        (OPENAI, "anthropic", Code.INVALID_ARGUMENT, "names none"),
        (OPENAI, "offline:x", Code.INVALID_ARGUMENT, "names none"),
        (AgentSettings(), "small", Code.INVALID_ARGUMENT, "names none"),
    ],
)
def test_what_cannot_answer_is_refused_with_what_can(
    settings: AgentSettings, asked: str, code: Code, why: str
) -> None:
    with pytest.raises(GuestError) as raised:
        Models(settings, {"openai": "k"}, build=Building()).choose(asked)
    assert raised.value.code is code
    assert why in raised.value.brief
    assert "accepted: offline, openai:MODEL" in raised.value.brief
    assert ("a model of openai" in raised.value.brief) == (settings is OPENAI)


def test_a_provider_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> Any:
        return None if name == "anthropic" else name

    monkeypatch.setattr(models, "find_spec", found)
    known = Models(OPENAI, {"anthropic": "k"}, build=Building())
    assert known.unusable("openai") == ""  # a server at base_url needs no key
    with pytest.raises(GuestError, match="packages of provider 'anthropic'"):
        known.choose("anthropic:large")


@pytest.mark.parametrize(
    ("settings", "keys", "certain", "name"),
    [
        (AgentSettings(), {}, True, "offline"),
        (OPENAI, {"openai": "k"}, True, "small"),
        (OPENAI.model_copy(update={"base_url": ""}), {}, False, "test"),
        (OPENAI.model_copy(update={"fallbacks": ["offline"]}), {}, False, "fallback:test,test"),
    ],
)
def test_the_settings_alone_show_that_most_models_can_be_built(
    settings: AgentSettings, keys: dict[str, str], certain: bool, name: str
) -> None:
    build = Building()
    known = Models(settings, keys, build=build)
    assert (known.certain, build.built) == (certain, [])
    assert known.name == name
    assert bool(build.built) is not certain
