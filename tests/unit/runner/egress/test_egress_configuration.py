"""What egress is configured with, and what of it people may see."""

import socket
from types import SimpleNamespace

import psutil
import pytest
from wire.envelope import Secrets
from wire.settings import UserSettings
from wire.v1.egress_pb2 import EgressConfiguration, EgressGrant, EgressPolicy

from runner.egress.configuration import (
    FOR_ALL,
    OWN,
    StableSecrets,
    build,
    is_wanted,
    part,
    without_secrets,
)
from runner.workspace.mounts import SERVED

ENVIRON = {"MODEL": "sk-model-secret-1", "GH": "ghp-secret-2-long", "PROXY": "me:secret-3"}
SETTINGS = UserSettings.model_validate(
    {
        "agent": {"provider": "openai", "model": "m", "api_key_env": "MODEL"},
        "egress": {
            "shell": {"presets": ["pypi"], "allow": ["a.example"], "deny": ["b.example"]},
            "agent": {"ask": True},
            "limits": {"turn_mb": 3, "day_mb": 0},
            "credentials": {
                "github": {"env": "GH", "hosts": ["github.com"], "variable": "GITHUB_TOKEN"}
            },
            "proxy": "http://proxy.example:3128",
            "proxy_auth_env": "PROXY",
            "inspect": ["c.example"],
        },
    }
)


def secrets() -> Secrets:
    return Secrets(api_key=ENVIRON["MODEL"])


def test_policy_limits_and_grants_are_in_it() -> None:
    kept = StableSecrets()
    grant = EgressGrant(rule="preset npm", session_id="one")
    kept.grants.add("shell", grant)
    made = build("alice", SETTINGS, secrets(), kept, ENVIRON)
    assert made.shell == EgressPolicy(
        presets=["pypi"], allow=["a.example"], deny=["b.example"], grants=[grant]
    )
    assert made.agent == EgressPolicy(ask=True)
    assert made.limits.turn_bytes == 3_000_000
    assert made.limits.day_bytes == 0
    assert made.limits.connections == 256


def test_what_people_see_of_it_takes_no_file_and_no_variable() -> None:
    egress = {"ca_file": "/none", "proxy_auth_env": "UNSET", "proxy": "http://proxy.example:3128"}
    credentials = {"github": {"env": "UNSET", "hosts": ["github.com"], "variable": "T"}}
    memory = {"remote_url": "https://db.example", "ca_file": "/none", "auth_token_env": "UNSET"}
    settings = UserSettings.model_validate(
        {"egress": {**egress, "credentials": credentials}, "memory": memory}
    )
    shown = without_secrets(build("alice", settings, Secrets(), StableSecrets(), None))
    assert [each.name for each in shown.credentials] == ["github"]
    assert [each.name for each in shown.upstreams] == ["memory"]


def test_the_hosts_own_public_addresses_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"eth0": [(socket.AF_INET, "93.184.216.34"), (socket.AF_INET, "10.1.2.3")]}
    found["eth1"] = [(socket.AF_INET6, "2606:2800::1"), (socket.AF_INET6, "fe80::1%eth1")]
    found["lo"] = [(socket.AF_INET, "127.0.0.1"), (socket.AF_PACKET, "00:00:00:00:00:00")]
    addresses = {
        name: [SimpleNamespace(family=family, address=address) for family, address in each]
        for name, each in found.items()
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    made = build("alice", SETTINGS, secrets(), StableSecrets(), ENVIRON)
    assert list(made.own_addresses) == ["2606:2800::1", "93.184.216.34"]


def test_nothing_secret_is_shown() -> None:
    kept = StableSecrets()
    made = build("alice", SETTINGS, secrets(), kept, ENVIRON)
    whole, shown = made.SerializeToString(), without_secrets(made).SerializeToString()
    hidden = [kept.agent_token, kept.shell_token, kept.placeholders["github"], ENVIRON["MODEL"]]
    for secret in (*hidden, ENVIRON["GH"]):
        assert secret.encode() in whole
        assert secret.encode() not in shown
    assert made.proxy_authorization.encode() not in shown
    for text in (b"https://api.openai.com", b"pypi", b"github.com", b"proxy.example", b"c.example"):
        assert text in shown


def test_each_egress_is_told_the_policy_and_the_keys_of_whom_it_serves_alone() -> None:
    kept = StableSecrets()
    whole = build("alice", SETTINGS, secrets(), kept, ENVIRON)
    agents, commands = (part(whole, role) for role in SERVED)
    of_agent = [kept.agent_token, ENVIRON["MODEL"]]
    of_commands = [kept.shell_token, kept.placeholders["github"], ENVIRON["GH"]]
    for told, own, others in ((agents, of_agent, of_commands), (commands, of_commands, of_agent)):
        said = told.SerializeToString()
        assert [each for each in own if each.encode() not in said] == []
        assert [each for each in others if each.encode() in said] == []
        assert (told.proxy, told.limits, told.user_id) == (whole.proxy, whole.limits, "alice")
    assert (agents.agent, agents.shell) == (whole.agent, EgressPolicy())
    assert (commands.shell, commands.agent) == (whole.shell, EgressPolicy())
    assert [each.name for each in agents.upstreams] == ["openai"]


def test_what_is_told_to_nobody_is_meant_so() -> None:
    """A field that is added to the configuration is told to one of them, or to both, or is here."""
    told = {*FOR_ALL, *(name for role in SERVED for name in OWN[role])}
    fields = {field.name for field in EgressConfiguration.DESCRIPTOR.fields}
    assert fields - told == {"spent"}


def test_a_grant_is_enough_to_want_it_and_a_denial_is_not() -> None:
    kept = StableSecrets()
    closed = UserSettings()
    assert not is_wanted(build("alice", closed, Secrets(), kept, {}))
    kept.grants.add("shell", EgressGrant(rule="a.example", denied=True))
    assert not is_wanted(build("alice", closed, Secrets(), kept, {}))
    kept.grants.add("agent", EgressGrant(rule="a.example"))
    assert is_wanted(build("alice", closed, Secrets(), kept, {}))
