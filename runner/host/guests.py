"""A user's guests: the agent, the shell if there is one, and an egress of each while anything may
leave by it.

They start in parallel and are watched separately: each can die and come back without the others.
The shell guest is ready only once its boundary has passed the self-test, and learns its way out
only then.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import grpc
from wire.errors import Code, WireError
from wire.identity import Party, Peer
from wire.status import answered
from wire.v1 import bootstrap_pb2, control_pb2, gateway_pb2, gateway_pb2_grpc

from runner.audit.watcher import CallRecorder
from runner.boundary.check import admit, set_egress, together
from runner.client.gateway import GatewayClient
from runner.egress.watcher import EgressWatcher
from runner.errors import HostError
from runner.host.egress import Egress, EgressGuests
from runner.host.launch import Launchers
from runner.host.recovery import RecoveryState, RunningGuest
from runner.host.runtime import Runtime, save_state
from runner.host.supervisor import Launch, Policy, Supervisor, disabled, first_of
from runner.host.tools import ToolGuests, each_of, require_passed
from runner.projects.hiding import require_covered, until_replaced
from runner.tiers.base import Boundary, Handle, Port, TierDriver
from runner.workspace.mounts import SERVED, OpenProject, Role

log = logging.getLogger(__name__)

_Reply = TypeVar("_Reply")

_FAILURES_MAX: Final = 20
_HELLO_S: Final = 5.0
_REASON_CHARS: Final = 1_500
ROLES: Final = (Role.AGENT.value, Role.SHELL.value, *(role.value for role in SERVED))


@dataclass(repr=False, eq=False)
class Guests:
    """The supervisors of one user, and what they share.

    `embedder` returns where the embedder is, at each launch. `tokens` are the host's own, by their
    descriptions. In `runtime` is what the next runner recovers from; of what the last one has left
    in a `handover`, what would be the same today is adopted. `watcher` records what the agent tells
    of its calls, `egress_watchers` what leaves. `self_test` tries what agent and shell reach.
    """

    driver: TierDriver
    launchers: Launchers
    embedder: Callable[[], bootstrap_pb2.Link]
    self_test: Boundary
    tokens: Mapping[str, str]
    runtime: Runtime
    watcher: CallRecorder
    egress_watchers: Mapping[Role, EgressWatcher]
    tool_watcher: Callable[..., EgressWatcher]
    handover: RecoveryState
    policy: Policy | None = None

    def __post_init__(self) -> None:
        driver, launchers, handover = self.driver, self.launchers, self.handover
        self._placement = driver.capabilities.placement
        self._moved = {Role.AGENT: asyncio.Event(), Role.SHELL: asyncio.Event()}
        self._inherited = dict(handover.guests)
        launchers.egress.kept = handover.kept
        if launchers.shell is not None and handover.agent_token:
            launchers.shell.agent_token = handover.agent_token
        self._handles: dict[Role, Handle] = {}
        self._admitted: grpc.aio.Channel | None = None
        self._shell_has_route = False
        self._of_shell: tuple[OpenProject, ...] = ()
        """The projects as the shell guest has them."""
        self.untold: HostError | None = None
        """Why the shell guest does not know how its commands get out; None if it does."""
        self._telling = asyncio.Lock()
        self._reports: dict[Role, control_pb2.BoundaryReport] = {}
        self._since = datetime.now(UTC)
        self._failures: dict[str, gateway_pb2.AddNoticeRequest] = {}
        """What the agent has not yet heard for the person's outbox, by its key."""
        self._passing_on: asyncio.Task[None] | None = None

        def supervised(
            role: Role,
            prepare: Callable[[], Launch],
            verify: Callable[[grpc.aio.Channel], Awaitable[None]],
        ) -> Supervisor:
            return Supervisor(
                driver,
                role,
                prepare,
                verify=verify,
                policy=self.policy,
                on_handle=partial(self._record, role),
                adopt=partial(self._adopt, role),
                guard=partial(self._guard, role),
                on_end=partial(self._failed, role),
            )

        self.agent = supervised(Role.AGENT, self._prepare_agent, self._attend)
        self._confined = {Role.AGENT: self.agent}
        if launchers.shell is not None:
            self._confined[Role.SHELL] = supervised(Role.SHELL, self._prepare_shell, self._verify)
        self.shell = self._confined.get(Role.SHELL)
        self.egress = EgressGuests(
            *(
                Egress(
                    driver.beside,
                    role,
                    launchers.egress,
                    self.egress_watchers[role],
                    on_handle=partial(self._record, role),
                    configured=self._egress_configured,
                    policy=self.policy,
                    adopt=partial(self._adopt, role),
                )
                for role in SERVED
            )
        )
        self.tools = ToolGuests(
            driver=driver,
            launchers=lambda: self.launchers,
            boundary=self.self_test,
            tokens=self._foreign_tokens,
            canary=handover.canary,
            watcher=self.tool_watcher,
            changed=self._save,
            policy=self.policy,
        )

    async def start(self) -> None:
        """Start all; return when all are ready.

        Raises the first failure. The other guests may then still run: call `stop`.
        """
        await _together(each.start() for each in self._all())

    async def stop(self) -> None:
        """End all, even if one fails to end. Idempotent."""
        await each_of(self.tools.stop(), *(each.stop() for each in self._all()))

    async def release(self) -> None:
        """Leave all to the next runner."""
        await self.tools.stop()
        self._save()
        await asyncio.gather(*(each.release() for each in self._all()))
        self.watcher.ended()

    def take(self, launchers: Launchers) -> None:
        """Use other settings from the next launches on. The tokens that the guests have for each
        other stay.

        Raises `HostError` if the settings turn the shell on or off; then nothing changes.
        """
        if (launchers.shell is None) is not (self.shell is None):
            raise changed_while_running("shell.enabled")
        if launchers.shell is not None and self.launchers.shell is not None:
            launchers.shell.agent_token = self.launchers.shell.agent_token
        self.launchers = launchers
        for egress in self.egress:
            egress.take(launchers.egress)

    async def restart(self, role: str) -> None:
        """Restart one guest or ("") all. Egress takes up its settings in any case."""
        steps: list[Callable[[], Coroutine[Any, Any, object]]] = [
            each.restart for own, each in self._confined.items() if role in ("", own)
        ]
        steps += [
            each.restart if role in ("", each.role) else each.reconfigure for each in self.egress
        ]
        steps.append(self.tools.reconfigure)
        await _together(step() for step in steps)

    async def statuses(self) -> list[control_pb2.GuestStatus]:
        """The current state of all, which are asked."""
        asked = (each.status() for each in self._all())
        found = list(await asyncio.gather(*asked))
        for status in found:
            if self.untold is not None and status.role == Role.SHELL and status.state == "ready":
                status.reason, status.details = self.untold.brief, self.untold.details
        if self.shell is None:
            found.insert(1, disabled(Role.SHELL, self.launchers.no_shell, self._since))
        return [*found, *await self.tools.statuses()]

    def restarts(self) -> dict[str, int]:
        return {role: each.restarts for role, each in self._supervisors().items()}

    @property
    def boundary(self) -> control_pb2.BoundaryReport | None:
        """The results of the last boundary self-test, of the shell and of the agent; None before
        the first."""
        known = [self._reports[role] for role in (Role.SHELL, Role.AGENT) if role in self._reports]
        return together(known) if known else None

    async def check_boundary(self) -> control_pb2.BoundaryReport:
        """Run the boundary self-test. Raises `HostError` if a guest does not answer."""
        reports = [await self._probe_agent(await self.agent.channel())]
        if self.shell is not None:
            reports.insert(0, await self._probe_shell(await self.shell.channel()))
        return together(reports)

    async def way_out(self) -> Peer:
        """The agent's egress, as the runner calls it for itself. Raises `WireError`."""
        await self.egress.agents.supervisor.launch()
        egress = self.launchers.egress
        link = self._link(Role.EGRESS, Port.AGENT_LISTENER, egress.link)
        identity = self.handover.authority.issue(Party.RUNNER)
        token = egress.kept.runner_token
        return Peer(link.endpoint, Party.EGRESS, token, identity, link.launch_id)

    async def ask(self, request: gateway_pb2.AskRequest) -> gateway_pb2.AskReply:
        """Ask a person through the agent; waits for the answer. Raises `WireError`."""
        gateway: Any = gateway_pb2_grpc.GatewayStub(await self.agent.channel())
        reply: gateway_pb2.AskReply = await answered(gateway.Ask(request))
        return reply

    async def _attend(self, channel: grpc.aio.Channel) -> None:
        require_passed(self.self_test, await self._probe_agent(channel), Role.AGENT)
        await self.watcher.attend(self.agent.current.peer)
        if self._placement.addressed:
            await GatewayClient(channel, "host").set_peers(self._where())
        await self._pass_failures_on(channel)

    def _failed(self, role: Role, reason: str) -> None:
        """Keep for the person that a guest has failed: once a day for the same reason."""
        told = hashlib.blake2b(reason.encode(), digest_size=8).hexdigest()
        key = f"guest:{role}:{datetime.now(UTC):%Y-%m-%d}:{told}"
        if len(self._failures) < _FAILURES_MAX:
            self._failures[key] = gateway_pb2.AddNoticeRequest(
                kind="guest", text=reason[:_REASON_CHARS], key=key
            )
        is_passing = self._passing_on is not None and not self._passing_on.done()
        if role is not Role.AGENT and not is_passing and (channel := self.agent.connection):
            self._passing_on = asyncio.create_task(self._pass_failures_on(channel))

    async def _pass_failures_on(self, channel: grpc.aio.Channel) -> None:
        """Tell the agent what has failed. What it does not hear, it hears when it starts."""
        try:
            while self._failures:
                key, notice = next(iter(self._failures.items()))
                await GatewayClient(channel, "host").add_notice(notice)
                self._failures.pop(key, None)
        except WireError as error:
            log.info("the agent has not heard what failed: %s", error)

    async def _probe_agent(self, channel: grpc.aio.Channel) -> control_pb2.BoundaryReport:
        report = await self.self_test.of_agent(channel, self.agent.current.spec)
        self._reports[Role.AGENT] = report
        return report

    async def _verify(self, channel: grpc.aio.Channel) -> None:
        require_passed(self.self_test, await self._probe_shell(channel), Role.SHELL)
        assert self.launchers.shell is not None
        await asyncio.to_thread(require_covered, self._of_shell)
        await admit(channel, self.launchers.shell.agent_token)
        self._admitted = channel
        await self._tell_shell()
        await self.tell_agent()

    async def _guard(self, role: Role, channel: grpc.aio.Channel) -> NoReturn:
        """See `Supervisor`. A guest whose network is open is ended, and not started again. A shell
        that sees what is hidden starts anew."""
        launch, changed = self._confined[role].current.spec, self._moved[role]
        opened = self.self_test.until_open(role, channel, launch, changed)
        replaced = until_replaced(self._of_shell if role is Role.SHELL else ())
        report = await first_of(opened, replaced)
        self._reports[role] = report
        require_passed(self.self_test, report, role)
        raise AssertionError("a boundary is said to be open that passes")

    async def tell_agent(self) -> None:
        """Say to the agent where the other guests and the embedder are, if they move. One that
        starts hears it then."""
        if not self._placement.addressed or (channel := self.agent.connection) is None:
            return
        try:
            await GatewayClient(channel, "host").set_peers(self._where())
        except WireError as error:  # its own supervisor finds out what is wrong with it
            log.error("the agent does not hear where the other guests are: %s", error)

    def _where(self) -> gateway_pb2.SetPeersRequest:
        request = gateway_pb2.SetPeersRequest(embedder=self.embedder())
        egress = self.launchers.egress.link
        request.egress.CopyFrom(self._link(Role.EGRESS, Port.AGENT_LISTENER, egress))
        if self.launchers.shell is not None:
            shell = self.launchers.shell.link
            request.shell.CopyFrom(self._link(Role.SHELL, Port.SHELL, shell))
        return request

    def _link(self, role: Role, port: Port, base: bootstrap_pb2.Link) -> bootstrap_pb2.Link:
        return self._placement.link(base, self._handles.get(role), port)

    async def _adopt(self, role: Role, launch: Launch) -> tuple[Launch, Handle] | None:
        """See `Supervisor`. A guest is adopted once, and only if it would be the same today."""
        left = self._inherited.pop(role, None)
        if left is None or left.fingerprint != launch.fingerprint:
            return None
        driver = self.driver
        known = (await driver.inspect(left.handle)).running
        if not (known or await driver.recover(left.handle)):
            return None
        log.info("the %s guest of an earlier runner goes on", role)
        return launch.inherited(left.handle, left.token), left.handle

    async def _tell_shell(self) -> None:
        """Say to a shell guest that has passed the self-test how its commands get out. Raises
        `WireError`."""
        async with self._telling:
            channel = self._admitted
            if channel is None or self.shell is None or channel is not self.shell.connection:
                return  # the next shell is told once it is admitted
            route = self.egress.commands.for_shell()
            if not (route.door or self._shell_has_route):
                return
            await set_egress(channel, route)
            self._shell_has_route = bool(route.door)
            self.untold = None

    async def _egress_configured(self) -> None:
        try:
            await self._tell_shell()
        except WireError as error:
            log.error("the shell does not hear of its way out: %s", error)
            self.untold = HostError(
                Code.UNAVAILABLE,
                "commands do not hear how they get out",
                details=": ".join(filter(None, (error.brief, error.details))),
                resolution="runner restart --role shell",
            )
        await self.tell_agent()
        self._save()

    def _prepare_agent(self) -> Launch:
        peers = self._where()
        if self.launchers.shell is None:
            peers.shell.unavailable_reason = self.launchers.no_shell
        return self.launchers.agent.prepare(
            peers.embedder,
            peers.shell,
            self.handover.canary,
            egress=peers.egress,
            upstreams=self.launchers.egress.upstreams,
            witnessed=True,
        )

    def _prepare_shell(self) -> Launch:
        assert self.launchers.shell is not None
        launch = self.launchers.shell.prepare()
        self._of_shell = self.launchers.shell.workspace.projects
        return launch

    async def _probe_shell(self, channel: grpc.aio.Channel) -> control_pb2.BoundaryReport:
        assert self.launchers.shell is not None
        assert self.shell is not None
        shell = self.shell.current
        tokens = {**self._foreign_tokens(), "the shell's own token": shell.peer.token}
        canary = self.handover.canary
        report = await self.self_test.of_shell(channel, shell.spec, tokens, canary)
        self._reports[Role.SHELL] = report
        return report

    def _foreign_tokens(self) -> dict[str, str]:
        """What no guest that runs commands may hold, by descriptions."""
        tokens = {
            **self.tokens,
            "the embedder's token": self.embedder().token,
            "the agent's token for egress": self.launchers.egress.kept.agent_token,
        }
        if self.launchers.shell is not None:
            tokens["the agent's token for the shell"] = self.launchers.shell.agent_token
        if Role.AGENT in self._handles:
            tokens["the gateway's token"] = self.agent.current.peer.token
        return tokens

    def _record(self, role: Role, handle: Handle | None) -> None:
        if handle is None:
            self._handles.pop(role, None)
            if role is Role.AGENT:
                self.watcher.ended()
                self.tools.leave_all()
            if role is Role.SHELL:
                self._admitted, self._shell_has_route, self.untold = None, False, None
        else:
            self._handles[role] = handle
        for event in self._moved.values():
            event.set()
        self._save()

    def _save(self) -> None:
        """Keep what the next runner needs."""
        handles = [*self._handles.values(), *self.tools.handles]
        if not handles:
            self.runtime.state.unlink(missing_ok=True)
            self.runtime.handover.unlink(missing_ok=True)
        elif self._placement.lasting:
            self._placement.leave(self._now(), self.runtime.handover)
        else:
            save_state(self.runtime.state, handles)

    def _now(self) -> RecoveryState:
        supervisors = self._supervisors()
        left = dict(self._inherited)  # not adopted yet
        for role, handle in self._handles.items():
            launch = supervisors[role].current
            left[role] = RunningGuest(handle, launch.peer.token, launch.fingerprint)
        shell, kept = self.launchers.shell, self.launchers.egress.kept
        token = shell.agent_token if shell is not None else self.handover.agent_token
        return replace(self.handover, agent_token=token, kept=kept, guests=left)

    def _all(self) -> list[Supervisor | Egress]:
        return [*self._confined.values(), *self.egress]

    def _supervisors(self) -> dict[Role, Supervisor]:
        """Of all guests, by their roles."""
        return {**self._confined, **{each.role: each.supervisor for each in self.egress}}


