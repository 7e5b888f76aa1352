"""The bootstrap envelope, checked once, before anything is opened.

The runner has checked its own file already. The guest checks again, with the same models, because
the envelope is its only input and may come from another orchestrator.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import get_args

from wire.endpoint import NOWHERE, Endpoint
from wire.envelope import Secrets
from wire.errors import Code, WireError
from wire.identity import Identity, Party, Peer, name_of
from wire.limits import SECRET_MIN_CHARS, USER_ID_PATTERN
from wire.settings import PROJECT_PATTERN, TIER_PATTERN, LogLevel, UserSettings, from_json
from wire.tools import PROJECTS, SKILLS, VIRTUAL_ROOTS
from wire.v1 import bootstrap_pb2

from guest.egress_client import EgressClient
from guest.errors import GuestError
from guest.memory.models import MemoryConfig, RemoteConfig


@dataclass(frozen=True)
class GuestLink:
    """Another guest, or the reason why there is none."""

    peer: Peer | None = None
    unavailable_reason: str = ""


@dataclass(frozen=True)
class Paths:
    """The guest's directories, as it sees them."""

    internal: Path
    shared: Path
    tmp: Path
    vault: Path
    ipc: Path
    projects: tuple[bootstrap_pb2.Project, ...] = ()
    skills: Path = Path()

    @property
    def virtual(self) -> dict[str, Path]:
        """The directories that file tools may always enter, by the name of their virtual root."""
        return {root.name: getattr(self, root.name) for root in (*VIRTUAL_ROOTS, SKILLS)}

    @property
    def shown(self) -> dict[str, Path]:
        """All directories that file tools may enter, by the name of their virtual root."""
        projects = {f"{PROJECTS}/{each.name}": Path(each.path) for each in self.projects}
        return self.virtual | projects

    @property
    def private(self) -> tuple[Path, ...]:
        """The directories that no tool may reach."""
        return (self.internal, self.ipc)


@dataclass(frozen=True)
class GuestConfig:
    """Everything that one agent guest needs: its settings, secrets and endpoints. `upstreams` are
    the servers behind egress, each with the reason why it cannot be used. One that is `passing`
    ends with the chat that has started it."""

    user_id: str
    tier: str
    launch_id: str
    token: str = field(repr=False)
    identity: Identity
    endpoint: str
    paths: Paths
    settings: UserSettings
    secrets: Secrets
    memory: MemoryConfig
    embedder: GuestLink
    shell: GuestLink
    egress: EgressClient | None
    upstreams: Mapping[str, str]
    log_level: str
    witnessed: bool = False
    passing: bool = False
    skills: Sequence[bootstrap_pb2.Skill] = ()

    @property
    def in_vm(self) -> bool:
        """Whether this guest has a kernel and a memory of its own."""
        return self.tier == "micro_vm"

    @property
    def redacted(self) -> tuple[str, ...]:
        """The secrets that must appear in no log, event, tool result or file.

        Shorter keys are placeholders that some local servers require ("ollama", "none"): redacting
        them would only damage ordinary text.
        """
        others = [
            link.peer.token
            for link in (self.embedder, self.shell, self.egress)
            if link and link.peer
        ]
        candidates = (self.token, *others, *self.secrets.values())
        return tuple(secret for secret in candidates if len(secret) >= SECRET_MIN_CHARS)


