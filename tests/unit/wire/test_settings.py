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
from wire.tools import FAMILIES

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


CREDENTIAL = {"env": "TOKEN", "hosts": ["github.com"], "variable": "GITHUB_TOKEN"}


def credential(**changed: object) -> str:
    return json.dumps({"credentials": {"github": {**CREDENTIAL, **changed}}})


@pytest.mark.parametrize("settings", [UserSettings(), CHANGED])
def test_settings_arrive_whole(settings: UserSettings) -> None:
    sections = to_json(settings)
    own = {"memory", "tools", "agent", "shell", "mcp", "egress", "workspace", "notices"}
    assert set(sections) == own
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
        ("mcp", '{"servers": {"a": {}}}', "bad setting mcp.servers.a: set either command or url"),
        (
            "mcp",
            '{"servers": {"a": {"command": "x", "url": "https://x"}}}',
            "bad setting mcp.servers.a: set either command or url",
        ),
        (
            "mcp",
            '{"servers": {"a": {"url": "https://me:pass@x"}}}',
            "bad setting mcp.servers.a.url: the value is not shown",
        ),
        (
            "mcp",
            '{"servers": {"a": {"url": "https://x", "secret_env": {"A": "B"}}}}',
            "bad setting mcp.servers.a: args, env, secret_env, isolated and credentials go with "
            "command",
        ),
        (
            "mcp",
            '{"servers": {"a": {"url": "https://x", "headers_env": {"A": "sk-12345"}}}}',
            "bad setting mcp.servers.a.headers_env.A: the value is not shown",
        ),
        (
            "mcp",
            '{"servers": {"A": {"command": "x"}}}',
            "bad setting mcp.servers.A: 'A' is not a server's name: a small letter",
        ),
        (
            "mcp",
            '{"servers": {"a": {"command": "x", "secret_env": {"A": "sk-12345"}}}}',
            "bad setting mcp.servers.a.secret_env.A: the value is not shown; accepted: the NAME",
        ),
        ("colours", "{}", "bad setting colours: no such setting; accepted: memory, tools"),
        ("shell", '{"deny": ["rm *", " "]}', "bad setting shell.deny: ' '; accepted: a list"),
        (
            "agent",
            '{"provider": "openai", "model": "m", "api_key_env": "K", "fallbacks": ["google:g"]}',
            'bad setting agent: fallbacks: "google:g" cannot answer: set keys.google_env',
        ),
        (
            "agent",
            '{"provider": "azure", "model": "m", "api_key_env": "K"}',
            'bad setting agent: provider "azure" needs an address: set base_url',
        ),
        ("agent", '{"fallbacks": ["g"]}', "bad setting agent.fallbacks"),
        ("agent", '{"api_key_env": "sk-1"}', "bad setting agent.api_key_env: the value is not sho"),
        ("agent", '{"summary_target": 0.8}', "bad setting agent: summary_target 0.8 must be less"),
        ("agent", "{", "a section of settings is not JSON"),
        (
            "egress",
            credential(hosts=["10.0.0.1"]),
            "bad setting egress.credentials.github.hosts: '10.0.0.1' is an address",
        ),
        (
            "egress",
            credential(hosts=["a..b"]),
            "bad setting egress.credentials.github.hosts: 'a..b' is not a host",
        ),
        (
            "egress",
            credential(hosts=["example.org:70000"]),
            "bad setting egress.credentials.github.hosts: 'example.org:70000' has no port",
        ),
        (
            "egress",
            credential(variable=""),
            "bad setting egress.credentials.github: commands would not have it; set variable or",
        ),
        (
            "egress",
            credential(env=""),
            "bad setting egress.credentials.github: env names no variable that holds its value",
        ),
        (
            "egress",
            credential(file="a/../b"),
            "bad setting egress.credentials.github: file leads out of the home directory",
        ),
        (
            "egress",
            credential(file="a", content="a key"),
            "bad setting egress.credentials.github: content has no {placeholder} in it",
        ),
        (
            "egress",
            json.dumps({"credentials": {"a": CREDENTIAL, "b": CREDENTIAL}}),
            "bad setting egress.credentials: two credentials have the variable GITHUB_TOKEN",
        ),
        (
            "egress",
            '{"inspect": ["127.0.0.1:1"]}',
            "bad setting egress.inspect: '127.0.0.1:1' is an",
        ),
        (
            "egress",
            '{"shell": {"allow": ["example.org", "0x7f.1"]}}',
            "bad setting egress.shell.allow: '0x7f.1' is not a rule: it is another spelling of an",
        ),
        (
            "egress",
            '{"agent": {"deny": ["example.org/a/../b"]}}',
            "bad setting egress.agent.deny: 'example.org/a/../b' is not a rule: a path has no",
        ),
        (
            "egress",
            '{"shell": {"presets": ["all"]}}',
            "bad setting egress.shell.presets: 'all'; accepted: a list of presets: pypi, npm",
        ),
        (
            "egress",
            '{"name_servers": ["10.0.0.1:70000"]}',
            "bad setting egress.name_servers: '10.0.0.1:70000'; accepted: a list of addresses",
        ),
        (
            "egress",
            '{"private_networks": ["10.0.0.1/8"]}',
            "bad setting egress.private_networks: '10.0.0.1/8'; accepted: a list of networks",
        ),
        (
            "egress",
            '{"proxy": "http://proxy.example:99999"}',
            "bad setting egress.proxy: the value is not shown; accepted: http://HOST:PORT",
        ),
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


@pytest.mark.parametrize("server", ["10.0.0.53", "10.0.0.53:5353", "fd00::53", "[fd00::53]:5353"])
def test_name_servers(server: str) -> None:
    settings = from_json({"egress": json.dumps({"name_servers": [server]})})
    assert settings.egress.name_servers == (server,)


def test_what_is_off_follows_from_families_and_tools() -> None:
    assert not ToolsSettings().off
    chosen = ToolsSettings(enabled=("file_read",), disabled=("files", "recall"))
    assert chosen.off == {*FAMILIES["files"], "recall"} - {"file_read"}


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


@pytest.mark.parametrize("shared", ["none", "ro", "rw", "downloads"])
def test_a_server_with_a_guest_of_its_own_starts_where_commands_leave_it_nothing(
    shared: str,
) -> None:
    """`npx` and `uvx` run and obey what lies where they start."""
    given = {"command": "npx", "isolated": True, "shared": shared}
    assert McpServerSettings.model_validate(given).directory == "/tmp"
    assert McpServerSettings(command="npx").directory == "/shared"
    if shared in ("ro", "rw"):
        chosen = McpServerSettings.model_validate({**given, "cwd": "/shared/site"})
        assert chosen.directory == "/shared/site"
    else:
        with pytest.raises(ValueError, match="where its guest sees nothing"):
            McpServerSettings.model_validate({**given, "cwd": "/shared/downloads2"})
