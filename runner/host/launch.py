"""How a user's guests are started: commands, environments, mounts and envelopes."""

import hashlib
import os
import site
import sys
import uuid
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from wire import envelope, zones
from wire.boundary import CROWD_MAX
from wire.egress.loopback import LoopbackServer, handed
from wire.envelope import Secrets
from wire.errors import Code
from wire.identity import Party, Peer
from wire.limits import ENVELOPE_VERSION
from wire.settings import (
    EgressRoleSettings,
    EgressSettings,
    McpServerSettings,
    UserSettings,
    WorkspaceSettings,
    plain_address,
    to_json,
)
from wire.transport import new_token
from wire.v1 import bootstrap_pb2, egress_pb2, shell_pb2
from wire.v1.bootstrap_pb2 import BootstrapEnvelope

from runner.config.models import Config
from runner.egress.configuration import StableSecrets, build, is_wanted, part
from runner.errors import HostError
from runner.host.authority import Authority
from runner.host.loopback import socket_name
from runner.host.supervisor import Launch, socket_at
from runner.notices import addresses
from runner.notices.addresses import Address
from runner.tiers.base import Capabilities, GuestMounts, Handle, LaunchSpec, Limits, Network, Port
from runner.workspace.beneath import directory_beneath
from runner.workspace.credentials import read_secrets
from runner.workspace.database_file import prepare_parent, resolve_db_path
from runner.workspace.keys import read_provider_keys
from runner.workspace.mounts import SERVED, Access, BoundMount, Mount, Role
from runner.workspace.overflow import quarantine_excess
from runner.workspace.skills import Skill, Skills
from runner.workspace.workspace import Workspace

EMBEDDER_MOUNT = Mount("embedder", "", "/embedder", Access.READ_ONLY)
"""The directory with the embedder's socket, for agent guests. It lies outside the workspace."""
# -P: never import from the working directory
AGENT_COMMAND: Final = (sys.executable, "-P", "-m", "guest.app", "--bootstrap-stdin")
_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
NOTHING: Final = {
    Role.EGRESS: "nothing is configured to leave",
    Role.SHELL_EGRESS: "[egress.shell] opens nothing and asks nobody",
}
"""Why an egress guest does not run."""
OWN_ENVIRONMENT: Final = {"PYTHONUTF8": "1", "GRPC_VERBOSITY": "NONE"}
"""gRPC's own log would tell of everybody who knocks without a certificate."""
_SHELL_HOME: Final = "/run"
EGRESS_LIMITS: Final = Limits(memory_bytes=256 * 1024 * 1024, processes=64, cpus=1.0)
"""Of each of the two egress guests."""
_MIB: Final = 1024 * 1024
_REACHED: Final = {
    Role.AGENT: (Party.AGENT, Port.GATEWAY),
    Role.SHELL: (Party.SHELL, Port.SHELL),
    Role.EGRESS: (Party.EGRESS, Port.EGRESS),
    Role.SHELL_EGRESS: (Party.EGRESS, Port.EGRESS),
}
"""Who each guest is to its callers, and its port where it has an address."""


def program(capabilities: Capabilities, script: str, module: str) -> tuple[str, ...]:
    """The command of a guest's program: the console script of its image, or a module of this
    installation, which never imports from the working directory."""
    return (script,) if capabilities.own_programs else (sys.executable, "-P", "-m", module)


