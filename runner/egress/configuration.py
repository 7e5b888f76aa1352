"""What the egress guest of one user is configured with: what settings and people allow, the servers
that the agent reaches by a name, and commands' credentials, for which the shell guest has
placeholders."""

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

import psutil
from google.protobuf.message import Message
from wire.egress import hosts
from wire.egress.loopback import LOGIN
from wire.egress.rules import new_placeholder
from wire.envelope import Secrets
from wire.errors import Code
from wire.providers import PROVIDERS
from wire.settings import (
    AgentSettings,
    EgressCredentialSettings,
    EgressLimitSettings,
    EgressRoleSettings,
    EgressSettings,
    UserSettings,
    plain_address,
)
from wire.transport import new_token
from wire.v1 import egress_pb2

from runner.egress.grants import Grants
from runner.errors import ConfigError
from runner.workspace import logins
from runner.workspace.credentials import read_certificates
from runner.workspace.keys import read_variable
from runner.workspace.mounts import Role

VALUE_MIN_CHARS: Final = 8
_MARK: Final = "{placeholder}"
_ASKING: Final = ThreadPoolExecutor(4, "names that others choose")
"""A name server that is slow on purpose holds up nothing else here."""

Settings = Mapping[str, EgressCredentialSettings]
_Message = TypeVar("_Message", bound=Message)


class Placeholders(dict[str, str]):
    """What stands for each credential of one user, by its name. It stays the same as long as the
    host runs, because commands that run have it."""

    def __missing__(self, name: str) -> str:
        self[name] = new_placeholder(name)
        return self[name]

    def environment(self, credentials: Settings) -> dict[str, str]:
        return {each.variable: self[name] for name, each in credentials.items() if each.variable}

    def files(self, credentials: Settings) -> dict[str, bytes]:
        """What is in the home directory of commands, by path."""
        return {
            each.file: each.content.replace(_MARK, self[name]).encode()
            for name, each in credentials.items()
            if each.file
        }


def read_credentials(
    credentials: Settings,
    placeholders: Placeholders,
    environ: Mapping[str, str] | None,
    section: str = "egress",
) -> list[egress_pb2.EgressCredential]:
    """The credentials of a section of the settings with their values, for egress alone; without
    values if `environ` is None.

    Raises `ConfigError` that names the variable if it is missing, or its value cannot be a key.
    """
    return [
        egress_pb2.EgressCredential(
            name=name,
            placeholder=placeholders[name],
            value="" if environ is None else _value(f"{section}.credentials.{name}", each, environ),
            hosts=each.hosts,
            methods=each.methods,
            place=each.place,
        )
        for name, each in credentials.items()
    ]


def _value(key: str, settings: EgressCredentialSettings, environ: Mapping[str, str]) -> str:
    purpose = f"{key}.env names it as the credential's value"
    value = read_variable(settings.env, environ, purpose)
    if len(value) < VALUE_MIN_CHARS:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"the value of the environment variable {settings.env} is too short",
            details=f"{purpose}; it has {len(value)} characters. Answers are searched for it, and "
            f"what is shorter than {VALUE_MIN_CHARS} is in them by chance",
            resolution=f"export {settings.env}=…, then start again",
        )
    return value


FOR_ALL: Final = (
    *("user_id", "limits", "private_networks", "name_servers"),
    *("ca_pem", "proxy", "proxy_authorization", "own_addresses"),
)
OWN: Final = {
    Role.EGRESS: ("agent_token", "agent", "upstreams", "runner_token", "runner"),
    Role.SHELL_EGRESS: ("shell_token", "shell", "credentials", "inspected"),
}
"""What each egress guest is told; what is not listed, such as the keys of the other, it is not."""

_IP: Final = (socket.AF_INET, socket.AF_INET6)


@dataclass(frozen=True, repr=False)
class StableSecrets:
    """What stays the same while the host runs, whatever the settings.

    The tokens are what the other guests must show to egress, besides their certificates, and
    what egress must show to the runner.
    """

    agent_token: str = field(default_factory=new_token)
    shell_token: str = field(default_factory=new_token)
    placeholders: Placeholders = field(default_factory=Placeholders)
    grants: Grants = field(default_factory=Grants)
    loopback_token: str = field(default_factory=new_token)
    runner_token: str = field(default_factory=new_token)


