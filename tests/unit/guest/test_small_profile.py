"""The profile for small models: what it changes, and what somebody has set."""

import pytest
from wire.settings import SMALL_RECALL, AgentSettings, UserSettings, from_json, to_json

from guest.agent.models.models import Models

LOCAL = {"provider": "compatible", "base_url": "http://127.0.0.1:8080/v1", "model": "m"}
CORE = {
    *("memory_search", "memory_save", "memory_update", "memory_delete"),
    *("file_read", "file_list", "file_search", "file_write", "file_edit", "file_delete"),
    "shell_exec",
}


def settings(tools: dict[str, list[str]] | None = None, **agent: object) -> UserSettings:
    """Settings as a guest reads them from its envelope."""
    found = {"agent": {**LOCAL, **agent}, "tools": tools or {}}
    return from_json(to_json(UserSettings.model_validate(found)))


def test_it_counts_below_a_window_of_16_000_or_by_its_name() -> None:
    assert settings().agent.is_small(15_999)
    assert not settings().agent.is_small(16_000)
    assert settings(profile="small").agent.is_small(64_000)
    assert not settings(profile="full").agent.is_small(4096)
    assert not AgentSettings().is_small(4096), "the built-in model has no window"


def test_it_sets_what_nobody_has_set() -> None:
    small = settings().for_model(8192, 7168)
    agent = small.agent
    assert (agent.context_window, agent.max_output_tokens) == (7168, 1024)
    assert (agent.turn_timeout_s, agent.summary_min_turns) == (1800, 1)
    assert small.memory.context_tokens == SMALL_RECALL == 400
    large = settings().for_model(64_000, 64_000)
    assert (large.agent.turn_timeout_s, large.memory.context_tokens) == (300, 1000)


def test_what_somebody_has_set_stays_also_where_it_is_the_default() -> None:
    agent = settings(turn_timeout_s=300, max_output_tokens=0).for_model(8192, 7168).agent
    assert (agent.turn_timeout_s, agent.max_output_tokens, agent.summary_min_turns) == (300, 0, 1)


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        ({}, CORE),
        ({"enabled": ["scratch_note"]}, CORE | {"scratch_note"}),
        ({"enabled": ["typed_memory"]}, CORE | {"remember", "recall", "forget"}),
        ({"enabled": ["memory"]}, CORE | {"memory_context"}),
        ({"disabled": ["shell"]}, CORE - {"shell_exec"}),
        ({"enabled": ["remember"], "disabled": ["remember"]}, CORE),
    ],
)
def test_it_offers_memory_files_and_shell_and_what_is_enabled(
    tools: dict[str, list[str]], offered: set[str]
) -> None:
    assert settings(tools).tools.for_small == offered


def test_people_read_the_window_and_the_profile() -> None:
    models = Models(settings().agent)
    assert models.notices() == []
    models.windows.learn("compatible:m", 8192)
    (profile,) = models.notices()
    assert profile == (
        "small profile: the window of compatible:m is 8,192 tokens; it gets the tools for notes, "
        "files and commands, and those in [tools] enabled; [agent] profile = "
        '"full" gives it everything'
    )
    models.windows.learn("compatible:m", 20_000)
    assert models.notices() == ["the window of compatible:m is 20,000 tokens, as its server says"]
    (as_set,) = Models(settings(profile="small").agent).notices()
    assert "is 64,000 tokens, and you have set the profile; it gets" in as_set
