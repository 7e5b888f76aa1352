"""A host's control server. Its host is real, the guests are stand-ins; it never obeys `Stop`."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from wire.identity import Party, Peer
from wire.settings import EmbedderSettings
from wire.v1 import control_pb2, egress_pb2

from runner.config.models import Config
from runner.host.control import ControlServer
from runner.host.host import Host
from runner.host.runtime import Runtime
from runner.host.supervisor import Policy
from tests.fuzz.material import Target
from tests.fuzz.targets.rpc import calls
from tests.fuzz.targets.rpc.calls import Caller, Served
from tests.support import parties
from tests.support.guests.fake_tier import FakeDriver

_SERVICE: Final = control_pb2.DESCRIPTOR.services_by_name["RunnerControl"]
_QUICK: Final = Policy(ready_poll=0.005, check_interval=60, backoff_first=0.01, stop_grace=0.1)


class _Controlled:
    """A host that notes what it is asked, goes on, and has no memory server."""

    def __init__(self, host: Host, reached: list[str]) -> None:
        self._host = host
        self._reached = reached

    async def status(self) -> control_pb2.StatusReply:
        self._reached.append("Status")
        return await self._host.status()

    async def gateway(self) -> Peer:
        self._reached.append("Connect")
        return await self._host.gateway()

    async def restart(self, role: str) -> None:
        self._reached.append("Restart")
        await self._host.restart(role)

    async def check_boundary(self) -> control_pb2.BoundaryReport:
        self._reached.append("CheckBoundary")
        return await self._host.check_boundary()

    async def set_memory_token(self, auth_token: str) -> None:
        self._reached.append("SetMemoryToken")

    async def set_credential(self, provider: str, key: str, source: str, origin: str = "") -> bool:
        self._reached.append("SetCredential")
        return await self._host.set_credential(provider, key, source, origin)

    async def clear_credential(self, provider: str) -> bool:
        self._reached.append("ClearCredential")
        return await self._host.clear_credential(provider)

    async def list_credentials(self) -> list[control_pb2.Credential]:
        self._reached.append("ListCredentials")
        return await self._host.list_credentials()

    async def follow_egress(self) -> AsyncGenerator[egress_pb2.EgressEvent]:
        self._reached.append("FollowEgress")
        yield egress_pb2.EgressEvent()

    def metrics(self) -> str:
        self._reached.append("Metrics")
        return self._host.metrics()

    async def get_egress(self) -> control_pb2.GetEgressReply:
        self._reached.append("GetEgress")
        return await self._host.get_egress()

    async def reload_egress(self) -> list[str]:
        self._reached.append("ReloadEgress")
        return []

    async def grant_egress(
        self, role: str, grant: egress_pb2.EgressGrant, *, withdraw: bool
    ) -> bool:
        self._reached.append("GrantEgress")
        return await self._host.grant_egress(role, grant, withdraw=withdraw)

    def request_stop(self) -> None:
        self._reached.append("Stop")


async def _serve(scratch: Path, stack: AsyncExitStack) -> Caller:
    config = Config(
        workspace_root=scratch / "users",
        runtime_dir=scratch / "run",
        tier="process",
        embedder=EmbedderSettings(backend="none"),
    )
    host = Host(
        config, "alice", driver=FakeDriver(), policy=_QUICK, environ={}, working_directory=scratch
    )
    await stack.enter_async_context(host)
    runtime = Runtime.locate(config, "fuzzed")
    runtime.create()
    reached: list[str] = []
    identities = parties.identity(Party.RUNNER), parties.identity(Party.CLI)
    server = ControlServer(runtime, _Controlled(host, reached), *identities)
    await server.start()
    stack.push_async_callback(server.stop)
    served = Served(
        path=str(runtime.socket),
        party=Party.RUNNER,
        token=server.token,
        service=_SERVICE,
        callers=(Party.CLI,),
        reached=reached,
        words=("embedder", "agent"),
    )
    return calls.calling(served, stack)


TARGET = Target(
    "control", 42, partial(calls.opened, _serve), partial(calls.seeds, _SERVICE), longest=512
)
