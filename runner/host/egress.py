"""A user's egress guests: each runs while anything may leave by it, and is told what may."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import grpc
from wire.egress import policy
from wire.egress.loopback import LoopbackServer
from wire.errors import Code, WireError
from wire.status import answered
from wire.v1 import control_pb2, egress_pb2, egress_pb2_grpc, shell_pb2

from runner.egress.configuration import part, without_secrets
from runner.egress.watcher import EgressWatcher
from runner.errors import HostError
from runner.host.launch import EgressLauncher
from runner.host.supervisor import Adopt, Policy, Supervisor, disabled
from runner.tiers.base import Handle, TierDriver
from runner.workspace.mounts import SERVED, Role

log = logging.getLogger(__name__)

_CONFIGURE_S: Final = 10.0
_COUNTERS_S: Final = 3.0


@dataclass(repr=False, eq=False)
class Egress:
    """One egress guest of one user: the agent's, or the commands'.

    `on_handle` is as for `Supervisor`. `configured` is called after each change of what may leave,
    so that the shell guest hears of it. `label` is what people read instead of the role.
    """

    driver: TierDriver
    role: Role
    launcher: EgressLauncher
    watcher: EgressWatcher
    on_handle: Callable[[Handle | None], None]
    configured: Callable[[], Awaitable[None]]
    policy: Policy | None = None
    adopt: Adopt | None = None
    label: str = ""

    def __post_init__(self) -> None:
        self._let_out = self.driver.capabilities.let_out
        self._handle: Handle | None = None
        self._authority = ""
        self._handed: frozenset[LoopbackServer] = frozenset()
        self._changing = asyncio.Lock()
        self._idle = self.why_idle
        self._since = datetime.now(UTC)
        self.supervisor = Supervisor(
            self.driver,
            self.label or self.role,
            lambda: self.launcher.prepare(self.role),
            on_handle=self._record,
            policy=self.policy,
            verify=self._verify,
            adopt=self.adopt,
        )

    @property
    def wanted(self) -> bool:
        """Whether it runs, or would if nothing kept it from running."""
        return not self._idle

    @property
    def why_idle(self) -> str:
        """Why there is nothing to do for it by the settings of now; empty if there is."""
        return self.launcher.why_idle(self.role)

    async def start(self) -> None:
        """Start the guest if anything may leave. Raises like `Supervisor.start`."""
        async with self._changing:
            if self._is_wanted():
                await self.supervisor.start()

    async def stop(self) -> None:
        """End the guest. Idempotent."""
        await self.supervisor.stop()
        await self.watcher.close()

    async def release(self) -> None:
        """Leave the guest to the next runner."""
        await self.supervisor.release()
        await self.watcher.close()

    def take(self, launcher: EgressLauncher) -> None:
        """Use other settings from the next configuration on. The tokens of the listeners stay."""
        launcher.kept = self.launcher.kept
        self.launcher = launcher

    async def restart(self) -> None:
        """Start the guest again, or end it if nothing may leave any more. Raises like
        `Supervisor.restart`."""
        async with self._changing:
            if self._is_wanted():
                await self.supervisor.restart()
            else:
                await self._end()

    async def reconfigure(self) -> bool:
        """Take up what the launcher's settings and secrets are now, without a restart; start the
        guest if only now something may leave, and end it if nothing may any more.

        Returns whether a running guest has taken it; otherwise the next one gets it. Raises
        `WireError` if it refuses, or if a guest that is only now wanted does not start; then
        nothing goes out.
        """
        async with self._changing:
            running = self.wanted and self.supervisor.alive
            if not self._is_wanted():
                await self._end()
                return True
            if not running:
                await self.supervisor.start()
                return True
            try:
                channel = await self.supervisor.channel()
            except HostError as error:
                log.info("egress gets the settings later: %s", error.brief)
                return False
            await self._configure(channel)
            return True

    async def status(self) -> control_pb2.GuestStatus:
        """The current state of the guest, which is asked."""
        if self.wanted:
            found = await self.supervisor.status()
            if self._handed:
                servers = ", ".join(sorted(map(str, self._handed)))
                found.details = f"reaches on this machine: {servers}"
            return found
        return disabled(self.role, self._idle, self._since)

    async def counters(self) -> egress_pb2.EgressCountersReply | None:
        """What has left by it. None if the guest does not answer."""
        if (await self.status()).state == "ready":
            with contextlib.suppress(WireError):
                counters = egress_pb2_grpc.EgressStub(await self.supervisor.channel()).Counters
                request = egress_pb2.EgressCountersRequest()
                found: egress_pb2.EgressCountersReply = await answered(
                    counters(request, timeout=_COUNTERS_S)
                )
                return found
        return None

    def for_shell(self) -> shell_pb2.SetEgressRequest:
        """What the shell guest is told about its way out, which this is: none while it may reach
        nothing."""
        if not self.wanted:
            return shell_pb2.SetEgressRequest()
        return self.launcher.shell_egress_settings(self._authority, self._handle)

    def _is_wanted(self) -> bool:
        idle = self.why_idle
        if bool(idle) is self.wanted:
            self._since = datetime.now(UTC)
        self._idle = idle
        return self.wanted

    async def _end(self) -> None:
        await self.supervisor.stop()
        await self.configured()

    def _record(self, handle: Handle | None) -> None:
        self._handle = handle
        if handle is None:
            self.watcher.ended()
        self.on_handle(handle)

    async def _verify(self, channel: grpc.aio.Channel) -> None:
        await self._configure(channel)
        await self.watcher.attend(self.supervisor.current.peer)

    async def _configure(self, channel: grpc.aio.Channel) -> None:
        configure = egress_pb2_grpc.EgressStub(channel).Configure
        request = part(self.launcher.configuration(), self.role)
        request.spent.extend(self.watcher.spent)
        if self._let_out is not None:
            await self._let_out(request, self.role)
        reply: egress_pb2.EgressConfigured = await answered(
            configure(request, timeout=_CONFIGURE_S)
        )
        # In a tunnel a command meets who opens TLS behind egress, such as a company's proxy.
        self._authority = "\n".join(filter(None, (request.ca_pem, reply.authority_pem)))
        self._handed = self.launcher.handed if self.role is Role.EGRESS else frozenset()
        await self.configured()


class EgressGuests:
    """The two egress guests of one user. What one of them suffers, the other does not."""

    def __init__(self, agents: Egress, commands: Egress) -> None:
        self.agents = agents
        self.commands = commands

    def __iter__(self) -> Iterator[Egress]:
        return iter((self.agents, self.commands))

    async def reconfigure(self) -> bool:
        """See `Egress.reconfigure`. Both are told, also if one refuses."""
        done = await asyncio.gather(*(each.reconfigure() for each in self), return_exceptions=True)
        for failure in done:
            if isinstance(failure, BaseException):
                raise failure
        return all(done)

    def granted(self, role: str, grant: egress_pb2.EgressGrant) -> None:
        """Keep what a person has allowed. The running guest knows it already. Raises `HostError`
        if it cannot be kept, or the rules of now would not ask for it."""
        now: egress_pb2.EgressPolicy = getattr(
            self.agents.launcher.configuration(reads=False), role
        )
        (rule, *_) = policy.rules_of(grant.rule)
        verdict = policy.Policy.of(now).decide(policy.attempt_by(rule), grant.session_id)
        if verdict.asks_for == grant.rule:
            self.agents.launcher.kept.grants.add(role, grant)
        elif verdict.decision != "allow":
            raise HostError(Code.FAILED_PRECONDITION, "the rules have changed since it was asked")

    async def grant(
        self, role: str, *wanted: egress_pb2.EgressGrant, withdraw: bool = False
    ) -> bool:
        """Allow or deny something until the host ends, or take that back.

        Returns whether it changed anything. Raises like `reconfigure`, and `HostError` for what is
        no grant.
        """
        grants = self.agents.launcher.kept.grants
        change = grants.withdraw if withdraw else grants.add
        changed = sum(change(role, each) for each in wanted) > 0
        if changed:
            (guest,) = (each for each in self if SERVED[each.role] == role)
            await guest.reconfigure()
        return changed

    async def described(self) -> control_pb2.GetEgressReply:
        """What may leave and what has left, as far as the guests answer."""
        configuration = self.agents.launcher.configuration(reads=False)
        reply = control_pb2.GetEgressReply(
            guest=await self.agents.status(),
            shell_guest=await self.commands.status(),
            configuration=without_secrets(configuration),
        )
        for counted in await asyncio.gather(*(each.counters() for each in self)):
            if counted is not None:
                reply.counters.counts.extend(counted.counts)
                reply.counters.open += counted.open
                reply.counters.SetInParent()
        return reply