def changed_while_running(setting: str) -> HostError:
    """The error for a restart with a setting that must stay as it is."""
    return HostError(
        Code.FAILED_PRECONDITION,
        f"{setting} has changed in the configuration",
        details="it cannot change while the host runs; the running guests go on",
        resolution="runner stop, then: runner start",
    )


def not_restartable(role: str, why: str) -> HostError:
    """The error for a `role` that cannot restart. `why` says why there is no such guest."""
    if role in (Role.SHELL, *SERVED):
        return HostError(
            Code.FAILED_PRECONDITION, f"there is no {role} guest to restart", details=why
        )
    if role == "embedder":
        return HostError(
            Code.FAILED_PRECONDITION,
            "the embedder is shared by all users of this host",
            details="it restarts by itself when it dies or hangs",
            resolution="runner status",
        )
    return HostError(
        Code.INVALID_ARGUMENT, f"unknown role {role!r}", details=f"accepted: {', '.join(ROLES)}"
    )


async def memory_status(
    agent: Supervisor, guests: Sequence[control_pb2.GuestStatus], *, within_s: float = 1.0
) -> gateway_pb2.MemoryStatisticsReply | None:
    """What the memory holds; None if the agent is not ready or does not answer in time."""
    return await _asked(agent, guests, GatewayClient.memory_statistics, within_s)


