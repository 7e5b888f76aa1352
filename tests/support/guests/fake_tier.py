"""A tier in memory: guests are servers in this process that do what they are told.

For tests of what uses a driver. A fake guest reads its envelope and serves real
gRPC health on the endpoint in it, so a supervisor sees no difference.
"""

import asyncio
import contextlib
import io
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wire import envelope
from wire.errors import Code
from wire.identity import Identity, Party
from wire.network_probe import WAYS
from wire.transport import Server
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.errors import TierError
from runner.logs import open_for_append
from runner.tiers.base import Capabilities, Confinement, Handle, Inspection, LaunchSpec, TierDriver
from runner.workspace.mounts import Role

_KILLED = -9
_TERMINATED = 0
_pids = itertools.count(1_000_001)


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """All that a runner asks of an agent at its start; this one has no way out."""

    async def ProbeNetwork(self, request: Any, context: Any) -> gateway_pb2.ProbeNetworkReply:
        return gateway_pb2.ProbeNetworkReply(
            ways=[gateway_pb2.ProbedRoute(name=name, shut=True) for name in WAYS]
        )


@dataclass(frozen=True)
class Behaviour:
    """What a fake guest does. By default it serves until it is stopped.

    `exit_code` ends it at once, `log` goes to its log first, `healthy` false
    lets it run without ever being ready, `obstinate` makes it ignore a polite stop.
    """

    exit_code: int | None = None
    log: str = ""
    healthy: bool = True
    obstinate: bool = False
    start_delay_s: float = 0.0


@dataclass
class FakeGuest:
    """One launched guest; tests kill it or make it hang."""

    spec: LaunchSpec
    behaviour: Behaviour
    pid: int = field(default_factory=lambda: next(_pids))
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _exit_code: int | None = None
    _server: Server | None = None

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def exit_code(self) -> int | None:
        return self._exit_code

    async def run(self) -> None:
        fd = open_for_append(self.spec.log_path, self.spec.home)
        with os.fdopen(fd, "a", encoding="utf-8") as log:
            log.write(self.behaviour.log)
        if self.behaviour.exit_code is not None:
            self._finish(self.behaviour.exit_code)
            return
        settings = envelope.read(io.BytesIO(self.spec.envelope))
        self._server = Server(
            settings.gateway,
            settings.token,
            Identity.of(settings.identity),
            {Party.RUNNER, Party.CLI},
        )
        gateway_pb2_grpc.add_GatewayServicer_to_server(Gateway(), self._server.grpc)  # type: ignore[abstract]
        await self._server.start()
        await self.set_healthy(self.behaviour.healthy)

    async def set_healthy(self, healthy: bool) -> None:
        """What health checks see from now on."""
        if self._server is not None:
            await self._server.set_serving(healthy)

    async def end(self, code: int) -> None:
        """End as a process would: at once, with `code`."""
        if self.running:
            if self._server is not None:
                await self._server.stop(0)
            self._finish(code)

    async def ended(self) -> int | None:
        await self._ended.wait()
        return self._exit_code

    def revive(self) -> None:
        """Run again, as if nobody had ended it."""
        self._ended.clear()

    def _finish(self, code: int) -> None:
        self._exit_code = code
        self._ended.set()


class FakeDriver(TierDriver):
    """See `runner.tiers.base.TierDriver`. `behave` decides per launch what its guest does.

    `launched` lists every guest ever started, newest last. Another `FakeDriver`
    made with the same `world` recovers its guests, as a second runner would.
    """

    def __init__(
        self,
        behave: Callable[[LaunchSpec], Behaviour] = lambda _: Behaviour(),
        world: "FakeDriver | None" = None,
    ) -> None:
        self._behave = behave
        self.world: dict[str, FakeGuest] = {} if world is None else world.world
        self._ours: dict[str, FakeGuest] = {}
        self.launched: list[FakeGuest] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            tier="fake",
            unsupported={Role.SHELL: "the fake tier has no shell guest"},
        )

    async def check(self) -> list[str]:
        return []

    def confinement(self, spec: LaunchSpec) -> Confinement:
        return Confinement(*spec.owner)

    async def start(self, spec: LaunchSpec) -> Handle:
        if reason := self.capabilities.unsupported.get(spec.role):
            raise TierError(Code.FAILED_PRECONDITION, f"no {spec.role} guest here", details=reason)
        behaviour = self._behave(spec)
        await asyncio.sleep(behaviour.start_delay_s)
        guest = FakeGuest(spec, behaviour)
        await guest.run()
        self._ours[spec.launch_id] = self.world[spec.launch_id] = guest
        self.launched.append(guest)
        return Handle("fake", spec.role, spec.user_id, spec.launch_id, {"pid": guest.pid})

    async def inspect(self, handle: Handle) -> Inspection:
        guest = self._ours.get(handle.launch_id)
        if guest is None:
            return Inspection(running=False)
        return Inspection(guest.running, guest.pid, guest.exit_code, 1 if guest.running else 0)

    async def wait(self, handle: Handle) -> int | None:
        guest = self._ours.get(handle.launch_id)
        return None if guest is None else await guest.ended()

    async def stop(self, handle: Handle, grace: float = 5.0) -> None:
        guest = self._ours.get(handle.launch_id)
        if guest is None or not guest.running:
            return
        if grace > 0 and not guest.behaviour.obstinate:
            await guest.end(_TERMINATED)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(guest.ended(), grace)
        await guest.end(_KILLED)

    async def clear(self, user_id: str, home: Path) -> list[str]:
        return []

    async def close(self) -> None:
        pass

    async def recover(self, handle: Handle) -> bool:
        guest = self.world.get(handle.launch_id)
        if guest is None or not guest.running or guest.pid != handle.data.get("pid"):
            return False
        self._ours[handle.launch_id] = guest
        return True