def build(
    user_id: str,
    settings: UserSettings,
    secrets: Secrets,
    kept: StableSecrets,
    environ: Mapping[str, str] | None,
    memory_next: str = "",
    section: str = "egress",
) -> egress_pb2.EgressConfiguration:
    """All that may leave for one user, and the keys for it; see `part`.

    `memory_next` is a token for the memory's server that the agent is to try. `section` is that of
    the credentials in the configuration. If `environ` is None, no file and no variable is read: for
    `without_secrets`.
    Raises `ConfigError` for a file or variable that the settings name and that is not there.
    """
    egress = settings.egress
    return egress_pb2.EgressConfiguration(
        user_id=user_id,
        agent_token=kept.agent_token,
        shell_token=kept.shell_token,
        runner_token=kept.runner_token,
        agent=policy(egress.agent, kept.grants.of("agent")),
        shell=policy(egress.shell, kept.grants.of("shell")),
        upstreams=upstreams(settings, user_id, secrets, memory_next, reads=environ is not None),
        limits=limits(egress.limits),
        credentials=read_credentials(egress.credentials, kept.placeholders, environ, section),
        private_networks=egress.private_networks,
        name_servers=egress.name_servers,
        ca_pem="" if environ is None else read_certificates(egress.ca_file, "egress.ca_file"),
        proxy=egress.proxy,
        proxy_authorization="" if environ is None else proxy_authorization(egress, environ),
        inspected=egress.inspect,
        own_addresses=own_addresses(),
    )


def part(
    configuration: egress_pb2.EgressConfiguration, role: Role
) -> egress_pb2.EgressConfiguration:
    """What the egress guest `role` is told of it: the policy and keys of whom it serves alone."""
    return _only(configuration, *FOR_ALL, *OWN[role])


def _only(message: _Message, *names: str) -> _Message:
    """The message with these fields alone."""
    return type(message)(**{name: getattr(message, name) for name in names})


def is_wanted(configuration: egress_pb2.EgressConfiguration) -> bool:
    """Whether anything may leave by it at all."""
    policies = (configuration.agent, configuration.shell, configuration.runner)
    return bool(configuration.upstreams) or any(map(is_open, policies))


def without_secrets(
    configuration: egress_pb2.EgressConfiguration,
) -> egress_pb2.EgressConfiguration:
    """What people may see of it: no tokens, headers, placeholders and values."""
    shown = _only(
        configuration,
        *("user_id", "agent", "shell", "runner", "limits", "private_networks", "name_servers"),
        *("proxy", "spent", "inspected", "own_addresses"),
    )
    for each in configuration.upstreams:
        shown.upstreams.append(_only(each, "name", "url", "missing", "host_socket"))
    for secret in configuration.credentials:
        shown.credentials.append(_only(secret, "name", "hosts", "methods", "place"))
    return shown


def own_addresses() -> list[str]:
    """The public addresses of this machine's interfaces; others are refused anyway."""
    found = {
        each.address for of in psutil.net_if_addrs().values() for each in of if each.family in _IP
    }
    return sorted(
        each for each in found if "%" not in each and ipaddress.ip_address(each).is_global
    )


async def public_addresses(host: str, private: Iterable[hosts.Network] = ()) -> list[str]:
    """The addresses of a host, which are public or in a `private` network. Raises `OSError` if it
    has none, and `PermissionError` for one of this machine, its network or a cloud's metadata."""
    ask = partial(socket.getaddrinfo, host, 443, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_ASKING, ask)
    addresses, ours = [str(place[0]) for *_, place in found], own_addresses()
    for address in addresses:
        if why := hosts.refusal(address, private, ours):
            raise PermissionError(f"{host} is {address}, which may not be reached: {why}")
    return addresses


