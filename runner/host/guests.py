"""A user's agent guest and, if there is one, the shell guest.

They start in parallel and are watched separately: either can die and come back without the other.
The shell guest is ready only once its boundary has passed the self-test.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import grpc
from wire.errors import Code, WireError
from wire.v1 import bootstrap_pb2, control_pb2, gateway_pb2

from runner.audit.watcher import Watcher
from runner.boundary.check import admit, require_passed
from runner.boundary.spec import new_canary
from runner.client.gateway import GatewayClient
from runner.errors import HostError
from runner.host.launch import Launchers
from runner.host.runtime import save_state
from runner.host.supervisor import Launch, NeedsOperator, Policy, Supervisor
from runner.tiers.base import Handle, LaunchSpec, TierDriver
from runner.workspace.mounts import Role

log = logging.getLogger(__name__)

_Reply = TypeVar("_Reply")

Probe = Callable[
    [grpc.aio.Channel, LaunchSpec, Mapping[str, str], str], Awaitable[control_pb2.BoundaryReport]
]
"""Runs the boundary self-test over a connection to the shell guest. It is told how the guest was
launched, the tokens that it must not hold, by their descriptions, and the canary, which stands for
all else in the agent's envelope."""

ROLES: Final = (Role.AGENT.value, Role.SHELL.value)


