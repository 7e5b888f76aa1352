"""Which servers the settings name, with which keys, for the egress guest."""

from pathlib import Path
from typing import Any

import pytest
from wire.envelope import Secrets
from wire.settings import (
    AgentSettings,
    McpServerSettings,
    McpSettings,
    MemorySettings,
    plain_address,
)
from wire.settings import UserSettings as Settings
from wire.v1 import egress_pb2

from runner.egress.configuration import upstreams

KEY = "sk-0123456789abcdef"


def listed(
    secrets: Secrets, memory_next: str = "", **settings: Any
) -> dict[str, egress_pb2.EgressUpstream]:
    found = upstreams(Settings(**settings), "alice", secrets, memory_next)
    return {each.name: each for each in found}


def agent(provider: Any, **more: Any) -> AgentSettings:
    return AgentSettings(provider=provider, model="m", api_key_env="K", **more)


def test_nothing_is_named_by_default() -> None:
    assert listed(Secrets()) == {}


@pytest.mark.parametrize(
    ("provider", "url", "headers"),
    [
        ("openai", "https://api.openai.com/v1", {"Authorization": f"Bearer {KEY}"}),
        ("anthropic", "https://api.anthropic.com", {"x-api-key": KEY}),
        ("google", "https://generativelanguage.googleapis.com", {"x-goog-api-key": KEY}),
    ],
)
def test_a_provider_has_its_own_address_and_header(
    provider: str, url: str, headers: dict[str, str]
) -> None:
    found = listed(Secrets(api_key=KEY), agent=agent(provider))[provider]
    assert (found.url, dict(found.headers), found.missing) == (url, headers, "")


def test_base_url_is_the_configured_providers_alone() -> None:
    secrets = Secrets(api_key=KEY, provider_keys={"anthropic": "other-key"})
    found = listed(secrets, agent=agent("openai", base_url="http://10.0.0.1:1/v1/"))
    assert found["openai"].url == "http://10.0.0.1:1/v1"
    assert found["anthropic"].url == "https://api.anthropic.com"
    assert dict(found["anthropic"].headers) == {"x-api-key": "other-key"}
    assert set(found) == {"openai", "anthropic"}


def test_a_key_that_is_not_there_is_said() -> None:
    assert "no API key" in listed(Secrets(), agent=agent("openai"))["openai"].missing
    local = AgentSettings(provider="openai", model="m", base_url="http://127.0.0.1:1/v1")
    found = listed(Secrets(), agent=local)["openai"]
    assert (found.missing, dict(found.headers)) == ("", {})


def test_a_password_in_an_address_becomes_a_header() -> None:
    settings = AgentSettings(
        provider="openai", model="m", base_url="https://me:p%40ss@x.example/v1"
    )
    found = listed(Secrets(), agent=settings)["openai"]
    assert found.url == "https://x.example/v1"
    assert dict(found.headers) == {"Authorization": "Basic bWU6cEBzcw=="}


def test_the_memorys_server_is_the_users_own(tmp_path: Path) -> None:
    pem = "-----BEGIN CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(pem)
    memory = MemorySettings(remote_url="libsql://{user_id}.example/", ca_file=tmp_path / "ca.pem")
    found = listed(Secrets(memory_token="token"), memory=memory)["memory"]
    assert (found.url, found.ca_pem) == ("https://alice.example", pem)
    assert dict(found.headers) == {"Authorization": "Bearer token"}
    assert not listed(Secrets(), memory=memory)["memory"].headers
    both = listed(Secrets(memory_token="token"), "next", memory=memory)
    assert dict(both["memory"].headers) == {"Authorization": "Bearer token"}
    assert dict(both["memory-next"].headers) == {"Authorization": "Bearer next"}
    assert both["memory-next"].url == both["memory"].url


def test_an_mcp_server_with_an_address_has_its_headers() -> None:
    servers = {
        "docs": McpServerSettings(url="https://mcp.example/mcp", headers_env={"X-Key": "K"}),
        "git": McpServerSettings(command="git-mcp", cwd=str(Path("/shared"))),
    }
    secrets = Secrets(servers={"docs/X-Key": "value", "git/OTHER": "no"})
    found = listed(secrets, mcp=McpSettings(servers=servers))
    assert set(found) == {"mcp-docs"}
    assert found["mcp-docs"].url == "https://mcp.example/mcp"
    assert dict(found["mcp-docs"].headers) == {"X-Key": "value"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pass@x.example:8/v1?token=s#f", "https://x.example:8/v1"),
        ("http://[::1]:9/", "http://[::1]:9"),
    ],
)
def test_what_the_agent_sees_of_an_address(url: str, shown: str) -> None:
    assert plain_address(url) == shown