def guest_environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The complete environment of a guest that runs this installation's programs, without secrets.

    `home` is a directory that tools and shell cannot write to, because Python and libraries read
    files from there when they start.
    """
    passed = {name: environ[name] for name in _PASSED_ON if name in environ}
    own = {"HOME": str(home), **OWN_ENVIRONMENT}
    if site.ENABLE_USER_SITE and site.USER_BASE:
        own["PYTHONUSERBASE"] = site.USER_BASE
    return {"PATH": os.defpath, **passed, **own}


@dataclass(repr=False, eq=False)
class _Launcher:
    """What a launch of any of a user's guests has: who issues its identity, and where it is."""

    config: Config
    workspace: Workspace
    capabilities: Capabilities
    authority: Authority

    def __post_init__(self) -> None:
        self._settings = self.config.for_user(self.workspace.user_id)
        self._placement = self.capabilities.placement
        self._sees_mounts_below = Role.AGENT not in self.capabilities.own_files

    def _seen(self, role: Role) -> GuestMounts:
        """The user's directories, as the guest `role` has them."""
        own_files = role is Role.SHELL or role in self.capabilities.own_files
        return GuestMounts(self.workspace.mounts(role), own_files)

    def _link_to(self, socket: Path, token: str) -> bootstrap_pb2.Link:
        """Where the agent guest finds `socket`, as a path on the host, with an identity for it."""
        identity = self.authority.issue(Party.AGENT).message()
        endpoint = self._placement.reached(socket)
        return bootstrap_pb2.Link(endpoint=endpoint, token=token, identity=identity)

    def _launch(
        self,
        role: Role,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        working_directory: Path,
        limits: Limits,
        mounts: Sequence[BoundMount] | None = None,
        message: BootstrapEnvelope | None = None,
    ) -> Launch:
        """A launch with its own token and id. `mounts` are the role's, and `message` is the
        envelope of a service, unless they are given."""
        socket, (party, port) = self.workspace.socket(role), _REACHED[role]
        token, launch_id = new_token(), str(uuid.uuid4())
        name = self._placement.name(launch_id)
        identity = self.authority.issue(party, name)
        if message is None:
            content = envelope.service(token, identity)
        else:
            message.launch_id, message.token = launch_id, token
            message.identity.CopyFrom(identity.message())
            content = envelope.encode(message)
        spec = LaunchSpec(
            role=role,
            user_id=self.workspace.user_id,
            home=self.workspace.path,
            launch_id=launch_id,
            command=command,
            mounts=tuple(self.workspace.mounts(role) if mounts is None else mounts),
            environment=environment,
            envelope=content,
            log_path=self.workspace.log(role),
            working_directory=working_directory,
            owner=self.workspace.owner.ids,
            network=self._placement.network if role not in SERVED else Network.OUTBOUND,
            limits=limits,
            directories=self._directories(role),
            tool=self.workspace.tool,
        )
        ours = self.authority.issue(Party.RUNNER)
        peer = Peer(self._placement.reached(socket), party, token, ours, name)
        return Launch(spec, peer, port, _fingerprint(spec, message))

    def _directories(self, role: Role) -> dict[str, tuple[int, int]]:
        """See `LaunchSpec.directories`."""
        found: dict[str, tuple[int, int]] = {}
        if not self.workspace.here:
            return found
        for project in self.workspace.projects if role in (Role.AGENT, Role.SHELL) else ():
            project.check(mounts_below=self._sees_mounts_below)
        for bound in self.workspace.mounts(role):
            if bound.identity is not None:
                found[bound.mount.virtual] = bound.identity
                continue
            with directory_beneath(self.workspace.path, bound.host_path) as directory:
                seen = os.fstat(directory)
            found[bound.mount.virtual] = (seen.st_dev, seen.st_ino)
        return found