class Guests:
    """Both supervisors of one user, and what they share.

    `embedder` returns where the embedder is, at each launch. `tokens` are the host's own, by their
    descriptions. From the file `state` the next runner recovers. `watcher` records what the agent
    tells of its calls.
    """

    def __init__(
        self,
        driver: TierDriver,
        launchers: Launchers,
        *,
        embedder: Callable[[], bootstrap_pb2.Link],
        probe: Probe,
        tokens: Mapping[str, str],
        state: Path,
        watcher: Watcher,
        policy: Policy | None = None,
    ) -> None:
        self._watcher = watcher
        self._launchers = launchers
        self._embedder = embedder
        self._probe = probe
        self._tokens = tokens
        self._state = state
        self._handles: dict[Role, Handle] = {}
        self._canary = new_canary()
        self._launched: dict[Role, Launch] = {}
        self._boundary: control_pb2.BoundaryReport | None = None
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        supervise = partial(Supervisor, driver, policy=policy)
        self.agent = supervise(
            Role.AGENT,
            self._prepare_agent,
            on_handle=partial(self._record, Role.AGENT),
            verify=self._attend,
        )
        self.shell: Supervisor | None = None
        if launchers.shell is not None:
            self.shell = supervise(
                Role.SHELL,
                self._prepare_shell,
                on_handle=partial(self._record, Role.SHELL),
                verify=self._verify,
            )

    async def start(self) -> None:
        """Start both; return when both are ready.

        Raises the first failure. The other guest may then still run: call `stop`.
        """
        await _together(supervisor.start() for supervisor in self._all())

    async def stop(self) -> None:
        """End both, even if one fails to end. Idempotent."""
        ended = await asyncio.gather(
            *(supervisor.stop() for supervisor in self._all()), return_exceptions=True
        )
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

    async def restart(self, role: str, launchers: Launchers) -> None:
        """Restart one guest or ("") both with other settings. The agent's token for the shell
        stays.

        Raises `HostError` if the settings turn the shell on or off.
        """
        if (launchers.shell is None) is not (self.shell is None):
            raise changed_while_running("shell.enabled")
        if launchers.shell is not None and self._launchers.shell is not None:
            launchers.shell.agent_token = self._launchers.shell.agent_token
        self._launchers = launchers
        chosen = {Role.AGENT: self.agent, Role.SHELL: self.shell}
        if role:
            chosen = {Role(role): chosen[Role(role)]}
        await _together(each.restart() for each in chosen.values() if each is not None)

    async def statuses(self) -> list[control_pb2.GuestStatus]:
        """The current state of both, which are asked."""
        found = list(await asyncio.gather(*(each.status() for each in self._all())))
        if self.shell is None:
            found.append(
                control_pb2.GuestStatus(
                    role=Role.SHELL,
                    state="disabled",
                    reason=self._launchers.no_shell,
                    since=self._since,
                )
            )
        return found

    def restarts(self) -> dict[str, int]:
        """How often each guest was started again."""
        return {
            role: supervisor.restarts
            for role, supervisor in ((Role.AGENT.value, self.agent), (Role.SHELL.value, self.shell))
            if supervisor is not None
        }

    @property
    def boundary(self) -> control_pb2.BoundaryReport | None:
        """The result of the last boundary self-test; None without a shell guest."""
        return self._boundary

    async def check_boundary(self) -> control_pb2.BoundaryReport:
        """Run the boundary self-test. Raises `HostError` if no shell guest answers."""
        if self.shell is None:
            raise HostError(
                Code.FAILED_PRECONDITION,
                "there is no shell guest, so there is no boundary to probe",
                details=self._launchers.no_shell,
            )
        return await self._probe_shell(await self.shell.channel())

    async def _attend(self, _: grpc.aio.Channel) -> None:
        await self._watcher.attend(self._launched[Role.AGENT].peer)

    async def _verify(self, channel: grpc.aio.Channel) -> None:
        try:
            require_passed(await self._probe_shell(channel))
        except WireError as error:
            raise NeedsOperator(error) from None
        assert self._launchers.shell is not None
        await admit(channel, self._launchers.shell.agent_token)

    def _prepare_agent(self) -> Launch:
        shell = bootstrap_pb2.Link(unavailable_reason=self._launchers.no_shell)
        if self._launchers.shell is not None:
            shell = self._launchers.shell.link
        launch = self._launchers.agent.prepare(
            self._embedder(), shell, self._canary, witnessed=True
        )
        self._launched[Role.AGENT] = launch
        return launch

    def _prepare_shell(self) -> Launch:
        assert self._launchers.shell is not None
        self._launched[Role.SHELL] = launch = self._launchers.shell.prepare()
        return launch

    async def _probe_shell(self, channel: grpc.aio.Channel) -> control_pb2.BoundaryReport:
        shell = self._launched[Role.SHELL]
        assert self._launchers.shell is not None
        tokens = {
            **self._tokens,
            "the agent's token for the shell": self._launchers.shell.agent_token,
            "the embedder's token": self._embedder().token,
            "the shell's own token": shell.peer.token,
        }
        if (agent := self._launched.get(Role.AGENT)) is not None:
            tokens["the gateway's token"] = agent.peer.token
        self._boundary = await self._probe(channel, shell.spec, tokens, self._canary)
        return self._boundary

    def _record(self, role: Role, handle: Handle | None) -> None:
        if handle is None:
            self._handles.pop(role, None)
            if role is Role.AGENT:
                self._watcher.ended()
        else:
            self._handles[role] = handle
        if self._handles:
            save_state(self._state, list(self._handles.values()))
        else:
            self._state.unlink(missing_ok=True)

    def _all(self) -> list[Supervisor]:
        return [self.agent] if self.shell is None else [self.agent, self.shell]


def changed_while_running(setting: str) -> HostError:
    """The error for a restart with a setting that must stay as it is."""
    return HostError(
        Code.FAILED_PRECONDITION,
        f"{setting} has changed in the configuration",
        details="it cannot change while the host runs; the running guests go on",
        resolution="runner stop, then: runner start",
    )


def not_restartable(role: str, no_shell: str) -> HostError:
    """The error for a `role` that cannot restart. `no_shell` says why there is no shell guest."""
    if role == Role.SHELL:
        return HostError(
            Code.FAILED_PRECONDITION, "there is no shell guest to restart", details=no_shell
        )
    if role == "embedder":
        return HostError(
            Code.FAILED_PRECONDITION,
            "the embedder is shared by all users of this host",
            details="it restarts by itself when it dies or hangs",
            resolution="runner status",
        )
    return HostError(
        Code.INVALID_ARGUMENT, f"unknown role {role!r}", details="accepted: agent, shell"
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


async def _together(steps: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all in parallel. The first failure cancels the others and is raised unwrapped."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
