"""Where egress in a container finds servers of its host."""

from typing import Any

import pytest
from wire.settings import AgentSettings, ContainerSettings, UserSettings

from runner.tiers.container import host_address
from runner.tiers.container.host_address import unreachable_servers


def found(**settings: Any) -> list[tuple[str, str]]:
    made = UserSettings.model_validate(settings)
    return unreachable_servers(made, "alice", ContainerSettings(), {})


@pytest.mark.parametrize(
    ("url", "works"),
    [
        ("http://127.0.0.1:11434/v1", "http://172.18.0.9:11434/v1"),
        ("http://localhost:11434/v1", "http://172.18.0.9:11434/v1"),
        ("http://models.localhost/v1", "http://172.18.0.9/v1"),
        ("http://[::1]:8000", "http://172.18.0.9:8000"),
        ("http://0.0.0.0:8000/", "http://172.18.0.9:8000"),
    ],
)
def test_a_loopback_address_is_explained_with_the_one_that_works(
    url: str, works: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def address(*_: Any) -> str:
        return "172.18.0.9"

    monkeypatch.setattr(host_address, "address_of_host", address)
    ((what, fix),) = found(agent={"provider": "openai", "model": "m", "base_url": url})
    assert url.rstrip("/") in what
    assert "egress guest" in what
    assert fix == f'set base_url = "{works}", and let that server listen on 172.18.0.9'
    memory, mcp = found(memory={"remote_url": url}, mcp={"servers": {"docs": {"url": url}}})
    assert memory[0].startswith("memory.remote_url ")
    assert f'set remote_url = "{works}"' in memory[1]
    assert mcp[0].startswith("mcp.servers.docs.url ")


@pytest.mark.parametrize("url", ["", "https://api.example.org/v1", "http://192.168.1.5:11434/v1"])
def test_other_addresses_are_left_alone(url: str) -> None:
    settings = UserSettings(agent=AgentSettings.model_construct(base_url=url))
    assert unreachable_servers(settings, "alice", ContainerSettings(), {}) == []