def load(envelope: bootstrap_pb2.BootstrapEnvelope) -> GuestConfig:
    """Check `envelope`, and that its directories are those that the runner meant.

    Raises:
        WireError: INVALID_ARGUMENT; it names the field, its value and what is accepted.
            FAILED_PRECONDITION if another directory is mounted somewhere.
    """
    _check_mounted(envelope.mounted)
    user_id = _matching("user_id", envelope.user_id, USER_ID_PATTERN)
    if len(envelope.token) < SECRET_MIN_CHARS:
        raise bad_field(
            "token", "too short", f"at least {SECRET_MIN_CHARS} characters, new every launch"
        )
    log_level = envelope.log_level or "info"
    if log_level not in (levels := get_args(LogLevel)):
        raise bad_field("log_level", repr(log_level), "one of " + ", ".join(levels))
    settings, secrets = from_json(envelope.settings), Secrets.of(envelope.secrets)
    peer = link_of(Party.EGRESS, envelope.egress).peer
    egress = None if peer is None else EgressClient(peer)
    if egress is None and settings.agent.provider != "offline":
        raise _no_egress(f"provider {settings.agent.provider!r}")
    if egress is None and any(each.url for each in settings.mcp.servers.values()):
        raise _no_egress("an MCP server with an address")
    remote = None
    if url := settings.memory.server_of(user_id):
        if egress is None:
            raise _no_egress("a memory on a server")
        remote = RemoteConfig(
            url,
            timeout_s=settings.memory.remote_timeout_s,
            egress=egress,
            one_user=settings.memory.server_holds_one_user,
        )
    database = _path("paths.database", envelope.paths.database)
    return GuestConfig(
        user_id=user_id,
        tier=_matching("tier", envelope.tier, TIER_PATTERN),
        launch_id=envelope.launch_id,
        token=envelope.token,
        identity=Identity.of(envelope.identity),
        endpoint=_gateway(envelope.gateway),
        paths=Paths(
            **{
                each.name: _path(f"paths.{each.name}", getattr(envelope.paths, each.name))
                for each in fields(Paths)
                if each.name not in ("projects", "skills")
            },
            projects=_projects(envelope.paths.projects),
            skills=Path(envelope.paths.skills),
        ),
        settings=settings,
        secrets=secrets,
        memory=MemoryConfig(str(database), settings.memory, secrets.memory_key, remote),
        embedder=link_of(Party.EMBEDDER, envelope.embedder),
        shell=link_of(Party.SHELL, envelope.shell),
        egress=egress,
        upstreams=dict(envelope.upstreams),
        log_level=log_level,
        witnessed=envelope.witnessed,
        passing=envelope.passing,
        skills=envelope.skills,
    )


def _no_egress(what: str) -> GuestError:
    return GuestError(
        Code.FAILED_PRECONDITION,
        f"{what} needs a way out, and the envelope names none",
        details="nothing leaves an agent guest but by the egress guest",
        resolution="start guests through the runner of the same version: runner restart",
    )


def _check_mounted(mounted: Mapping[str, bootstrap_pb2.Directory]) -> None:
    for path, meant in sorted(mounted.items()):
        try:
            found = Path(path).stat()
            is_it = (found.st_dev, found.st_ino) == (meant.device, meant.inode)
        except OSError:
            is_it = False
        if not is_it:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                f"what is mounted at {path} is not what the runner has checked",
                details="between its check and the mount, something was put in the place of the "
                "directory on the host",
                resolution="look who else can change the workspace, then: runner restart",
            )


def link_of(party: Party, link: bootstrap_pb2.Link) -> GuestLink:
    """What a link to `party` says; one that is being started is nowhere yet.

    Raises `WireError` (INVALID_ARGUMENT) that names the field.
    """
    if not (link.endpoint or link.token):
        return GuestLink(unavailable_reason=link.unavailable_reason or f"no {party} was configured")
    name = f"{party}.launch_id"
    try:
        name_of(party, link.launch_id)
        name = f"{party}.endpoint"
        endpoint = link.endpoint or NOWHERE
        Endpoint.of_target(endpoint, link.launch_id)
        name = f"{party}.identity"
        identity = Identity.of(link.identity)
    except WireError as error:
        raise bad_field(name, error.brief, error.details) from None
    return GuestLink(Peer(endpoint, party, link.token, identity, link.launch_id))


def _gateway(address: str) -> str:
    try:
        Endpoint.of(address)
    except WireError as error:
        raise bad_field("gateway", error.brief, error.details) from None
    return address


def _projects(given: Iterable[bootstrap_pb2.Project]) -> tuple[bootstrap_pb2.Project, ...]:
    found: dict[str, bootstrap_pb2.Project] = {}
    for each in given:
        name = _matching("paths.projects.name", each.name, PROJECT_PATTERN)
        if found.setdefault(name.casefold(), each) is not each:
            raise bad_field("paths.projects.name", repr(name), "each name once")
        _path(f"paths.projects.{name}", each.path)
        for below in (*each.walls, *each.hidden):
            if below.startswith("/") or not {"", ".", ".."}.isdisjoint(below.split("/")):
                raise bad_field(f"paths.projects.{name}", repr(below), "a path below the project")
    return tuple(found.values())


def _path(name: str, path: str) -> Path:
    if not path.startswith("/") or "\0" in path:
        raise bad_field(name, repr(path), "an absolute path")
    return Path(path)


def _matching(name: str, value: str, pattern: str) -> str:
    if not re.fullmatch(pattern, value):
        raise bad_field(name, repr(value), pattern)
    return value


def bad_field(name: str, value: str, accepted: str) -> GuestError:
    """INVALID_ARGUMENT for the field `name`."""
    return GuestError(
        Code.INVALID_ARGUMENT,
        f"bad envelope, {name}: {value}",
        details=f"accepted: {accepted}",
        resolution="start guests through the runner of the same version: runner restart",
    )
