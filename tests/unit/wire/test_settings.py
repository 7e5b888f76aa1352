"""Settings on their way from the runner to a guest, and what is said of wrong ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.settings import (
    AgentSettings,
    EncryptionSettings,
    McpServerSettings,
    McpSettings,
    MemorySettings,
    ShellSettings,
    ToolsSettings,
    UserSettings,
    from_json,
    to_json,
)
from wire.tools import FAMILIES, OFF_BY_DEFAULT

CHANGED = UserSettings(
    memory=MemorySettings(
        vector_weight=0.25,
        ca_file=Path("/etc/ca.pem"),
        encryption=EncryptionSettings(key_env="KEY"),
    ),
    tools=ToolsSettings(enabled=("typed_memory",), approval="ask"),
    agent=AgentSettings(provider="openai", model="m", api_key_env="KEY", instructions='a "ü"\n'),
    shell=ShellSettings(allow=("git *",), operators=False, timeout_s=9),
    mcp=McpSettings(servers={"git": McpServerSettings(command="git-mcp", secret_env={"A": "B"})}),
)


@pytest.mark.parametrize("settings", [UserSettings(), CHANGED])
def test_settings_arrive_whole(settings: UserSettings) -> None:
    sections = to_json(settings)
    assert set(sections) == {"memory", "tools", "agent", "shell", "mcp"}
    assert from_json(sections) == settings


def test_what_an_envelope_leaves_out_has_its_default() -> None:
    assert from_json({"agent": '{"max_steps": 3}'}) == UserSettings(
        agent=AgentSettings(max_steps=3)
    )


@pytest.mark.parametrize(
    ("section", "document", "said"),
    [
        ("memory", '{"max_notes": 0}', "bad setting memory.max_notes: 0; accepted: a whole"),
        ("memory", '{"encryption": {"key": 1}}', "bad setting memory.encryption.key: no such sett"),
        (
            "tools",
            '{"approval": "yes"}',
            "bad setting tools.approval: 'yes'; accepted: one of auto",
        ),
        ("memory", "3", "bad setting memory: 3; accepted: a table of settings"),
        ("mcp", '{"servers": {"a": {}}}', "bad setting mcp.servers.a.command: is not set; accep"),
        ("mcp", '{"servers": {"a": {"command": ""}}}', "bad setting mcp.servers.a.command: ''; ac"),
        (
            "mcp",
            '{"servers": {"A": {"command": "x"}}}',
            "bad setting mcp.servers.A: 'A' is not a server's name: a small letter",
        ),
        (
            "mcp",
            '{"servers": {"a": {"command": "x", "secret_env": {"A": "sk-12345"}}}}',
            "bad setting mcp.servers.a.secret_env: the value is not shown; accepted: a table: the",
        ),
        ("colours", "{}", "bad setting colours: no such setting; accepted: memory, tools"),
        ("shell", '{"deny": ["rm *", " "]}', "bad setting shell.deny: ' '; accepted: a list"),
        (
            "agent",
            '{"provider": "openai", "model": "m", "api_key_env": "K", "fallbacks": ["google:g"]}',
            'bad setting agent: fallbacks: "google:g" cannot answer: set keys.google_env',
        ),
        ("agent", '{"fallbacks": ["g"]}', "bad setting agent.fallbacks"),
        ("agent", '{"api_key_env": "sk-1"}', "bad setting agent.api_key_env: the value is not sho"),
        ("agent", '{"summary_target": 0.8}', "bad setting agent: summary_target 0.8 must be less"),
        ("agent", "{", "a section of settings is not JSON"),
        ("agent", '{"turn_timeout_s": Infinity}', "bad setting agent.turn_timeout_s: inf; accepte"),
    ],
)
def test_a_wrong_setting_is_told_as_an_operator_writes_it(
    section: str, document: str, said: str
) -> None:
    with pytest.raises(WireError) as raised:
        from_json({section: document})
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert raised.value.brief.startswith(said)
    assert "sk-1" not in str(raised.value)


def test_what_is_off_follows_from_families_and_tools() -> None:
    assert ToolsSettings().off == OFF_BY_DEFAULT
    chosen = ToolsSettings(enabled=("typed_memory", "memory_context"), disabled=("files", "recall"))
    assert chosen.off == {*FAMILIES["files"], "recall", "search_memory", "write_memory"}


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("libsql://memory-{user_id}.example.org", "https://memory-alice.example.org"),
        ("https://example.org/{user_id}", "https://example.org/alice"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("", ""),
    ],
)
def test_the_address_of_the_server_is_each_users_own(url: str, meant: str) -> None:
    assert MemorySettings(remote_url=url).server_of("alice") == meant


def test_no_setting_holds_a_secret() -> None:
    named = json.dumps(UserSettings.model_json_schema())
    assert not {"api_key", "auth_token", "key", "password", "token"} & {
        word.strip('":') for word in named.split() if word.endswith('":')
    }


def test_the_shell_guest_and_its_probe_do_not_import_settings() -> None:
    script = (
        "import sys, shell_daemon.server, shell_daemon.probe.report; "
        "print([name for name in ('wire.settings', 'pydantic') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({}, 0),
        ({"max_output_tokens": 100}, 100),
        ({"budget": {"day_usd": 1.0}}, 8_192),
        ({"budget": {"day_usd": 1.0}, "thinking": "high"}, 24_576),
        ({"budget": {"day_usd": 1.0}, "thinking": "high", "max_output_tokens": 100}, 100),
    ],
)
def test_answers_are_limited_where_a_budget_needs_it(settings: dict[str, Any], most: int) -> None:
    assert AgentSettings.model_validate(settings).output_limit == most