def proxy_authorization(egress: EgressSettings, environ: Mapping[str, str]) -> str:
    """The header's value; empty if the proxy wants none."""
    purpose = "egress.proxy_auth_env names it as user:password for egress.proxy"
    user_and_password = read_variable(egress.proxy_auth_env, environ, purpose)
    encoded = base64.b64encode(user_and_password.encode()).decode()
    return f"Basic {encoded}" if user_and_password else ""


MEMORY: Final = "memory"
MEMORY_NEXT: Final = "memory-next"
"""The memory's server with a token that is still to be tried."""


def upstreams(
    settings: UserSettings,
    user_id: str,
    secrets: Secrets,
    memory_next: str = "",
    *,
    reads: bool = True,
) -> list[egress_pb2.EgressUpstream]:
    """The providers that are configured or have a key, the memory's server and the MCP servers
    that have an address. `secrets` are all of the user's; `memory_next` is a token for the memory's
    server that the agent is to try. Without `reads`, no certificates are read.

    Raises `ConfigError` for a file of certificates that cannot be read.
    """
    whose = user_id if reads else ""
    found = [*_providers(settings.agent, secrets), *_mcp_servers(settings, secrets, whose)]
    if url := settings.memory.server_of(user_id):
        tokens = {MEMORY: secrets.memory_token}
        if memory_next:
            tokens[MEMORY_NEXT] = memory_next
        ca_pem = read_certificates(settings.memory.ca_file) if reads else ""
        found += [_memory(name, url, token, ca_pem) for name, token in tokens.items()]
    return found


def _memory(name: str, url: str, token: str, ca_pem: str) -> egress_pb2.EgressUpstream:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return egress_pb2.EgressUpstream(name=name, url=url.rstrip("/"), headers=headers, ca_pem=ca_pem)


def _providers(agent: AgentSettings, secrets: Secrets) -> Iterator[egress_pb2.EgressUpstream]:
    keys = {**secrets.provider_keys, agent.provider: secrets.api_key}
    for name, provider in PROVIDERS.items():
        key, is_configured = keys.get(name, ""), name == agent.provider
        if not key and not is_configured:
            continue
        url = urlsplit((agent.base_url if is_configured else "") or provider.url)
        upstream = egress_pb2.EgressUpstream(name=name, url=plain_address(url.geturl()))
        if url.username:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
            upstream.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if key:
            upstream.headers[provider.key_header] = provider.key_form.format(key)
        elif agent.needs_key:
            upstream.missing = f"there is no API key for provider {name!r}"
        yield upstream


def _mcp_servers(
    settings: UserSettings, secrets: Secrets, whose: str
) -> Iterator[egress_pb2.EgressUpstream]:
    for name, server in settings.mcp.servers.items():
        if server.url:
            headers = {
                header: secrets.servers[key]
                for header in server.headers_env
                if (key := f"{name}/{header}") in secrets.servers
            }
            kept = logins.read(whose, name) if whose else None
            login = kept if kept is not None and kept.url == server.url else None
            yield egress_pb2.EgressUpstream(
                name=f"mcp-{name}", url=server.url.rstrip("/"), headers=headers, login=login
            )
            if login is not None:
                renewed_at = plain_address(login.token_url)
                yield egress_pb2.EgressUpstream(name=f"mcp-{name}{LOGIN}", url=renewed_at)


MB: Final = 1_000_000


def policy(
    role: EgressRoleSettings, grants: Iterable[egress_pb2.EgressGrant] = ()
) -> egress_pb2.EgressPolicy:
    """What one role may reach."""
    return egress_pb2.EgressPolicy(
        presets=role.presets, allow=role.allow, deny=role.deny, ask=role.ask, grants=grants
    )


def limits(settings: EgressLimitSettings) -> egress_pb2.EgressLimits:
    return egress_pb2.EgressLimits(
        **{
            name.replace("_mb", "_bytes"): value * MB if name.endswith("_mb") else value
            for name, value in settings
        }
    )


def is_open(policy: egress_pb2.EgressPolicy) -> bool:
    """Whether it allows anything, if only after a question."""
    granted = any(not grant.denied for grant in policy.grants)
    return bool(policy.presets or policy.allow or policy.ask or granted)
