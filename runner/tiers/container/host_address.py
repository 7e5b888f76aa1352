"""Servers on this machine, as the egress guest reaches them from its container: at the loopback
address only those that the runner hands over."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

import docker
import psutil
from wire.egress.loopback import handed, is_loopback
from wire.errors import WireError
from wire.settings import ContainerSettings, UserSettings, plain_address

from runner.tiers.container.engine import Engine

_PODMAN: Final = "host.containers.internal"
"""The name by which Podman's containers know the host."""


def has_network() -> bool:
    """Whether the runner has any network but its own loopback; it has none in deploy/compose."""
    return set(psutil.net_if_addrs()) > {"lo"}


def unreachable_servers(
    settings: UserSettings,
    user_id: str,
    container: ContainerSettings,
    environ: Mapping[str, str],
) -> list[tuple[str, str]]:
    """What is wrong with the addresses of servers that lead into the egress guest's own container,
    and what mends each."""
    found = []
    known, hands_over = settings.egress.host_loopback, has_network()
    for setting, text in _named(settings, user_id):
        url, shown = urlsplit(text), plain_address(text)
        if not is_loopback(url.hostname or "") or (hands_over and handed(shown, known)):
            continue
        what = f"{setting} {shown} leads into the egress guest's own container, not to this host"
        if hands_over and handed(shown, [shown]):
            listed = json.dumps([*known, shown])
            found.append((what, f"set host_loopback = {listed} in [egress]"))
            continue
        if handed(shown, known):
            what += ": this runner has no network, so it hands over no server of [egress]"
            what += " host_loopback"
        address = address_of_host(container, environ)
        mended = plain_address(_at(url, address))
        name = setting.rpartition(".")[2]
        found.append((what, f'set {name} = "{mended}", and let that server listen on {address}'))
    return found


def _named(settings: UserSettings, user_id: str) -> Iterator[tuple[str, str]]:
    """The settings with addresses, and the addresses."""
    yield "agent.base_url", settings.agent.url
    yield "memory.remote_url", settings.memory.server_of(user_id)
    for name, server in settings.mcp.servers.items():
        yield f"mcp.servers.{name}.url", server.url


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
