"""Fake agents of two users, access tokens for them, and access files, on real sockets."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from wire.errors import WireError
from wire.identity import Party, Peer
from wire.settings import AccessSettings
from wire.v1 import control_pb2, gateway_pb2_grpc

from runner.access.scopes import Scope
from runner.access.sockets import SERVER_NAME, own_authority
from runner.access.tokens import Tokens
from runner.client.access import AccessFile
from runner.config.models import Config
from runner.host.control import ControlServer
from runner.host.runtime import Runtime, host_lock
from tests.support import parties
from tests.support.gateway.fake_gateway import FakeGateway
from tests.support.ports import free_port
from tests.support.scratch import SCRATCH

USERS = ("alice", "bob")
DAY = timedelta(days=1)


class Served(Protocol):
    """A gateway that is called as `peer`."""

    @property
    def peer(self) -> Peer: ...


class FakeHost:
    """The control socket of a user whose agent a test plays."""

    def __init__(self, config: Config, user_id: str, agent: Served) -> None:
        self._agent = agent
        self._runtime = Runtime.locate(config, user_id)
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        self._runtime.create()
        self._stack.enter_context(host_lock(self._runtime.lock))
        identities = (parties.identity(Party.RUNNER), parties.identity(Party.CLI))
        control = ControlServer(self._runtime, self, *identities)  # type: ignore[arg-type]
        self._stack.push_async_callback(control.stop)
        await control.start()

    async def stop(self) -> None:
        await self._stack.aclose()

    async def gateway(self) -> Peer:
        return self._agent.peer

    async def status(self) -> control_pb2.StatusReply:
        return control_pb2.StatusReply()


@dataclass
class Front:
    """What a test has of it."""

    directory: Path
    config: Config
    tokens: Tokens
    agents: dict[str, FakeGateway]
    hosts: dict[str, FakeHost]
    listen: str

    @property
    def with_access(self) -> Config:
        """The settings with which a server lets people with access files in."""
        access = AccessSettings(socket=self.directory / "a.sock", listen=self.listen)
        return self.config.model_copy(update={"access": access})

    @property
    def alice(self) -> FakeGateway:
        return self.agents["alice"]

    @property
    def bob(self) -> FakeGateway:
        return self.agents["bob"]

    def access(
        self,
        user_id: str = "alice",
        name: str = "laptop",
        *scopes: Scope,
        lifetime: timedelta = DAY,
        tcp: bool = False,
    ) -> AccessFile:
        """A new token for `user_id`, of all scopes where none is named."""
        token, secret = self.tokens.create(user_id, name, frozenset(scopes or Scope), lifetime)
        settings = self.with_access.access
        return AccessFile(
            address=settings.listen if tcp else f"unix:{settings.socket}",
            server_name=SERVER_NAME,
            certificate=own_authority(self.tokens).public,
            token=secret,
            user_id=user_id,
            name=name,
            expires_at=token.expires_at,
        )


@asynccontextmanager
async def open_front() -> AsyncIterator[Front]:
    """Alice and bob with their agents."""
    directory = Path(tempfile.mkdtemp(prefix="oxf", dir=SCRATCH))
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        (directory / "w").mkdir(mode=0o700)
        config = Config(workspace_root=directory / "w", runtime_dir=directory / "r")
        agents, hosts = {}, {}
        for user_id in USERS:
            agent = FakeGateway(f"unix:{directory}/{user_id}.sock")  # type: ignore[abstract]
            agents[user_id] = agent
            await agent.start()
            stack.push_async_callback(agent.stop)
            hosts[user_id] = FakeHost(config, user_id, agent)
            await hosts[user_id].start()
            stack.push_async_callback(hosts[user_id].stop)
        listen = f"127.0.0.1:{free_port()}"
        yield Front(directory, config, Tokens.locate(config), agents, hosts, listen)


@asynccontextmanager
async def stub_of(access: AccessFile) -> AsyncIterator["gateway_pb2_grpc.GatewayAsyncStub"]:
    """The gateway as the holder of an access file calls it."""
    async with access.open_channel() as channel:
        yield gateway_pb2_grpc.GatewayStub(channel)


async def refusal(call: Any) -> WireError:
    """What ends a call, which may have streamed something before. It must not succeed."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except WireError as error:
        return error
    raise AssertionError("the call was answered")
