"""The third guest in a running host: when it runs, and what the others have while it does not."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import wire.envelope
from wire.egress.loopback import LoopbackServer
from wire.errors import Code, WireError
from wire.settings import EgressSettings
from wire.v1 import egress_pb2, gateway_pb2

from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.host.authority import Authority
from runner.host.host import Host
from runner.host.launch import NOTHING
from runner.host.loopback import socket_name
from runner.host.supervisor import Policy
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.mounts import Role
from tests.support.guests.engine import bridge_address
from tests.support.scratch import SCRATCH
from tests.support.servers.scripted_provider import Script, says, scripted

KEY = "sk-of-the-third-guest-4711"
GUARD_S = 60.0
QUICK = Policy(check_interval=0.1, check_timeout=20.0, backoff_first=0.05, stop_grace=2.0)
SLOW_TO_RETURN = Policy(check_interval=0.1, check_timeout=20.0, backoff_first=30.0, stop_grace=2.0)
OPEN = EgressSettings.model_validate({"agent": {"allow": ["example.org"]}})


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxe-") as path:
        yield Path(path)


@pytest.fixture
def provider(tier: str) -> Iterator[Script]:
    with scripted(bridge_address() if tier == "container" else "127.0.0.1") as script:
        yield script


@pytest.fixture(params=["process", pytest.param("container", marks=pytest.mark.docker)])
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def config(root: Path, tier: str = "process", **sections: Any) -> Config:
    return Config.model_validate(
        {
            "workspace_root": root / "ws",
            "runtime_dir": root / "rt",
            "tier": tier,
            "embedder": {"backend": "none"},
            "shell": {"enabled": False},
            **sections,
        }
    )


def with_provider(root: Path, tier: str, provider: Script) -> Config:
    agent = {"provider": "openai", "model": "m", "base_url": provider.base_url, "api_key_env": "K"}
    return config(root, tier, agent=agent)


@asynccontextmanager
async def running(config: Config, policy: Policy = QUICK, **more: Any) -> AsyncIterator[Host]:
    environ = {**os.environ, "K": KEY}
    async with Host(config, "alice", environ=environ, policy=policy, **more) as host:
        yield host


async def guest(host: Host, role: str = "egress") -> Any:
    (found,) = [each for each in (await host.status()).guests if each.role == role]
    return found


async def until_replaced(host: Host, pid: int) -> Any:
    async with asyncio.timeout(GUARD_S):
        while (found := await guest(host)).state != "ready" or found.pid == pid:
            await asyncio.sleep(0.02)
    return found


async def turn(host: Host) -> gateway_pb2.TurnEvent:
    """The end of a turn."""
    async with await GatewayClient.open(await host.gateway(), channel_name="test") as client:
        session = await client.create_session()
        events = [each async for each in client.run_turn(session.session_id, "hi", "")]
        return events[-1]


async def test_a_killed_egress_comes_back_with_what_it_may_let_out(
    root: Path, tier: str, provider: Script
) -> None:
    async with running(with_provider(root, tier, provider)) as host:
        provider.play(says("one"), says("two"))
        assert (await turn(host)).completed.text == "one"
        first, agent = await guest(host), await guest(host, "agent")
        os.kill(first.pid, signal.SIGKILL)
        second = await until_replaced(host, first.pid)
        assert second.restarts == 1
        assert (await turn(host)).completed.text == "two"
        assert [seen.key for seen in provider.seen] == [KEY, KEY]
        assert (await guest(host, "agent")).pid == agent.pid


async def test_while_it_is_away_a_turn_says_so_and_the_agent_goes_on(
    root: Path, provider: Script, tier: str
) -> None:
    async with running(with_provider(root, tier, provider), SLOW_TO_RETURN) as host:
        provider.play(says("never"))
        os.kill((await guest(host)).pid, signal.SIGKILL)
        async with asyncio.timeout(GUARD_S):
            while (await guest(host)).state != "backing_off":
                await asyncio.sleep(0.02)
        failed = (await turn(host)).failed
        assert "egress" in failed.message
        assert not provider.seen
        assert (await guest(host, "agent")).state == "ready"


async def test_it_runs_only_while_something_may_leave(root: Path) -> None:
    settings = [config(root)]
    async with running(settings[0], reload=lambda: settings[0]) as host:
        assert (await guest(host)).state == "disabled"
        assert (await guest(host)).reason == NOTHING[Role.EGRESS]
        with pytest.raises(WireError, match="no egress guest to restart"):
            await host.restart("egress")
        settings[0] = settings[0].model_copy(update={"egress": OPEN})
        await host.reload_egress()
        opened = await guest(host)
        assert (opened.state, opened.restarts) == ("ready", 0)
        await host.restart("egress")
        assert (await guest(host)).pid != opened.pid
        settings[0] = config(root)
        await host.reload_egress()
        assert (await guest(host)).state == "disabled"
        assert not psutil.pid_exists(opened.pid)


async def test_a_key_given_later_hands_its_provider_over(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = replace(LoopbackServer.of("http://127.0.0.1:11434"), provider="ollama")
    apart = replace(ProcessDriver().capabilities, host_loopback=True)
    monkeypatch.setattr(ProcessDriver, "capabilities", apart)
    async with running(config(root, egress={"host_loopback": [str(server)]})) as host:
        socket = host.workspace.host_sockets / socket_name(server)
        await host.set_credential("ollama", KEY, "this test")
        assert socket.is_socket()
        assert (await guest(host)).details == f"reaches on this machine: {server}"
        await host.clear_credential("ollama")
        assert not socket.exists()


@pytest.mark.bubblewrap
async def test_that_of_commands_runs_only_while_commands_may_reach_something(root: Path) -> None:
    async with running(config(root, shell={"enabled": True})) as host:
        assert (await guest(host, "shell-egress")).state == "disabled"
        assert (await guest(host, "shell-egress")).reason == NOTHING[Role.SHELL_EGRESS]
        with pytest.raises(WireError, match="no shell-egress guest to restart"):
            await host.restart("shell-egress")
        grant = egress_pb2.EgressGrant(rule="example.org")
        assert await host.grant_egress("shell", grant, withdraw=False)
        opened = await guest(host, "shell-egress")
        assert (opened.state, opened.restarts) == ("ready", 0)
        assert (await guest(host)).state == "disabled"
        await host.restart("shell-egress")
        again = await guest(host, "shell-egress")
        assert (again.state, again.pid != opened.pid) == ("ready", True)
        assert (await host.get_egress()).shell_guest.pid == again.pid
        assert await host.grant_egress("shell", grant, withdraw=True)
        assert (await guest(host, "shell-egress")).state == "disabled"
        assert not psutil.pid_exists(again.pid)


async def test_a_restart_of_another_guest_takes_up_what_may_leave(root: Path) -> None:
    settings = [config(root)]
    async with running(settings[0], reload=lambda: settings[0]) as host:
        settings[0] = settings[0].model_copy(update={"egress": OPEN})
        await host.restart("agent")
        assert (await guest(host)).state == "ready"


async def test_settings_that_cannot_be_used_leave_what_was_there(root: Path) -> None:
    settings = [config(root, egress={"agent": {"allow": ["example.org"]}})]
    async with running(settings[0], reload=lambda: settings[0]) as host:
        before = await guest(host)
        missing = root / "missing.pem"
        settings[0] = config(root, egress={**OPEN.model_dump(), "ca_file": missing})
        with pytest.raises(WireError, match=r"missing\.pem"):
            await host.reload_egress()
        settings[0] = config(root, shell={"enabled": True})
        with pytest.raises(WireError, match=r"shell\.enabled has changed"):
            await host.restart()
        assert (await guest(host)).pid == before.pid
        assert (await host.get_egress()).configuration.agent.allow == ["example.org"]


async def test_the_status_does_not_need_the_files_that_settings_name(root: Path) -> None:
    ca_file = root / "ca.pem"
    ca_file.write_text(Authority.new().public)
    async with running(config(root, egress={**OPEN.model_dump(), "ca_file": ca_file})) as host:
        ca_file.unlink()
        assert (await guest(host)).state == "ready"


async def test_an_egress_of_another_version_refuses_the_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire.envelope, "ENVELOPE_VERSION", 999)
    opened = config(root, egress=OPEN.model_dump())
    with pytest.raises(WireError, match="version 999") as raised:
        async with running(opened):
            pass
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert not [each for each in psutil.process_iter(["cwd"]) if str(root) in str(each.info["cwd"])]
