"""A host's control server. Its host is real, the guests are stand-ins; it never obeys `Stop`."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

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

_DONE_BY_NOBODY: Final[dict[str, object]] = {"set_memory_token": None, "reload_egress": []}
"""Methods that are noted and not done, and what they return."""


class _Controlled:
    """A host that notes what it is asked, goes on, and has no memory server."""

    def __init__(self, host: Host, reached: list[str]) -> None:
        self._host = host
        self._reached = reached

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self._reached.append(name.title().replace("_", ""))

        async def nothing(**_: object) -> object:
            return _DONE_BY_NOBODY[name]

        return nothing if name in _DONE_BY_NOBODY else getattr(self._host, name)

    async def gateway(self) -> Peer:
        self._reached.append("Connect")
        return await self._host.gateway()

    async def follow_egress(self) -> AsyncGenerator[egress_pb2.EgressEvent]:
        self._reached.append("FollowEgress")
        yield egress_pb2.EgressEvent()

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