@dataclass(repr=False, eq=False, kw_only=True)
class AgentLauncher(_Launcher):
    """Prepares the launches of one user's agent guest.

    Creating it checks, without touching the disk, that the credential exists and that the database
    has a proper place. `keys` are those of providers that count more than the configured ones.
    """

    environ: Mapping[str, str]
    keys: Mapping[str, str] | None = None
    command: tuple[str, ...] = AGENT_COMMAND
    passing: bool = False
    skills: list[Skill] = field(default_factory=list)  # as the last launch found them

    def __post_init__(self) -> None:
        super().__post_init__()
        workspace, capabilities, command = self.workspace, self.capabilities, self.command
        self._settings, zone = _in_zone(self._settings, self.environ)
        self._own_files = Role.AGENT in capabilities.own_files
        self._environment = {**guest_environment(workspace.internal, self.environ), **zone}
        if capabilities.own_programs:
            command = ("oxydra-guest", *command[command.index("--bootstrap-stdin") :])
            own = {"HOME": "/.oxydra", **self._placement.environment}
            self._environment = {**own, **zone, **OWN_ENVIRONMENT}
        self._command = (*command, *self._placement.until)
        self.memory = self._settings.memory
        self.secrets = read_secrets(self._settings, self.environ, self.keys)
        self.db_path = resolve_db_path(self.memory.db_path, workspace, mounted_only=self._own_files)
        self.provider = " ".join(
            filter(None, (self._settings.agent.provider, self._settings.agent.model))
        )

    def take_keys(self, environ: Mapping[str, str], keys: Mapping[str, str]) -> None:
        """Let egress use these keys of providers from its next configuration on."""
        agent = self._settings.agent
        found = read_provider_keys(agent, environ, keys)
        others = {name: key for name, key in found.items() if name != agent.provider}
        api_key = found.get(agent.provider, "")
        self.secrets = replace(self.secrets, api_key=api_key, provider_keys=others)

    def prepare(
        self,
        embedder: bootstrap_pb2.Link,
        shell: bootstrap_pb2.Link,
        canary: str = "",
        maintenance: bootstrap_pb2.MaintenanceJob | None = None,
        job_key: str = "",
        *,
        egress: bootstrap_pb2.Link | None = None,
        upstreams: Mapping[str, str] | None = None,
        witnessed: bool = False,
    ) -> Launch:
        """A new launch with its own token and id.

        `embedder` and `shell` say where those are, as paths on the host, or why there is none;
        `egress` where the only way out is, and `upstreams` what is behind it by name, and why it
        cannot be used.
        `canary` is a random word that must be found nowhere in the shell guest. With `maintenance`
        the guest does that job instead of serving, and begins with `job_key`. A guest that is
        `witnessed` runs no call that changes something before somebody records it.
        """
        self.workspace.provision()
        self.workspace = self.workspace.renewed()
        mounts, self.skills = self.workspace.mounts(Role.AGENT), Skills(self.workspace).listed()
        if self.workspace.here:
            prepare_parent(self.db_path, self.workspace)
        if self._own_files and (socket := socket_at(embedder.endpoint)) is not None:
            mounts = (*mounts, BoundMount(EMBEDDER_MOUNT, socket.parent))
        seen = GuestMounts(mounts, self._own_files)
        embedder, shell = _as_seen(embedder, seen), _as_seen(shell, seen)
        egress = egress and _as_seen(egress, seen)
        paths = bootstrap_pb2.GuestPaths(database=str(seen.path(self.db_path)))
        for bound in self.workspace.mounts(Role.AGENT):
            if bound.mount.name in paths.DESCRIPTOR.fields_by_name:
                setattr(paths, bound.mount.name, str(seen.path(bound.host_path)))
        for project in self.workspace.projects:
            row, numbered = project.rows[0], not self.capabilities.own_kernel
            path = row.mount.virtual if self._own_files else str(row.host_path)
            paths.projects.append(project.message(path, numbered=numbered))
        message = BootstrapEnvelope(
            version=ENVELOPE_VERSION,
            user_id=self.workspace.user_id,
            tier=self.capabilities.tier,
            gateway=self._placement.listener(self.workspace.socket(Role.AGENT), seen, Port.GATEWAY),
            paths=paths,
            settings=to_json(_for_agent(self._settings)),
            secrets=_agents_own(self._settings, self.secrets, job_key).message(),
            embedder=embedder,
            shell=shell,
            egress=egress,
            upstreams=upstreams or {},
            log_level=self.config.log_level,
            canary=canary,
            maintenance=maintenance,
            mounted=self._mounted(),
            witnessed=witnessed,
            passing=self.passing,
            skills=[each.message for each in self.skills if not each.wrong],
        )
        container = self.config.container
        return self._launch(
            Role.AGENT,
            command=self._command,
            environment=self._environment,
            working_directory=seen.path(self.workspace.internal)
            if self._own_files
            else self.workspace.path,
            limits=Limits(
                container.agent_memory_mb * _MIB, container.agent_processes, container.agent_cpus
            ),
            mounts=mounts,
            message=message,
        )

    def _mounted(self) -> dict[str, bootstrap_pb2.Directory]:
        """What the guest compares; nothing where it has no mounts, or a kernel of its own."""
        if not self._own_files or self.capabilities.own_kernel:
            return {}
        return {
            virtual: bootstrap_pb2.Directory(device=device, inode=inode)
            for virtual, (device, inode) in self._directories(Role.AGENT).items()
        }

    def seen(self, link: bootstrap_pb2.Link) -> bootstrap_pb2.Link:
        """A link to a socket on the host, as the guest has it."""
        return _as_seen(link, self._seen(Role.AGENT))

    def guest_path(self, path: Path) -> str:
        """The path in the guest of a place in the workspace."""
        return str(self._seen(Role.AGENT).path(path))


