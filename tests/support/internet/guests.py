"""A user's real guests on the small internet, and attempts from inside them."""

import asyncio
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

from wire.identity import Party
from wire.settings import (
    AgentSettings,
    ContainerSettings,
    EgressSettings,
    EmbedderSettings,
    McpSettings,
)
from wire.transport import open_channel
from wire.v1 import bootstrap_pb2, control_pb2, gateway_pb2_grpc

from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.config.tiers import TierName
from runner.host import host as host_module
from runner.host.host import Host
from runner.host.launch import Launchers
from runner.host.supervisor import Policy
from tests.support import parties
from tests.support.guests.shell_backends import Guest, OverGrpc, Ran
from tests.support.guests.siblings import containers, role_of
from tests.support.internet.images import images_of_this_checkout
from tests.support.internet.internet import Internet
from tests.support.scratch import SCRATCH
from tests.support.tools.tool_guests import Tools

Room = Literal["agent", "shell", "tool"]
"""The guests that have no network; `tool` is that of the MCP server `hostile`."""

CROWD: Final = 300
KEY_NAME: Final = "OPENAI_API_KEY"
_ATTACKER: Final = Path(__file__).with_name("attacker.py")
_POLICY: Final = Policy(check_interval=0.5)


@dataclass
class Guests:
    """One user's host whose guests are ready. `config` is what a reload takes up, `key` is the
    provider's, and `listener` is the agent's."""

    net: Internet
    config: Config
    host: Host
    key: str
    shell: Guest
    gateway: Any
    listener: bootstrap_pb2.Link

    async def command(self, command: str, **fields: Any) -> Ran:
        """Run one in the shell guest, as a turn's."""
        named = {"session_id": "s-1", "turn_id": "t-1", "timeout_ms": 120_000, **fields}
        return await self.shell.run(f"net-{secrets.token_hex(4)}", command, **named)

    async def told(self, room: Room, attempt: str) -> str:
        """What the attacker is told for one attempt from inside a guest."""
        rooms = {"shell": self._in_shell, "agent": self._in_agent, "tool": self._in_tool}
        said = await rooms[room](attempt)
        _, mark, told = said.rpartition("TOLD:")
        assert mark, said
        return str(json.loads(told))

    async def _in_shell(self, attempt: str) -> str:
        ran = await self.command(f"python3 /shared/shell/attacker.py {attempt}")
        return (ran.stderr + ran.stdout).decode()

    async def _in_tool(self, attempt: str) -> str:
        tools = Tools(self.host, self.gateway)
        return await tools.run("hostile", f"python3 /cache/attacker/attacker.py {attempt}")

    async def _in_agent(self, attempt: str) -> str:
        if self.host.tier == "process":
            pid = await self.pid("agent")
            own = self.host.workspace.path / "shared" / "agent" / "attacker.py"
            words = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-I", str(own)]
        else:
            name = self.container("agent")
            words = [
                "docker",
                "exec",
                "-u",
                str(self.host.workspace.owner.uid),
                name,
                "python3",
                "-I",
                "/shared/agent/attacker.py",
            ]
        process = await asyncio.create_subprocess_exec(
            *words, attempt, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await asyncio.wait_for(process.communicate(), 120)
        return said.decode()

    async def guest(self, role: str) -> control_pb2.GuestStatus:
        """What its host says of it now."""
        guests = (await self.host.status()).guests
        return next(guest for guest in guests if guest.role == role)

    async def pid(self, role: str) -> int:
        return (await self.guest(role)).pid

    async def turn(self) -> str:
        """What the agent answers, which asks its provider for that."""
        gateway = await self.host.gateway()
        async with await GatewayClient.open(gateway, channel_name="test") as agent:
            session = await agent.create_session()
            events = [each async for each in agent.run_turn(session.session_id, "well?", "")]
        assert events[-1].HasField("completed"), events[-1]
        return events[-1].completed.text

    def container(self, role: str) -> str:
        """The name of a guest's container."""
        for each in containers(self.host.workspace.path):
            if role_of(each) == role:
                return str(each["Id"])
        raise LookupError(f"no container of the {role}")

    def equip(self) -> None:
        """Put the attacker where each guest sees it, with what each knows."""
        network = self.net.network
        known = {
            "web": self.net.web,
            "private": network.private,
            "names": self.net.name_server,
            "host": network.host,
            "host_port": 22,
            "crowd": CROWD,
        }
        home = self.host.workspace.path
        rooms = {room: home / "shared" / room for room in ("agent", "shell")}
        if (cache := home / "tools" / "hostile" / "cache").is_dir():
            rooms["tool"] = cache / "attacker"
        listener = {
            "path": self._listener_in_agent,
            "token": self.listener.token,
            "authority": self.listener.identity.authority,
        }
        for room, place in rooms.items():
            place.mkdir()
            shutil.copy(_ATTACKER, place)
            told = {**known, "rebind": f"rebind-{room}.example.org"}
            if room == "agent":
                told["listener"] = listener
                identity = self.listener.identity
                (place / "attacker.pem").write_text(f"{identity.key}{identity.certificate}")
            (place / "attacker.json").write_text(json.dumps(told))
            for each in (place, *place.iterdir()):
                each.chmod(0o755)

    @property
    def _listener_in_agent(self) -> str:
        if self.host.tier == "process":
            return self.listener.endpoint.removeprefix("unix:")
        return "/egress/http.sock"


@asynccontextmanager
async def guests(
    net: Internet,
    tier: TierName,
    *,
    environ: Mapping[str, str] | None = None,
    base_url: str = "",
    servers: Mapping[str, Any] | None = None,
    **egress: Any,
) -> AsyncIterator[Guests]:
    """Alice's guests in `tier`, ready, with these MCP servers and settings of `[egress]` besides
    those that find the internet. Her agent asks the internet's own provider, unless `base_url` is
    of another. `environ` is the runner's besides."""
    root = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="eg-"))
    root.chmod(0o755)
    key = f"sk-{secrets.token_hex(24)}"
    container = ContainerSettings()
    if tier != "process":
        runtime = "runsc" if tier == "micro_vm" else container.runtime
        container = ContainerSettings(images=images_of_this_checkout(), runtime=runtime)
    config = Config(
        workspace_root=root / "ws",
        runtime_dir=root / "rt",
        tier=tier,
        embedder=EmbedderSettings(backend="none"),
        container=container,
        agent=AgentSettings(
            provider="openai", model="gpt-5-mini", base_url=base_url, api_key_env=KEY_NAME
        ),
        egress=EgressSettings(**{**net.settings, **egress}),
        mcp=McpSettings.model_validate({"servers": servers or {}}),
    )
    made: list[Launchers] = []

    def noted(*arguments: Any, **options: Any) -> Launchers:
        made.append(Launchers(*arguments, **options))
        return made[-1]

    try:
        async with AsyncExitStack() as stack:
            with mock.patch.object(host_module, "Launchers", noted):
                opened = Host(
                    config,
                    "alice",
                    reload=lambda: ready.config,
                    environ={KEY_NAME: key, **(environ or {})},
                    policy=_POLICY,
                )
                host = await stack.enter_async_context(opened)
            channel = await stack.enter_async_context(open_channel(await host.gateway()))
            link = made[-1].shell
            assert link is not None, host.no_shell
            to_shell = parties.linked(link.link, Party.SHELL)
            shell = Guest(
                OverGrpc(await stack.enter_async_context(open_channel(to_shell))),
                host.workspace.path,
            )
            gateway: Any = gateway_pb2_grpc.GatewayStub(channel)
            ready = Guests(net, config, host, key, shell, gateway, made[-1].egress.link)
            ready.equip()
            yield ready
    finally:
        subprocess.run(["rm", "-rf", root], check=True)
