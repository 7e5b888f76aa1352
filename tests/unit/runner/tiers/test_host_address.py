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
def test_without_a_network_a_loopback_address_is_explained_with_the_one_that_works(
    url: str, works: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner of deploy/compose has none, and can hand nothing over."""
    monkeypatch.setattr(host_address, "has_network", lambda: False)
    monkeypatch.setattr(host_address, "address_of_host", lambda *_: "172.18.0.9")
    ((what, fix),) = found(agent={"provider": "openai", "model": "m", "base_url": url})
    assert url.rstrip("/") in what
    assert "egress guest" in what
    assert fix == f'set base_url = "{works}", and let that server listen on 172.18.0.9'
    memory, mcp = found(memory={"remote_url": url}, mcp={"servers": {"docs": {"url": url}}})
    assert memory[0].startswith("memory.remote_url ")
    assert f'set remote_url = "{works}"' in memory[1]
    assert mcp[0].startswith("mcp.servers.docs.url ")


def test_a_loopback_address_that_can_be_handed_over_is_explained_with_the_setting() -> None:
    url, other = "http://127.0.0.1:11434/v1", "http://localhost:8080"
    agent = {"provider": "openai", "model": "m", "base_url": f"{url}/"}
    ((what, fix),) = found(agent=agent, egress={"host_loopback": [other]})
    assert "egress guest's own container" in what
    assert fix == f'set host_loopback = ["{other}", "{url}"] in [egress]'
    assert found(agent=agent, egress={"host_loopback": [url]}) == []
    ((what, _),) = found(memory={"remote_url": other}, egress={"host_loopback": [url]})
    assert what.startswith("memory.remote_url")


def test_what_is_named_and_cannot_be_handed_over_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_address, "has_network", lambda: False)
    monkeypatch.setattr(host_address, "address_of_host", lambda *_: "172.18.0.9")
    url = "http://127.0.0.1:11434/v1"
    agent = {"provider": "openai", "model": "m", "base_url": url}
    ((what, fix),) = found(agent=agent, egress={"host_loopback": [url]})
    assert "this runner has no network" in what
    assert 'set base_url = "http://172.18.0.9:11434/v1"' in fix


@pytest.mark.parametrize("url", ["", "https://api.example.org/v1", "http://192.168.1.5:11434/v1"])
def test_other_addresses_are_left_alone(url: str) -> None:
    settings = UserSettings(agent=AgentSettings.model_construct(base_url=url))
    assert unreachable_servers(settings, "alice", ContainerSettings(), {}) == []