def _in_zone(
    settings: UserSettings, environ: Mapping[str, str]
) -> tuple[UserSettings, dict[str, str]]:
    """The settings with the user's time zone by name, if it has one, and the variable for it."""
    name = settings.agent.time_zone
    if name == zones.AUTO:
        name = zones.own_name(environ) or zones.AUTO
    agent = settings.agent.model_copy(update={"time_zone": name})
    known = environ if name == zones.AUTO else {"TZ": name}
    return settings.model_copy(update={"agent": agent}), _clock(known)


def _clock(environ: Mapping[str, str]) -> dict[str, str]:
    """`TZ` for a guest, which may have no files about zones."""
    return {"TZ": zones.rule(environ) or "UTC0"}


def _for_agent(settings: UserSettings) -> UserSettings:
    """The settings without what proves the user to servers outside, what may leave, and paths of
    the host."""
    agent = settings.agent
    shown = agent.model_copy(update={"base_url": plain_address(agent.base_url)})
    nothing = {"isolated": True, "egress": EgressRoleSettings(), "credentials": {}}
    servers = dict(settings.mcp.servers)
    for name in settings.mcp.guests:
        servers[name] = servers[name].model_copy(update=nothing)
    own = {"agent": shown, "egress": EgressSettings(), "workspace": WorkspaceSettings()}
    if settings.mcp.guests:
        own["mcp"] = settings.mcp.model_copy(update={"servers": servers})
    return settings.model_copy(update=own)


def _agents_own(settings: UserSettings, secrets: Secrets, job_key: str) -> Secrets:
    """The secrets that the agent needs itself: the keys of its files, and what commands in the
    shell are given. None of them opens an account outside."""
    servers = {
        name: value
        for name, value in secrets.servers.items()
        if settings.mcp.servers[name.partition("/")[0]].command
    }
    return Secrets(memory_key=secrets.memory_key, job_key=job_key, servers=servers)


@dataclass(repr=False, eq=False, kw_only=True)
class ShellLauncher(_Launcher):
    """Prepares the launches of one user's shell guest.

    Each launch has its own token, for the runner. `agent_token` stays the same, because the agent
    guest gets it at its own start and outlives restarts of the shell. The shell guest learns it
    only after the boundary self-test. Of what lies in `shared` and `tmp`, what is more than
    `crowd_max` is moved aside first.
    """

    agent_token: str = field(default_factory=new_token)
    crowd_max: int = CROWD_MAX

    @property
    def link(self) -> bootstrap_pb2.Link:
        """Where the agent guest finds it, as a path on the host, with an identity for it."""
        return self._link_to(self.workspace.socket(Role.SHELL), self.agent_token)

    def prepare(self) -> Launch:
        """A new launch with its own token and id. No shell guest may run."""
        self.workspace.provision()
        self.workspace = self.workspace.renewed()
        if self.workspace.here:
            quarantine_excess(self.workspace, self.crowd_max, mounted=True)
        settings, socket = self._settings.shell, self.workspace.socket(Role.SHELL)
        place = self._placement.listener(socket, self._seen(Role.SHELL), Port.SHELL)
        memory = settings.memory_mb * _MIB
        environment = {"HOME": _SHELL_HOME, **OWN_ENVIRONMENT}
        start, roots = self._placement.shell_directory, tuple[str, ...]()
        if self.workspace.tools.get(self.workspace.tool) == "none":
            start, roots = Path("/tmp"), ("--root-shared", "/tmp")  # noqa: S108 - the guest's own
        if not self.capabilities.own_programs:
            environment["PATH"] = os.defpath
        return self._launch(
            Role.SHELL,
            command=(
                *program(self.capabilities, "oxydra-shell-daemon", "shell_daemon.server"),
                *("--socket", place.removeprefix("unix:")),
                *("--bootstrap-stdin", "--sealed", *self._placement.until),
                *("--log-level", self.config.log_level),
                *roots,
                *("--default-timeout", f"{settings.timeout_s:g}"),
                *([f"--git-identity={who}"] if (who := settings.git_identity) else ()),
                *(() if self.capabilities.limits_memory else ("--memory-bytes", str(memory))),
            ),
            environment=environment,
            working_directory=start,
            limits=Limits(memory, settings.processes, settings.cpus),
        )


