"""The guests of MCP servers: each like a shell guest, with directories, rules, keys of its own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import grpc
from wire.errors import Code, WireError
from wire.limits import TOOL_GUESTS_MAX
from wire.text import visible_name
from wire.v1 import bootstrap_pb2, control_pb2
from wire.v1 import gateway_pb2 as pb

from runner.audit.watcher import refused
from runner.boundary.check import admit, could_not_run, set_egress
from runner.egress.watcher import EgressWatcher
from runner.errors import HostError
from runner.host.egress import Egress
from runner.host.launch import Launchers, ToolLaunchers
from runner.host.supervisor import NeedsOperator, Policy, Supervisor
from runner.tiers.base import Boundary, Handle, TierDriver
from runner.workspace.mounts import Role

log = logging.getLogger(__name__)


@dataclass(repr=False, eq=False, kw_only=True)
class ToolGuests:
    """Those of one user that run. `launchers` returns what is valid now, `tokens` what a guest must
    not hold, by descriptions, and `watcher` what records the requests of one. `changed` is called
    when guests come or go."""

    driver: TierDriver
    launchers: Callable[[], Launchers]
    boundary: Boundary
    tokens: Callable[[], Mapping[str, str]]
    canary: str
    watcher: Callable[..., EgressWatcher]
    changed: Callable[[], None]
    policy: Policy | None = None

    def __post_init__(self) -> None:
        self._running: dict[str, ToolGuest] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def handles(self) -> list[Handle]:
        """Of all that run, with their ways out."""
        found = [handle for each in self._running.values() for handle in each.handles.values()]
        return [handle for handle in found if handle is not None]

    async def wanted(self, wanted: pb.ToolGuestWanted) -> pb.CallReportReply | None:
        """Start or end a guest, as the agent says; the answer to it, if it waits for one."""
        if not wanted.call_id:
            self.leave(wanted.server)
            return None
        try:
            guest = await self.bring(wanted.server)
        except WireError as error:
            return refused(wanted.call_id, error.brief, error.details, error.resolution)
        return pb.CallReportReply(call_id=wanted.call_id, guest=guest)

    async def bring(self, name: str) -> bootstrap_pb2.Link:
        """Have the guest of the MCP server `name` run. Returns where the agent finds it. Raises
        `WireError` if it cannot; then nothing of it runs."""
        launchers = self.launchers()
        if (own := launchers.tools.get(name)) is None:
            raise HostError(
                Code.FAILED_PRECONDITION,
                f"no guest can be started for the MCP server {visible_name(name[:40])}",
                details=launchers.no_tools or "the settings name none that is isolated",
                resolution="runner restart",
            )
        async with self._locks.setdefault(name, asyncio.Lock()):
            guest = self._running.get(name)
            if guest is None or not (guest.wanted and guest.supervisor.alive):
                await self._end(name)
                if self._closed or len(self._running) >= TOOL_GUESTS_MAX:
                    why = f"at most {TOOL_GUESTS_MAX} tool guests run at once"
                    raise HostError(Code.RESOURCE_EXHAUSTED, why, resolution="try again later")
                guest = self._running[name] = ToolGuest(self, name, own)
                try:
                    await asyncio.gather(guest.egress.start(), guest.supervisor.start())
                except asyncio.CancelledError:
                    self.leave(name)  # in a task of its own: this one may be cancelled again
                    raise
                except BaseException:
                    await self._end(name)
                    raise
            await guest.supervisor.launch()
            return launchers.agent.seen(guest.link)

    async def reconfigure(self) -> None:
        """Have the ways out of all take up what may leave now; a guest that does not is ended."""
        await each_of(*map(self._reconfigured, [*self._running]))

    async def _reconfigured(self, name: str) -> None:
        async with self._locks[name]:
            guest, launchers = self._running.get(name), self.launchers().tools.get(name)
            if guest is not None and guest.wanted and launchers is not None:
                guest.egress.take(launchers[1])
                try:
                    await guest.egress.reconfigure()
                except WireError as error:
                    log.warning("tool-%s does not take its rules and is ended: %s", name, error)
                    self.leave(name)  # its server has it started anew, with what counts now

    def leave(self, name: str) -> None:
        """Begin to end a guest, if it runs."""
        if (guest := self._running.get(name)) is not None:
            guest.wanted = False
            leaving = asyncio.create_task(self._left(name))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def leave_all(self) -> None:
        """Begin to end all: nobody wants them any more."""
        for name in self._running:
            self.leave(name)

    async def stop(self) -> None:
        """End all, for good. Idempotent. Raises the first failure."""
        self._closed = True
        self.leave_all()
        await each_of(*self._leaving)

    async def statuses(self) -> list[control_pb2.GuestStatus]:
        """The current state of those that run, which are asked."""
        running = self._running.values()
        return list(await asyncio.gather(*(each.supervisor.status() for each in running)))

    async def _left(self, name: str) -> None:
        async with self._locks[name]:
            if name in self._running and not self._running[name].wanted:
                await self._end(name)

    async def _end(self, name: str) -> None:
        """One that cannot be ended stays known, and is ended the next time."""
        if (guest := self._running.get(name)) is not None:
            await each_of(guest.supervisor.stop(), guest.egress.stop())
            self._running.pop(name, None)


class ToolGuest:
    """The guest of the MCP server `name`, and its way out."""

    def __init__(self, among: ToolGuests, name: str, launchers: ToolLaunchers) -> None:
        launcher, egress = launchers
        self.wanted = True
        self.handles: dict[Role, Handle | None] = {}
        self.link = launcher.link
        self._among = among
        self._agent_token = launcher.agent_token
        self._admitted: grpc.aio.Channel | None = None
        self.egress = Egress(
            among.driver.beside,
            Role.SHELL_EGRESS,
            egress,
            among.watcher(tool=f"tool-{name}"),
            on_handle=partial(self._record, Role.SHELL_EGRESS),
            configured=self._tell,
            policy=among.policy,
            label=f"tool-{name}-egress",
        )
        self.supervisor = Supervisor(
            among.driver,
            f"tool-{name}",
            launcher.prepare,
            on_handle=partial(self._record, Role.SHELL),
            policy=among.policy,
            verify=self._verify,
        )

    def _record(self, role: Role, handle: Handle | None) -> None:
        self.handles[role] = handle
        self._among.changed()

    async def _verify(self, channel: grpc.aio.Channel) -> None:
        """Let the agent in once the boundary is proven."""
        boundary, launch = self._among.boundary, self.supervisor.current
        tokens = {
            **self._among.tokens(),
            "the agent's token for it": self._agent_token,
            "its own token": launch.peer.token,
        }
        report = await boundary.of_shell(channel, launch.spec, tokens, self._among.canary)
        require_passed(boundary, report, Role.SHELL)
        await admit(channel, self._agent_token)
        self._admitted = channel
        await self._tell()

    async def _tell(self) -> None:
        """Say to the guest how its server gets out. Raises `WireError`."""
        if self._admitted is not None and self._admitted is self.supervisor.connection:
            await set_egress(self._admitted, self.egress.for_shell())


def require_passed(boundary: Boundary, report: control_pb2.BoundaryReport, role: Role) -> None:
    """Raise what keeps a guest from being ready: `NeedsOperator` if its boundary does not hold,
    and a `WireError`, after which it is started again, if the test could not run."""
    try:
        boundary.require_passed(report, role)
    except WireError as error:
        if could_not_run(report):
            raise
        raise NeedsOperator(error) from None


async def each_of(*steps: Awaitable[None]) -> None:
    """Do all, even if some fail. Raises the first failure."""
    for failure in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(failure, BaseException):
            raise failure