async def agent_notices(
    agent: Supervisor, guests: Sequence[control_pb2.GuestStatus], *, within_s: float = 1.5
) -> Sequence[str]:
    """What the agent says at the start of a chat; nothing if it does not answer in time."""
    hello = await _asked(agent, guests, GatewayClient.refresh_hello, within_s)
    return hello.notices if hello is not None else ()


async def hello_of(agent: Supervisor) -> gateway_pb2.HelloReply | None:
    """What the agent says of itself; None if it is not there or does not answer in time."""
    with contextlib.suppress(TimeoutError, WireError):
        async with asyncio.timeout(_HELLO_S):
            if (channel := agent.connection) is not None:
                return await GatewayClient(channel, "host").refresh_hello()
    return None


async def learn_window(agent: Supervisor, guests: Sequence[control_pb2.GuestStatus]) -> None:
    """Let the agent ask its model's server for the window, so that its notices say it."""
    await _asked(agent, guests, GatewayClient.resolve_model, within_s=1.5)


async def _asked(
    agent: Supervisor,
    guests: Sequence[control_pb2.GuestStatus],
    ask: Callable[[GatewayClient], Awaitable[_Reply]],
    within_s: float,
) -> _Reply | None:
    if not any(guest.role == Role.AGENT and guest.state == "ready" for guest in guests):
        return None
    try:
        async with asyncio.timeout(within_s):
            return await ask(GatewayClient(await agent.channel(), "host"))
    except (TimeoutError, WireError):
        return None


async def _together(steps: Iterable[Coroutine[None, None, object]]) -> None:
    """Run all in parallel. The first failure cancels the others and is raised unwrapped."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