@dataclass(repr=False, eq=False, kw_only=True)
class EgressLauncher(_Launcher):
    """Prepares the launches of one user's egress guests, and what they are configured with.

    Each launch has its own token, for the runner. What is `kept` stays the same: the other guests
    get the listeners' tokens at their own start, and outlive restarts of these. The secrets are
    those of `agent`; `memory_next` is a token that it is to try. `no_shell` says why there are no
    commands. For a tool guest, what its server's settings say takes the place of `[egress.shell]`
    and `[egress.credentials]`, and there is nothing else. Creating it checks that what the settings
    of egress name is there.
    """

    agent: AgentLauncher
    no_shell: str
    kept: StableSecrets = field(default_factory=StableSecrets)
    memory_next: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.workspace.tool
        self._section = f"mcp.servers.{name}" if name else "egress"
        self.take_settings(self._settings)

    @property
    def link(self) -> bootstrap_pb2.Link:
        """Where the agent guest finds egress, as a path on the host, with an identity for it."""
        return self._link_to(self.workspace.egress_listener(Role.AGENT), self.kept.agent_token)

    def shell_egress_settings(
        self, authority_pem: str, handle: Handle | None
    ) -> shell_pb2.SetEgressRequest:
        """What the shell guest is told. It trusts `authority_pem` then. `handle` is that of the
        running egress guest."""
        credentials = self._settings.egress.credentials
        listener = self.workspace.egress_listener(Role.SHELL)
        return shell_pb2.SetEgressRequest(
            door=self._placement.egress_endpoint(listener, self._seen(Role.SHELL), handle),
            door_launch_id=self._placement.name(handle.launch_id) if handle is not None else "",
            token=self.kept.shell_token,
            authority_pem=authority_pem,
            environment=self.kept.placeholders.environment(credentials),
            files=self.kept.placeholders.files(credentials),
        )

    def why_idle(self, role: Role) -> str:
        """Why there is nothing to do for the egress guest `role`; empty if there is."""
        if role is Role.SHELL_EGRESS and self.no_shell:
            return self.no_shell
        return "" if is_wanted(part(self.configuration(), role)) else NOTHING[role]

    @property
    def upstreams(self) -> dict[str, str]:
        """The servers that the agent reaches by a name, and why one cannot be used."""
        return {each.name: each.missing for each in self.configuration().upstreams}

    @property
    def handed(self) -> frozenset[LoopbackServer]:
        """The servers of this machine's loopback that the agent's egress reaches by the runner."""
        return frozenset(filter(None, map(self._handed, self.configuration().upstreams)))

    def _handed(self, upstream: egress_pb2.EgressUpstream) -> LoopbackServer | None:
        if not self.capabilities.host_loopback:
            return None
        found = handed(upstream.url, self._settings.egress.host_loopback)
        return found and replace(found, provider=upstream.name)

    def configuration(self, *, reads: bool = True) -> egress_pb2.EgressConfiguration:
        """What may leave now, and the keys for it; without `reads` without what files hold."""
        built = build(
            self.workspace.user_id,
            self._settings,
            self.agent.secrets,
            self.kept,
            self.agent.environ if reads else None,
            self.memory_next,
            self._section,
        )
        built.runner.allow.extend(rule for each in self.addresses for rule in each.rules)
        seen = self._seen(Role.EGRESS)
        for upstream in built.upstreams:
            if server := self._handed(upstream):
                place = seen.path(self.workspace.host_sockets) / socket_name(server)
                upstream.host_socket, upstream.host_token = str(place), self.kept.loopback_token
        return built

    @property
    def addresses(self) -> list[Address]:
        """Where notices go."""
        return addresses.read(self._settings.notices, self.agent.environ)

    def take_settings(self, settings: UserSettings) -> None:
        """Use what these settings say of it from the next configuration on. Raises `ConfigError`
        for what they name and is not there."""
        self._settings = self._settings.model_copy(update={"egress": settings.egress})
        if name := self.workspace.tool:
            nobody = EgressRoleSettings()
            server = settings.mcp.servers.get(name, McpServerSettings(command=name))
            own = {"agent": nobody, "shell": server.egress, "credentials": server.credentials}
            self._settings = UserSettings(egress=settings.egress.model_copy(update=own))
        self.configuration()

    def prepare(self, role: Role) -> Launch:
        """A new launch of the egress guest `role` with its own token and id. None may run."""
        self.workspace.provision()
        seen = self._seen(role)
        control = self.workspace.socket(role)
        served = SERVED[role]
        port = Port.AGENT_LISTENER if served is Role.AGENT else Port.SHELL_LISTENER
        listeners = (
            ("--socket", control, Port.EGRESS),
            (f"--{served}-listener", self.workspace.egress_listener(served), port),
        )
        places = (
            (flag, self._placement.listener(socket, seen, port).removeprefix("unix:"))
            for flag, socket, port in listeners
        )
        home = control.parent
        environment = guest_environment(home, self.agent.environ)
        if self.capabilities.own_programs:
            home = Path("/run")
            environment = {"HOME": str(home), **_clock(self.agent.environ), **OWN_ENVIRONMENT}
        return self._launch(
            role,
            command=(
                *program(self.capabilities, "oxydra-egress", "egress.server"),
                *chain.from_iterable(places),
                *("--bootstrap-stdin", *self._placement.until),
                *("--log-level", self.config.log_level),
            ),
            environment=environment,
            working_directory=home,
            limits=EGRESS_LIMITS,
        )


