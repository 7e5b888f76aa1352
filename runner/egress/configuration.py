"""What the egress guest of one user is configured with."""

import base64
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
from wire.envelope import Secrets
from wire.settings import EgressSettings, UserSettings
from wire.transport import new_token
from wire.v1 import egress_pb2

from runner.egress.credentials import Placeholders, read_credentials
from runner.egress.grants import Grants
from runner.egress.policy import is_open, limits, policy
from runner.egress.upstreams import upstreams
from runner.workspace.credentials import read_certificates, read_variable
from runner.workspace.mounts import Role

FOR_ALL: Final = (
    *("user_id", "limits", "private_networks", "name_servers"),
    *("ca_pem", "proxy", "proxy_authorization", "own_addresses"),
)
OWN: Final = {
    Role.EGRESS: ("agent_token", "agent", "upstreams"),
    Role.SHELL_EGRESS: ("shell_token", "shell", "credentials", "inspected"),
}
"""What each egress guest is told; what is not listed, such as the keys of the other, it is not."""

_IP: Final = (socket.AF_INET, socket.AF_INET6)


@dataclass(frozen=True, repr=False)
class Kept:
    """What stays the same while the host runs, whatever the settings.

    The tokens are what the other guests must show at their doors, besides their certificates.
    """

    agent_token: str = field(default_factory=new_token)
    shell_token: str = field(default_factory=new_token)
    placeholders: Placeholders = field(default_factory=Placeholders)
    grants: Grants = field(default_factory=Grants)


def build(
    user_id: str,
    settings: UserSettings,
    secrets: Secrets,
    kept: Kept,
    environ: Mapping[str, str],
    memory_next: str = "",
) -> egress_pb2.EgressConfiguration:
    """All that may leave for one user, and the keys for it; see `part`.

    `memory_next` is a token for the memory's server that the agent is to try.
    Raises `ConfigError` for a file or variable that the settings name and that is not there.
    """
    egress = settings.egress
    return egress_pb2.EgressConfiguration(
        user_id=user_id,
        agent_token=kept.agent_token,
        shell_token=kept.shell_token,
        agent=policy(egress.agent, kept.grants.of("agent")),
        shell=policy(egress.shell, kept.grants.of("shell")),
        upstreams=upstreams(settings, user_id, secrets, memory_next),
        limits=limits(egress.limits),
        credentials=read_credentials(egress.credentials, kept.placeholders, environ),
        private_networks=egress.private_networks,
        name_servers=egress.name_servers,
        ca_pem=read_certificates(egress.ca_file, "egress.ca_file"),
        proxy=egress.proxy,
        proxy_authorization=_proxy_authorization(egress, environ),
        inspected=egress.inspect,
        own_addresses=_own_addresses(),
    )


def part(
    configuration: egress_pb2.EgressConfiguration, role: Role
) -> egress_pb2.EgressConfiguration:
    """What the egress guest `role` is told of it: the policy and keys of whom it serves alone."""
    told: dict[str, Any] = {name: getattr(configuration, name) for name in (*FOR_ALL, *OWN[role])}
    return egress_pb2.EgressConfiguration(**told)


def is_wanted(configuration: egress_pb2.EgressConfiguration) -> bool:
    """Whether anything may leave by it at all."""
    policies = (configuration.agent, configuration.shell)
    return bool(configuration.upstreams) or any(map(is_open, policies))


def without_secrets(
    configuration: egress_pb2.EgressConfiguration,
) -> egress_pb2.EgressConfiguration:
    """What people may see of it: no tokens, headers, placeholders and values."""
    return egress_pb2.EgressConfiguration(
        user_id=configuration.user_id,
        upstreams=[
            egress_pb2.EgressUpstream(name=each.name, url=each.url, missing=each.missing)
            for each in configuration.upstreams
        ],
        agent=configuration.agent,
        shell=configuration.shell,
        limits=configuration.limits,
        credentials=[
            egress_pb2.EgressCredential(
                name=each.name, hosts=each.hosts, methods=each.methods, place=each.place
            )
            for each in configuration.credentials
        ],
        private_networks=configuration.private_networks,
        name_servers=configuration.name_servers,
        proxy=configuration.proxy,
        spent=configuration.spent,
        inspected=configuration.inspected,
        own_addresses=configuration.own_addresses,
    )


def _own_addresses() -> list[str]:
    """The public addresses of this machine's interfaces; others are refused anyway."""
    found = {
        each.address for of in psutil.net_if_addrs().values() for each in of if each.family in _IP
    }
    return sorted(
        each for each in found if "%" not in each and ipaddress.ip_address(each).is_global
    )


def _proxy_authorization(egress: EgressSettings, environ: Mapping[str, str]) -> str:
    """The header's value; empty if the proxy wants none."""
    purpose = "egress.proxy_auth_env names it as user:password for egress.proxy"
    user_and_password = read_variable(egress.proxy_auth_env, environ, purpose)
    encoded = base64.b64encode(user_and_password.encode()).decode()
    return f"Basic {encoded}" if user_and_password else ""
