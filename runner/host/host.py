"""One user's host: everything that runs while the user's agent does.

    lock ─ workspace ─ log ─ leftovers ─ database ─ embedder ─ control ─ guests

Each step adds its own end to one exit stack, so a failed start and a stop undo the same steps.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wire import locks, zones
from wire.errors import Code, WireError
from wire.identity import Party, Peer
from wire.providers import OFFLINE
from wire.settings import ProjectSettings, UserSettings
from wire.v1 import control_pb2, egress_pb2, gateway_pb2

from runner.audit.log import AuditLog, LogLocation
from runner.audit.watcher import Answers, CallRecorder
from runner.boundary.check import kernel_of
from runner.boundary.local import LocalBoundary
from runner.client.gateway import GatewayClient
from runner.config.models import SMALL_BUDGET, Config
from runner.config.tiers import tables
from runner.config.users import check_servers
from runner.egress.watcher import EgressWatcher
from runner.errors import HostError, packages
from runner.host import awake, projects
from runner.host.advisor import advise, keep_rules
from runner.host.control import ControlServer
from runner.host.credentials import Credentials
from runner.host.embedder import Embedder, EmbedderHome
from runner.host.guests import (
    ROLES,
    Guests,
    agent_notices,
    changed_while_running,
    hello_of,
    learn_window,
    memory_status,
    not_restartable,
)
from runner.host.launch import AGENT_COMMAND, Launchers
from runner.host.loopback import HostLoopback
from runner.host.recovery import RecoveryState
from runner.host.removal import clear_leftovers
from runner.host.runtime import LastStart, Runtime, host_lock
from runner.host.supervisor import Policy
from runner.logs import host_log
from runner.notices.delivery import Delivery
from runner.projects.mapped import MappedMounts
from runner.projects.project import Project, Surroundings, open_all
from runner.tiers.base import SharedEmbedder, TierDriver
from runner.tiers.drivers import driver_for
from runner.workspace import logins
from runner.workspace.database_file import adopt_old_database
from runner.workspace.directories import descriptor
from runner.workspace.disk_space import check_free_space, keep_reserve, passing, release_reserve
from runner.workspace.mounts import Role
from runner.workspace.overflow import quarantine_excess
from runner.workspace.skills import MEND
from runner.workspace.workspace import Workspace

if TYPE_CHECKING:
    from runner.telemetry import Telemetry

log = logging.getLogger(__name__)

_FIXED_WHILE_RUNNING: Final = (
    *("workspace_root", "runtime_dir", "tier", "embedder", "container", "audit", "telemetry"),
    *tables(),
)


@dataclass(repr=False, eq=False)
class Host:
    """The host of one user, in this process. An async context manager; `stop` is idempotent.

    `reload` returns the settings for a `restart`; without it a restart keeps the old ones. The
    projects `opened` are shown besides those of the settings. A `passing` one ends with a chat, one
    that was `woken` for what is due once nobody needs it; it starts for nothing else. The other
    arguments are for tests and tools.
    """

    config: Config
    user_id: str
    _: KW_ONLY
    reload: Callable[[], Config] | None = None
    driver: TierDriver | None = None
    policy: Policy | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    working_directory: Path = field(default_factory=Path.cwd)
    agent_command: tuple[str, ...] = AGENT_COMMAND
    opened: Mapping[str, ProjectSettings] = field(default_factory=dict)
    """The projects that a person has opened, until this host ends."""
    passing: bool = False
    woken: bool = False

    def __post_init__(self) -> None:
        self.notices: list[str] = []
        self._of_settings: list[str] = []
        self._of_projects: list[str] = []
        self._checked: tuple[Project, ...] = ()
        self._closed: frozenset[str] = frozenset()
        """The names of those of the settings that a person has closed."""
        self._stack: AsyncExitStack | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stop_requested = False
        self._stopped = asyncio.Event()
        self._restart_lock = asyncio.Lock()
        self._credentials = Credentials()
        self._handover = RecoveryState.new()
        self._leaving = False
        self._problems: list[str] = []
        self._started = False
        self._telemetry: Telemetry | None = None
        self._tool_watcher: Callable[..., EgressWatcher]
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")

    async def __aenter__(self) -> "Host":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def provider(self) -> str:
        """The provider and model that answer."""
        return self._launchers.agent.provider

    @property
    def no_shell(self) -> str:
        """Why there is no shell guest, and how to get one; empty if there is one."""
        return self._launchers.no_shell

    async def start(self) -> None:
        """Start everything; return when the agent answers.

        Checks everything possible before it creates anything. If it raises `WireError`, which may
        be a guest's own, nothing is left behind.
        """
        self._starting = asyncio.create_task(self._start_and_unwind())
        try:
            await self._starting
        except asyncio.CancelledError:
            if self._stop_requested:
                raise HostError(Code.CANCELLED, "the host was stopped while it started") from None
            raise
        except OSError as error:
            raise HostError(
                Code.FAILED_PRECONDITION,
                f"the host cannot start: {error.strerror or error}",
                details=str(error.filename or error),
                resolution="make room and access there, then start again",
            ) from None
        finally:
            self._starting = None

    async def stop(self) -> None:
        """End everything, each part even if another one fails. Idempotent.

        Raises `HostError` that lists what could not be ended.
        """
        if self._starting is not None:
            self._stop_requested = True
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._stopping is None and self._stack is not None:
            self._stopping = asyncio.create_task(self._unwind(self._stack))
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def request_leave(self) -> None:
        """Begin to end this host and return at once; see `wait_stopped`. Guests that can outlive it
        are left to the next one."""
        self._leaving = True
        self.request_stop()

    def request_stop(self) -> None:
        """Begin to stop and return at once; see `wait_stopped`."""
        self._stop_requested = True
        self._background = asyncio.create_task(self._stop_quietly())

    async def wait_stopped(self) -> None:
        """Return when the host has ended, for whatever reason."""
        await self._stopped.wait()

    async def status(self) -> control_pb2.StatusReply:
        """The current state of everything. Guests are asked."""
        guests, embedder = await asyncio.gather(self._guests.statuses(), self._embedder.status())
        agent = self._guests.agent
        settings = self.config.for_user(self.user_id).agent
        if settings.provider != OFFLINE and not settings.needs_key:
            await learn_window(agent, guests)
        memory, notices = await asyncio.gather(
            memory_status(agent, guests), self.all_notices(guests)
        )
        return control_pb2.StatusReply(
            user_id=self.user_id,
            tier=self.tier,
            workspace=str(self.workspace.path),
            started_at=self._started_at,
            pid=os.getpid(),
            guests=[*guests, embedder],
            version=version("oxydra"),
            provider=self.provider,
            notices=notices,
            boundary=self._guests.boundary,
            memory=memory,
            kernel=self.kernel,
            projects=self._projects(),
            skills=[each.message for each in self._launchers.agent.skills if not each.wrong],
        )

    async def all_notices(
        self, guests: Sequence[control_pb2.GuestStatus] | None = None
    ) -> list[str]:
        """What there is to know now, also what the agent says at the start of a chat."""
        guests = await self._guests.statuses() if guests is None else guests
        silent = await self._loopback.silent()
        silent += self._delivery.problems()
        silent += [f"{each.lost}; {MEND}" for each in self._launchers.agent.skills if each.wrong]
        return [*self.notices, *silent, *await agent_notices(self._guests.agent, guests)]

    @property
    def kernel(self) -> str:
        """Whose kernel guests run on, as the boundary self-test found it; empty where none was
        found."""
        report = self._guests.boundary
        return kernel_of(report) if report is not None else ""

    async def gateway(self) -> Peer:
        """The agent's gateway. Waits while the agent starts.

        Raises `HostError` (UNAVAILABLE) if the agent is down.
        """
        return (await self._guests.agent.launch()).peer

    def metrics(self) -> str:
        """What was counted, as Prometheus reads it; empty if nothing is."""
        return self._telemetry.exposition() if self._telemetry is not None else ""

    def follow_egress(self) -> AsyncGenerator[egress_pb2.EgressEvent]:
        """What begins, ends and is refused by egress from now on."""
        return self._guests.egress.agents.watcher.follow()

    async def check_boundary(self) -> control_pb2.BoundaryReport:
        """Run the boundary self-test again."""
        return await self._guests.check_boundary()

    async def restart(self, role: str = "") -> None:
        """Restart one guest or ("") all by the settings valid now; return when healthy."""
        if role not in ("", *ROLES) or (role == Role.SHELL and self._guests.shell is None):
            raise not_restartable(role, self.no_shell)
        if self._starting is not None:
            raise HostError(Code.FAILED_PRECONDITION, "the host is still starting")
        async with self._restart_lock:
            if self.reload is not None or self.workspace.projects or self.opened:
                await self._take_up(self.reload() if self.reload is not None else self.config)
                await self._loopback.serve(self._launchers.egress.handed)
                await self._note(self.config.for_user(self.user_id))
            for egress in self._guests.egress:
                if egress.role == role and not egress.wanted and (why := egress.why_idle):
                    raise not_restartable(role, why)
            await self._guests.restart(role)
            await self._deliver()

    async def open_project(self, **request: Any) -> control_pb2.OpenProjectReply:
        """Show a directory to the agent and its commands, which start anew unless it is open.

        Raises `WireError` if it cannot be used, or while a turn runs; then nothing changes.
        """
        async with self._restart_lock:
            configured = self.config.for_user(self.user_id).workspace.projects
            known = {**configured, **self.opened}
            name, settings = projects.wanted(request, known, self.opened)
            is_open = any(project.name == name for project in self._checked)
            notices = []
            if not is_open or known.get(name) != settings:
                opened = dict(self.opened)
                if configured.get(name) != settings:
                    opened[name] = settings
                await self._with_opened(opened, self._closed - {name}, required=(name,))
                notices = [projects.STARTED_ANEW]
            (found,) = (each for each in self._projects() if each.name == name)
        return control_pb2.OpenProjectReply(project=found, notices=notices)

    async def close_project(self, name: str) -> None:
        """Take away one that was opened so or, until it is opened again or this host ends, one of
        the settings. Raises `WireError` as `open_project` does."""
        async with self._restart_lock:
            configured = self.config.for_user(self.user_id).workspace.projects.keys()
            if name not in {*self.opened, *(configured - self._closed)}:
                raise projects.not_opened(name, [project.name for project in self._checked])
            left = {other: each for other, each in self.opened.items() if other != name}
            await self._with_opened(left, self._closed | ({name} & configured))

    async def _with_opened(
        self,
        opened: Mapping[str, ProjectSettings],
        closed: frozenset[str],
        required: Collection[str] = (),
    ) -> None:
        """Start the guests anew with the projects `opened` and those of the settings that are not
        `closed`; with those that were open before, if that fails. What is refused ends nothing."""
        if self._starting is not None:
            raise HostError(Code.FAILED_PRECONDITION, "the host is still starting")
        if not self.workspace.here:
            raise HostError(Code.FAILED_PRECONDITION, projects.NONE_HERE)
        try:
            agent = await self._agent()
        except WireError:
            pass  # without an agent no turn runs
        else:
            async with agent:
                await projects.refuse_during_turns(agent)
        before, checked = (self.opened, self._closed), self._checked
        self.opened, self._closed = opened, closed
        try:
            await self._take_up(self.config, required)
            await self._guests.restart("")
        except BaseException as error:
            self.opened, self._closed = before
            if isinstance(error, WireError) and self._checked is checked:
                raise  # refused: the guests have what they had
            await self._take_up(self.config)
            await self._guests.restart("")
            raise

    def _projects(self) -> list[control_pb2.OpenedProject]:
        return [
            projects.described(project, configured=project.name not in self.opened)
            for project in self._checked
        ]

    async def get_egress(self) -> control_pb2.GetEgressReply:
        """What may leave and what has left."""
        return await self._guests.egress.described()

    async def reload_egress(self) -> list[str]:
        """Take up the settings of egress that are valid now, without any restart.

        Returns what there is to know. Raises `WireError` if they cannot be read or used; then the
        old ones stay.
        """
        async with self._restart_lock:
            if self.reload is not None:
                settings = self.reload().for_user(self.user_id)
                self._launchers.take_egress(settings)
                await self._loopback.serve(self._launchers.egress.handed)
                own = self.config.for_user(self.user_id)
                await self._note(own.model_copy(update={"egress": settings.egress}))
            taken = await self._guests.egress.reconfigure()
            await self._guests.tools.reconfigure()
        if self._guests.untold is not None:
            raise self._guests.untold
        return [] if taken else ["egress is not running; the settings apply when it starts"]

    async def grant_egress(
        self, role: str, grant: egress_pb2.EgressGrant, *, withdraw: bool
    ) -> bool:
        """Allow or deny something until the host ends, or take that back; false if that changes
        nothing."""
        return await self._guests.egress.grant(role, grant, withdraw=withdraw)

    async def test_notices(self) -> list[control_pb2.NoticeSent]:
        """Send one message to each address of `[notices]`. Raises `HostError` if there is none."""
        if not (sent := await self._delivery.test()):
            raise HostError(
                Code.FAILED_PRECONDITION,
                "no address is configured that notices go to",
                details="notices.urls_env names none",
                resolution="name a variable: runner config edit; then: runner stop, and start",
            )
        return sent

    async def set_memory_token(self, auth_token: str) -> None:
        """Use another token for the memory server, now and after restarts of the agent guest.

        Raises `WireError` if the server refuses it; then nothing changes.
        """
        launcher, egress = self._launchers.agent, self._guests.egress.agents
        async with self._restart_lock, await self._agent() as agent:
            egress.launcher.memory_next = auth_token
            try:
                await egress.reconfigure()
                await agent.set_memory_token()
                self.environ = {**self.environ, launcher.memory.auth_token_env: auth_token}
                launcher.secrets = replace(launcher.secrets, memory_token=auth_token)
            finally:
                egress.launcher.memory_next = ""
                await egress.reconfigure()

    async def set_credential(self, provider: str, key: str, source: str, origin: str = "") -> bool:
        """Use another key for a model's provider, now and after restarts of the agent guest.

        It stays in the memory of this host and of its egress guest, and goes to `origin` alone, by
        default the server that the settings name. Returns whether running guests have taken it;
        otherwise the next ones do, if their settings name that server. Raises `WireError` for what
        is no provider and no key.
        """
        named = self.config.for_user(self.user_id).agent.origin(provider)
        self._credentials.give(provider, key, source, origin or named)
        return await self._hand_over(provider) and origin in ("", named)

    async def clear_credential(self, provider: str) -> bool:
        """Forget a key that was set so; false if there was none. The one that the configuration
        names counts again."""
        cleared = self._credentials.clear(provider)
        if cleared:
            await self._hand_over(provider)
        return cleared

    async def list_credentials(self) -> list[control_pb2.Credential]:
        """Where each provider's key is from, and how it has done."""
        states = {}
        with contextlib.suppress(WireError):
            async with await self._agent() as agent:
                states = {each.name: each for each in (await agent.resolve_model()).providers}
        return self._credentials.listed(self.config.for_user(self.user_id).agent, states)

    async def _hand_over(self, provider: str) -> bool:
        """Bring the key of `provider` to egress, and tell the agent of it, if they run."""
        launcher = self._launchers.agent
        agent = self.config.for_user(self.user_id).agent
        keys = self._credentials.keys(agent)
        async with self._restart_lock:
            await asyncio.to_thread(launcher.take_keys, self.environ, keys)
            await self._loopback.serve(self._launchers.egress.handed)
        taken = await self._guests.egress.agents.reconfigure()
        try:
            guest = await self._agent()
        except WireError as error:
            log.info("no agent knows of the new key of %s yet: %s", provider, error.brief)
            return False
        upstreams = self._launchers.egress.upstreams
        async with guest:
            await guest.set_provider_key(provider, upstreams.get(provider, "no key"))
        return taken

    async def _agent(self) -> GatewayClient:
        return await GatewayClient.open(await self.gateway(), channel_name="host")

    async def _start_and_unwind(self) -> None:
        async with AsyncExitStack() as stack:
            await self._start_parts(stack)
            self._stack = stack.pop_all()

    async def _start_parts(self, stack: AsyncExitStack) -> None:
        config = self.config
        driver = self.driver or driver_for(config)
        self._capabilities = driver.capabilities
        self.tier = self._capabilities.tier
        self._outlived = self._capabilities.placement.lasting
        self.workspace = Workspace.locate(config, self.user_id)
        self._runtime = Runtime.locate(config, self.user_id)
        left = self._capabilities.placement.recovered(self._runtime.handover)
        self._handover = left or self._handover
        self._launchers = self._new_launchers(config)
        home = EmbedderHome.locate(config, self._runtime.base)
        self._embedder: SharedEmbedder = driver.embedder(
            home, self.user_id, self._embedder_moved
        ) or Embedder(home, driver.beside, environ=self.environ)
        boundary = driver.boundary(self.user_id, self.environ) or LocalBoundary(
            driver,
            self.workspace,
            runtime=self._runtime.base,
            records=LogLocation.locate(config, self.user_id).directory,
        )
        self.workspace.check()
        check_servers(config, self.user_id)
        stack.push_async_callback(self._end, "connections of the tier", driver.close)
        self.notices += await driver.check()
        if (wrong := self.environ.get("TZ", "").strip(":")) and not zones.rule(self.environ):
            self.notices.append(f"TZ is {wrong[:40]!r}, not {zones.ACCEPTED}: it counts as UTC")
        self._judge = driver.notices
        await self._note(config.for_user(self.user_id))
        if self.workspace.here:
            release_reserve(self._launchers.agent.db_path, self.workspace)
        check_free_space(self._runtime.base)

        self._runtime.create()
        if self.woken:
            self._talking = stack.enter_context(
                descriptor(self._runtime.talking, os.O_RDWR | os.O_CREAT)
            )
        stack.enter_context(host_lock(self._runtime.lock))
        if self.woken:
            self._runtime.stays.unlink(missing_ok=True)
            if awake.Due.load(config, self.user_id) is None:
                raise HostError(Code.FAILED_PRECONDITION, "nothing is due, or the user was removed")
            self.notices.append("started for what is due; it ends by itself when nobody needs it")
        stack.enter_context(self.workspace.held())
        stack.enter_context(host_log(self._runtime.log, self.user_id, config.log_level))
        for left in self._handover.guests.values():
            await driver.recover(left.handle)  # or it would count as a leftover
        self.notices += await clear_leftovers(self._runtime, self.workspace, driver, config)
        if self.workspace.here:
            self._prepare_disk()
        self._mapped = MappedMounts(
            self._runtime.projects,
            own_kernel=self._capabilities.own_kernel,
            by_engine=Role.AGENT in self._capabilities.own_files,
        )
        unmount = partial(asyncio.to_thread, self._mapped.clear)
        stack.push_async_callback(self._end, "mounts of projects", unmount)
        if await self._open_projects(config, required=self.opened):
            self._launchers = self._new_launchers(config)
        if self.no_shell:
            log.warning("no shell guest: %s", self.no_shell)

        watcher, egress_watchers = self._watchers(stack)
        LastStart(self.tier, home.path).save(self._runtime)
        stack.push_async_callback(self._end, "embedder", self._embedder.stop)
        await self._embedder.start()
        issue = self._handover.authority.issue
        control = ControlServer(self._runtime, self, issue(Party.RUNNER), issue(Party.CLI))
        self._loopback = HostLoopback(
            self.workspace, issue(Party.RUNNER), self._handover.kept.loopback_token
        )
        stack.push_async_callback(self._end, "sockets of loopback servers", self._loopback.close)
        await self._loopback.serve(self._launchers.egress.handed)
        self._guests = Guests(
            driver,
            self._launchers,
            embedder=self._embedder.link,
            self_test=boundary,
            tokens={"the control token": control.token},
            runtime=self._runtime,
            watcher=watcher,
            egress_watchers=egress_watchers,
            tool_watcher=self._tool_watcher,
            handover=self._handover,
            policy=self.policy,
        )
        agent, egress = self._guests.agent.channel, self._guests.way_out
        self._delivery = Delivery(self.user_id, agent, egress)
        stack.push_async_callback(self._end, "control socket", control.stop)
        await control.start()
        stack.push_async_callback(self._end, "guests", self._end_guests)
        self._looking = asyncio.create_task(self._look_ahead())
        stack.push_async_callback(self._end, "what is due next", self._last_look)
        if self._telemetry is not None:
            self._telemetry.restarts = self._guests.restarts
        self._started = True
        await self._guests.start()
        stack.push_async_callback(self._end, "deliveries of notices", self._delivery.close)
        await self._deliver()
        log.info("the host is ready")

    async def _deliver(self) -> None:
        """Send notices to the addresses that the settings name."""
        egress = self._launchers.egress
        await self._delivery.serve(egress.addresses, egress.configuration().ca_pem)

    def _prepare_disk(self) -> None:
        """Make what lies on this machine's disk fit for guests."""
        if not self.no_shell:
            self.notices += quarantine_excess(self.workspace)
        memory, database = self._launchers.agent.memory, self._launchers.agent.db_path
        old = self.working_directory, self.user_id
        if memory.db_path == "auto" and (notice := adopt_old_database(database, *old)):
            log.warning("%s", notice)
            self.notices.append(notice)
        keep_reserve(database, self.workspace)
        self.notices += self.workspace.adopt()
        if Role.AGENT in self._capabilities.own_files and not memory.remote_url:
            self.notices += passing(database, self.workspace.root)

    async def _embedder_moved(self) -> None:
        if self._started:
            await self._guests.tell_agent()

    async def _due(self) -> gateway_pb2.HelloReply | None:
        """What the agent says of itself; when it is needed next is kept."""
        if (hello := await hello_of(self._guests.agent)) is not None:
            await asyncio.to_thread(awake.keep, self.config, self.user_id, hello)
        return hello

    async def _last_look(self) -> None:
        self._looking.cancel()
        await asyncio.wait([self._looking])
        await self._due()

    async def _look_ahead(self) -> None:
        """Keep when the agent is needed next; end a host that was woken, once nobody needs it: who
        comes to talk meanwhile waits, and starts another one."""
        pause = partial(asyncio.sleep, awake.LOOK_S)
        while True:
            await awake.until_idle(self._due, pause, partial(datetime.now, UTC))
            ends = self.woken and not self._runtime.stays.exists()
            if ends and locks.take(self._talking):
                log.info("nothing is due soon, and nobody uses the agent")
                self.request_stop()
                return

    async def _end_guests(self) -> None:
        if self._leaving and self._outlived:
            await self._guests.release()
        else:
            await self._guests.stop()

    def _watchers(self, stack: AsyncExitStack) -> tuple[CallRecorder, Mapping[Role, EgressWatcher]]:
        """Open the audit log, and what writes to it: about calls of tools, and about requests."""
        place = LogLocation.locate(self.config, self.user_id)
        audit = AuditLog(place, self.config.audit.keep_days)
        if wrong := audit.open():
            notice = f"the audit log was changed by somebody else: {wrong}; runner audit verify"
            log.error("%s", notice)
            self.notices.append(notice)
        stack.callback(audit.close)
        if self.config.telemetry.is_wanted:
            with packages("telemetry", "[telemetry]"):
                from runner.telemetry import Telemetry  # imports opentelemetry
            self._telemetry = Telemetry(
                self.config.telemetry, self.user_id, self.tier, environ=self.environ
            )
            stack.push_async_callback(self._end, "telemetry", self._telemetry.close)
        keep = partial(keep_rules, self.config, self.user_id, self.environ)
        answers: Answers = {
            "guest": lambda wanted: self._guests.tools.wanted(wanted),
            "proposal": partial(advise, place, lambda: self._guests, keep),
        }
        watcher = CallRecorder(audit, self._telemetry, answers)
        stack.push_async_callback(self._end, "audit log", watcher.close)
        made = partial(
            EgressWatcher,
            audit,
            lambda request: self._guests.ask(request),
            lambda role, grant: self._guests.egress.granted(role, grant),
            self._telemetry,
        )
        renewed = partial(logins.renew, self.user_id)
        agents = made(roles=(Party.AGENT, Party.RUNNER), renewed=renewed)
        of_commands = partial(made, roles=(Party.SHELL,), beside=agents)
        self._tool_watcher = of_commands
        return watcher, {Role.EGRESS: agents, Role.SHELL_EGRESS: of_commands()}

    def _new_launchers(self, config: Config) -> Launchers:
        return Launchers(
            config,
            self.workspace,
            self._capabilities,
            self._handover.authority,
            environ=self.environ,
            keys=self._credentials.keys(config.for_user(self.user_id).agent),
            agent_command=self.agent_command,
            passing=self.passing,
        )

    async def _note(self, settings: UserSettings) -> None:
        """Put what there is to know of these settings in the place of what there was before."""
        found = await asyncio.to_thread(self._judge, settings, self.user_id, self.environ)
        found += [f"{why}: {SMALL_BUDGET}" for why in settings.agent.small_budgets]
        if settings.egress.host_loopback and not self.workspace.here:
            found.append("egress.host_loopback has no effect: guests are not on this machine")
        self.notices = [each for each in self.notices if each not in self._of_settings] + found
        self._of_settings = found

    async def _open_projects(self, config: Config, required: Collection[str] = ()) -> bool:
        """Check the projects of these settings, and those that were opened, for the next launchers
        and launches. Returns whether there are or were any. Raises `WorkspaceError` for one of the
        `required`."""
        configured = config.for_user(self.user_id).workspace.projects
        wanted = {name: configured[name] for name in configured if name not in self._closed}
        wanted |= self.opened
        if not (wanted or self.workspace.projects or self._of_projects):
            return False
        found: tuple[Project, ...] = ()
        told = [projects.NONE_HERE]
        if self.workspace.here:
            confined = Role.AGENT in self._capabilities.own_files
            guest = self.workspace.owner.ids if confined else (os.geteuid(), os.getegid())
            around = Surroundings.of(config, self.environ, self._runtime.base)
            opening = partial(open_all, mounts_below=not confined, required=required)
            found, told = await asyncio.to_thread(opening, wanted, around, guest, self._mapped)
        elif required:
            raise HostError(Code.FAILED_PRECONDITION, told[0])
        self._checked, self.workspace = found, replace(self.workspace, projects=found)
        self.notices = [each for each in self.notices if each not in self._of_projects] + told
        self._of_projects = told
        return True

    async def _take_up(self, config: Config, required: Collection[str] = ()) -> None:
        for name in _FIXED_WHILE_RUNNING:
            if getattr(config, name) != getattr(self.config, name):
                raise changed_while_running(name)
        await self._open_projects(config, required)
        launchers = await asyncio.to_thread(self._new_launchers, config)
        launchers.agent.skills = self._launchers.agent.skills  # until the agent is launched again
        self._guests.take(launchers)
        self._launchers, self.config = launchers, config

    async def _stop_quietly(self) -> None:
        try:
            await self.stop()
        except WireError as error:
            log.error("%s: %s", error.brief, error.details)

    async def _unwind(self, stack: AsyncExitStack) -> None:
        try:
            await stack.aclose()
        finally:
            self._stopped.set()
        if self._problems:
            raise HostError(
                Code.INTERNAL,
                "not everything could be ended",
                details="; ".join(self._problems),
                resolution="runner start removes what is left",
            )

    async def _end(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Undo one step. A failure is reported at the end, so that every step runs."""
        try:
            await step()
        except Exception as error:
            log.exception("ending: %s", name)
            self._problems.append(f"{name}: {error!r}")