ToolLaunchers = tuple[ShellLauncher, EgressLauncher]
"""Of an MCP server's guest and of its way out."""


class Launchers:
    """The launchers of the guests that `config` asks for in this tier. Without a shell, `no_shell`
    says why; without tool guests, `no_tools`. Raises `HostError` where there can be none."""

    def __init__(
        self,
        config: Config,
        workspace: Workspace,
        capabilities: Capabilities,
        authority: Authority,
        *,
        environ: Mapping[str, str],
        keys: Mapping[str, str] | None = None,
        agent_command: tuple[str, ...] = AGENT_COMMAND,
        passing: bool = False,
    ) -> None:
        mcp = config.for_user(workspace.user_id).mcp
        if mcp.guests and not workspace.here:
            raise HostError(
                Code.FAILED_PRECONDITION,
                f"the tier {capabilities.tier} starts no guests for MCP servers",
                details=f"mcp.servers.{mcp.guests[0]} is isolated or has a secret",
                resolution="reach it by its url, or: runner --tier container",
            )
        workspace = workspace.serving(mcp) if workspace.here else workspace
        of_user = (config, workspace, capabilities, authority)
        self.agent = AgentLauncher(
            *of_user, environ=environ, keys=keys, command=agent_command, passing=passing
        )
        self.no_shell = capabilities.unsupported.get(Role.SHELL, "")
        if not config.for_user(workspace.user_id).shell.enabled:
            self.no_shell = "shell.enabled is false in the configuration"
        self.egress = EgressLauncher(*of_user, agent=self.agent, no_shell=self.no_shell)
        self.shell = None if self.no_shell else ShellLauncher(*of_user)
        self.no_tools = capabilities.unsupported.get(Role.SHELL, "")
        self.tools: dict[str, ToolLaunchers] = {}
        for name in mcp.guests if not self.no_tools else ():
            of_tool = (config, workspace.of_tool(name), capabilities, authority)
            egress = EgressLauncher(*of_tool, agent=self.agent, no_shell="")
            self.tools[name] = ShellLauncher(*of_tool), egress

    def take_egress(self, settings: UserSettings) -> None:
        """Let every way out use these settings from its next configuration on. Raises `ConfigError`
        for what they name and is not there; then nothing changes."""
        own = (self.egress, *(egress for _, egress in self.tools.values()))
        for each in (*map(copy, own), *own):
            each.take_settings(settings)


def _fingerprint(spec: LaunchSpec, message: BootstrapEnvelope | None) -> str:
    """A digest that is equal for launches that differ only in what is new in every launch."""
    told = (spec.command, sorted(spec.environment.items()), spec.owner, spec.limits, spec.network)
    digest = hashlib.sha256(repr(told).encode())
    for bound in (each for each in spec.mounts if each.identity is not None):
        digest.update(repr(bound).encode())
    if message is not None:
        same = BootstrapEnvelope()
        same.CopyFrom(message)
        for name in ("launch_id", "token", "identity", "embedder", "shell", "egress", "upstreams"):
            same.ClearField(name)
        digest.update(same.SerializeToString(deterministic=True))
    return digest.hexdigest()


def _as_seen(link: bootstrap_pb2.Link, seen: GuestMounts) -> bootstrap_pb2.Link:
    """`link` with the path of its socket as the guest sees it."""
    if (socket := socket_at(link.endpoint)) is None:
        return link
    endpoint = seen.endpoint(socket)
    return bootstrap_pb2.Link(endpoint=endpoint, token=link.token, identity=link.identity)
