"""A provider on the loopback of the runner's machine, for guests in containers: the agent's egress
reaches it by the runner's socket, and no other guest of this or another user does."""

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import pytest
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.host.host import Host
from runner.workspace.mounts import Role
from tests.support.scratch import SCRATCH
from tests.support.servers.model_servers import ollama, serving, tag
from tests.support.servers.scripted_provider import Script, says, scripted

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("loopback_in_containers")]

KEY = "sk-of-the-loopback-server"
TRY = """
import errno, json, os, socket, sys
port, found = int(sys.argv[1]), {}
for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port))):
    try:
        found[address[0]] = errno.errorcode.get(socket.socket(family).connect_ex(address), "OK")
    except OSError as error:
        found[address[0]] = errno.errorcode[error.errno]
found["/host"] = os.path.exists("/host")
found["sockets"] = sorted(
    os.path.join(place, name)
    for top in ("/ipc", "/egress", "/shell", "/agent", "/shared", "/tmp", "/run", "/.oxydra")
    for place, _, names in os.walk(top)
    for name in names
    if len(name) == 21 and name.endswith(".sock")
)
print(json.dumps(found))
"""


@pytest.fixture
def provider() -> Iterator[Script]:
    with scripted("127.0.0.1") as script:
        yield script


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxe-") as path:
        yield Path(path)


def openai(script: Script) -> dict[str, str]:
    return {"provider": "openai", "model": "m", "base_url": script.base_url, "api_key_env": "K"}


def config(root: Path, agent: dict[str, str], handed: list[str]) -> Config:
    return Config.model_validate(
        {
            "workspace_root": root / "ws",
            "runtime_dir": root / "rt",
            "tier": "container",
            "embedder": {"backend": "none"},
            "agent": agent,
            "egress": {"host_loopback": handed, "shell": {"allow": ["example.org"]}},
        }
    )


@asynccontextmanager
async def running(config: Config, user_id: str = "alice", **more: Any) -> AsyncIterator[Host]:
    async with Host(config, user_id, environ={**os.environ, "K": KEY}, **more) as host:
        yield host


async def turn(host: Host) -> gateway_pb2.TurnEvent:
    async with await GatewayClient.open(await host.gateway(), channel_name="test") as client:
        session = await client.create_session()
        events = [each async for each in client.run_turn(session.session_id, "hi", "")]
        return events[-1]


def tried_in(root: Path, user_id: str, role: Role, port: int) -> dict[str, Any]:
    """What a guest finds of a server of the loopback, from inside."""
    client = docker.from_env()
    place = str(root / "ws" / user_id)
    (guest,) = (
        each
        for each in client.containers.list(ignore_removed=True)
        if str(each.name).endswith(f"-{user_id}-{role}")
        and any(mount.get("Source", "").startswith(place) for mount in each.attrs["Mounts"])
    )
    python = "/opt/oxydra/bin/python"
    done = guest.exec_run([python, "-c", TRY, str(port)])
    assert done.exit_code == 0, done.output
    assert isinstance(done.output, bytes)
    return dict(json.loads(done.output))


@pytest.mark.attempt(
    "an agent, commands or their egress: a server of the host's loopback that is handed to egress",
    stopped_by="no socket and no network lead there",
)
async def test_only_the_agents_egress_reaches_a_server_that_is_handed_over(
    root: Path, provider: Script
) -> None:
    port = urlsplit(provider.base_url).port
    assert port is not None
    provider.play(*[says("here I am")] * 3)
    async with running(config(root, openai(provider), [provider.base_url])) as host:
        assert not any("loopback" in notice for notice in host.notices)
        event = await turn(host)
        assert event.WhichOneof("event") == "completed", event
        status = await host.status()
        assert status.boundary.passed
        details = {each.role: each.details for each in status.guests}
        assert details[Role.EGRESS] == f"reaches on this machine: {provider.base_url}"
        assert [role for role, said in details.items() if "this machine" in said] == [Role.EGRESS]
        for role in (Role.AGENT, Role.SHELL, Role.SHELL_EGRESS):
            found = tried_in(root, "alice", role, port)
            assert found.pop("127.0.0.1") in ("ECONNREFUSED", "ENETUNREACH")
            assert found.pop("::1") in ("ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL")
            assert found == {"/host": False, "sockets": []}
        await host.restart()
        assert (await turn(host)).WhichOneof("event") == "completed"
    assert list((root / "ws" / "alice" / "ipc" / "host").iterdir()) == []
    async with running(
        config(root, openai(provider), [provider.base_url])
    ) as host:  # another runner
        assert (await turn(host)).WhichOneof("event") == "completed"


async def test_what_is_not_handed_over_is_refused_and_a_reload_hands_it_over(root: Path) -> None:
    """An Ollama, which is asked by its own API."""
    with serving(ollama(tag("m", "tools"))) as server:
        where = f"http://127.0.0.1:{server.port}/v1"
        agent = {"provider": "ollama", "model": "m", "base_url": where}
        now = [config(root, agent, [])]
        async with running(now[0], reload=lambda: now[0]) as host:
            (notice,) = (each for each in host.notices if "loopback" in each)
            assert f'set host_loopback = ["{where}"] in [egress]' in notice
            assert "cannot be reached" in (await turn(host)).failed.message
            assert list((root / "ws" / "alice" / "ipc" / "host").iterdir()) == []
            now[0] = config(root, agent, [where])
            await host.reload_egress()
            assert (await turn(host)).WhichOneof("event") == "completed"
            assert server.asked == ["POST /api/show", "POST /api/chat"]
            assert not any("loopback" in notice for notice in host.notices)
