"""Servers on this machine, as a guest in a container reaches them: not at the loopback address."""

import contextlib
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

import docker
from wire.errors import WireError
from wire.settings import AgentSettings, ContainerSettings

from runner.tiers.container.engine import Engine

_PODMAN: Final = "host.containers.internal"
"""The name by which Podman's containers know the host."""


def unreachable_server(
    agent: AgentSettings, container: ContainerSettings, environ: Mapping[str, str]
) -> tuple[str, str] | None:
    """What is wrong with `agent.base_url` for an agent in a container, and the fix; None if it
    leads out of the container."""
    url = urlsplit(agent.base_url)
    if not _is_loopback(url.hostname or ""):
        return None
    address = address_of_host(container, environ)
    what = f"agent.base_url {agent.base_url} leads into the agent's own container, not to this host"
    fix = f'set base_url = "{_at(url, address)}", and let that server listen on {address}'
    return what, fix


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(host)
        return found.is_loopback or found.is_unspecified
    return False


def address_of_host(container: ContainerSettings, environ: Mapping[str, str]) -> str:
    """The host's address on the engine's own bridge, which every network with a way out reaches and
    which stays while the engine runs. A user's network comes and goes with the guests."""
    engine = Engine(container.engine, environ=environ)
    with contextlib.suppress(WireError, docker.errors.DockerException, LookupError):
        if engine.facts().podman:
            return _PODMAN
        with engine.client() as api:
            return str(api.inspect_network("bridge")["IPAM"]["Config"][0]["Gateway"])
    return "172.17.0.1"


def _at(url: SplitResult, address: str) -> str:
    port = f":{url.port}" if url.port else ""
    return url._replace(netloc=f"{address}{port}").geturl()
