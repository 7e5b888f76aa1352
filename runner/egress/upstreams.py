"""Which servers a user's settings name, as the egress guest reaches them for the agent."""

import base64
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

from wire.envelope import Secrets
from wire.providers import PROVIDERS
from wire.settings import AgentSettings, UserSettings
from wire.v1 import egress_pb2

from runner.workspace.credentials import read_certificates

MEMORY: Final = "memory"
MEMORY_NEXT: Final = "memory-next"
"""The memory's server with a token that is still to be tried."""


def upstreams(
    settings: UserSettings, user_id: str, secrets: Secrets, memory_next: str = ""
) -> list[egress_pb2.EgressUpstream]:
    """The providers that are configured or have a key, the memory's server and the MCP servers
    that have an address. `secrets` are all of the user's; `memory_next` is a token for the memory's
    server that the agent is to try.

    Raises `ConfigError` for a file of certificates that cannot be read.
    """
    found = [*_providers(settings.agent, secrets), *_mcp_servers(settings, secrets)]
    if url := settings.memory.server_of(user_id):
        tokens = {MEMORY: secrets.memory_token}
        if memory_next:
            tokens[MEMORY_NEXT] = memory_next
        ca_pem = read_certificates(settings.memory.ca_file)
        found += [_memory(name, url, token, ca_pem) for name, token in tokens.items()]
    return found


def _memory(name: str, url: str, token: str, ca_pem: str) -> egress_pb2.EgressUpstream:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return egress_pb2.EgressUpstream(name=name, url=url.rstrip("/"), headers=headers, ca_pem=ca_pem)


def without_secrets(url: str) -> str:
    """An address without the user, password and options that it may hold, and without a slash at
    its end."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/")


def _providers(agent: AgentSettings, secrets: Secrets) -> Iterator[egress_pb2.EgressUpstream]:
    keys = {**secrets.provider_keys, agent.provider: secrets.api_key}
    for name, provider in PROVIDERS.items():
        key, is_configured = keys.get(name, ""), name == agent.provider
        if not key and not is_configured:
            continue
        url = urlsplit((agent.base_url if is_configured else "") or provider.url)
        upstream = egress_pb2.EgressUpstream(name=name, url=without_secrets(url.geturl()))
        if url.username:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
            upstream.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        if key:
            upstream.headers[provider.key_header] = provider.key_form.format(key)
        elif agent.needs_key:
            upstream.missing = f"there is no API key for provider {name!r}"
        yield upstream


def _mcp_servers(settings: UserSettings, secrets: Secrets) -> Iterator[egress_pb2.EgressUpstream]:
    for name, server in settings.mcp.servers.items():
        if server.url:
            headers = {
                header: secrets.servers[key]
                for header in server.headers_env
                if (key := f"{name}/{header}") in secrets.servers
            }
            yield egress_pb2.EgressUpstream(
                name=f"mcp-{name}", url=server.url.rstrip("/"), headers=headers
            )
