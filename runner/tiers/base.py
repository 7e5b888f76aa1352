"""The interface to a tier; this page is enough to implement it.

A `Tier` is what the entry point with its name, of the group `oxydra.tiers`, leads to: what the
runner asks without starting anything. It opens a `TierDriver`.

A driver starts a guest from a `LaunchSpec` and reports how it ends. It knows nothing of gRPC:
whether a guest answers is the supervisor's business. `tests/conformance/test_tier_drivers.py` runs
one suite against every driver.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from runner.workspace.mounts import BoundMount, Role

if TYPE_CHECKING:
    import grpc
    from wire.settings import Section, UserSettings
    from wire.v1.bootstrap_pb2 import Link
    from wire.v1.control_pb2 import BoundaryReport, GuestStatus
    from wire.v1.egress_pb2 import EgressConfiguration

    from runner.config.models import Config
    from runner.doctor.finding import Finding
    from runner.workspace.workspace import Workspace

HANDLE_VERSION: Final = 1


class Network(StrEnum):
    """What a guest can reach: nothing, or, for egress alone, the outside."""

    NONE = "none"
    POLICY = "policy"
    """A network of its own, in which policies let only named peers through."""
    OUTBOUND = "outbound"


class Port(IntEnum):
    """Where guests listen that have an address of their own."""

    GATEWAY = 7001
    SHELL = 7002
    EGRESS = 7003
    AGENT_LISTENER = 7004
    SHELL_LISTENER = 7005
    EMBEDDER = 7006

    @property
    def listener(self) -> str:
        """The endpoint for all addresses of the guest."""
        return f"tcp:*:{self.value}"

    def at(self, address: str) -> str:
        """The endpoint of a guest with this IP address."""
        return f"tcp:[{address}]:{self.value}" if ":" in address else f"tcp:{address}:{self.value}"


@dataclass(frozen=True)
class Limits:
    """What a guest with all its processes may use."""

    memory_bytes: int = 1024 * 1024 * 1024
    processes: int = 256
    cpus: float = 2.0


@dataclass(frozen=True)
class LaunchSpec:
    """Everything that a driver needs to start one guest once.

    `command` and `working_directory` are as the guest sees them. `environment` is complete: a
    driver adds only what its tier cannot do without, and never passes on the runner's own.
    `envelope` is what the guest reads from its standard input, which then stays open. It is secret,
    so it must appear in no representation, argument, variable or file that outlives the start.
    Output of the guest is appended to `log_path` on the host. `owner` is the uid and gid that own
    the mounts. `home` is the directory on the host that the guest serves: its user's workspace, or
    the embedder's directory (then `user_id` is empty).
    """

    role: Role
    user_id: str
    home: Path
    launch_id: str
    command: tuple[str, ...]
    mounts: tuple[BoundMount, ...]
    environment: Mapping[str, str]
    envelope: bytes = field(repr=False)
    log_path: Path
    working_directory: Path
    owner: tuple[int, int]
    network: Network = Network.NONE
    limits: Limits = Limits()
    directories: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Device and inode of the directories to be mounted, by their virtual paths, as they were found
    over no link. The engine mounts by name: what it has mounted is compared with these inside."""
    tool: str = ""
    """The MCP server whose guest this is, or whose way out; the user's own have none."""
    incoming: Path | None = None
    """A file that the guest reads behind the envelope, where it does not see this machine's."""


@dataclass(frozen=True)
class Capabilities:
    """What a tier can do. `unsupported` has, for each role that it cannot run, the reason in one
    sentence for `status`."""

    tier: str
    unsupported: Mapping[Role, str]
    own_files: frozenset[Role] = frozenset()
    """The roles whose guests have their own file system, with the mounts at their virtual paths.
    Other guests see the host's paths."""
    own_programs: bool = False
    """Guests run the console scripts of their image instead of this Python installation."""
    limits_memory: bool = True
    """A guest with all its processes is held to its memory from outside. Otherwise the shell guest
    must watch that itself."""
    own_kernel: bool = False
    """Guests have a kernel of their own, which numbers files as it likes."""
    placement: "Placement" = field(default_factory=lambda: Placement())
    """Where guests listen, and how the runner and they reach each other."""
    let_out: "Callable[[EgressConfiguration, Role], Awaitable[None]] | None" = None
    """Opens for an egress guest what its configuration needs; where the tier's network shuts it."""
    host_loopback: bool = False
    """Egress guests have a loopback of their own, so servers on that of this machine are handed to
    them by sockets of the runner."""
    own_network: bool = True
    """Agents have a network namespace of their own. Otherwise only a filter of system calls keeps
    them from the host's network, and nothing from its abstract Unix sockets."""


@dataclass(frozen=True)
class Confinement:
    """What a tier promises for one guest, as the guest itself can see it.

    `uid` and `gid` are those inside. `seccomp`: the tier has a filter of system calls besides the
    shell daemon's own. `user_namespace`: the guest has its own, in which groups of the host's user
    cannot be dropped and show as the overflow group. `own_kernel`: it runs in a virtual machine.
    `read_only` lists mount points of programs that the tier adds to the root file system.
    """

    uid: int
    gid: int
    seccomp: bool = False
    user_namespace: bool = False
    own_kernel: bool = False
    read_only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Handle:
    """One started guest. It can be saved, and another runner of the same generation can
    `recover` it. `data` belongs to the driver and holds no secret. `address` is where the ports of
    a guest with an address of its own are."""

    driver: str
    role: Role
    user_id: str
    launch_id: str
    data: Mapping[str, Any]
    version: int = HANDLE_VERSION
    address: str = ""

    def endpoint(self, port: Port) -> str:
        """Where a port of the guest is; empty for one without an address of its own."""
        return port.at(self.address) if self.address else ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Handle":
        """Raises `ValueError` for another generation or a damaged handle."""
        try:
            if content["version"] != HANDLE_VERSION:
                raise ValueError(f"handle has version {content['version']}")
            role, data = Role(content["role"]), dict(content["data"])
            return cls(**{**content, "role": role, "data": data})
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged handle: {error!r}") from None


@dataclass(frozen=True)
class GuestMounts:
    """The mounts of one guest. With `own_files` they are at their virtual paths, otherwise at
    the host's paths."""

    mounts: Sequence[BoundMount]
    own_files: bool

    def path(self, host_path: Path) -> Path:
        """The guest's path of `host_path`. Raises `ValueError` if no mount contains it."""
        if not self.own_files:
            return host_path
        for bound in sorted(self.mounts, key=lambda bound: -len(bound.host_path.parts)):
            if host_path.is_relative_to(bound.host_path):
                return Path(bound.mount.virtual) / host_path.relative_to(bound.host_path)
        raise ValueError(f"{host_path} is in no mount of this guest")

    def endpoint(self, host_socket: Path) -> str:
        """The address of a Unix socket, as the guest sees it."""
        from wire.transport import unix_endpoint  # imports grpc

        return unix_endpoint(self.path(host_socket))


class Placement:
    """On this machine: guests listen on Unix sockets, and end with the runner's end of a pipe."""

    until: tuple[str, ...] = ("--exit-with-parent",)
    """The guest's arguments that say how long it lives."""
    network = Network.NONE
    """Of guests that only others of their user connect to."""
    environment: Mapping[str, str] = MappingProxyType({})
    """What the agent guest needs besides, to find its own directories."""
    shell_directory = Path("/shared")
    """Where the shell guest starts."""
    lasting = False
    """Guests outlive the runner, and the next one adopts them."""
    addressed = False
    """Guests have an address of their own, which is another one after each start. Those that are
    to connect to them are told."""

    def name(self, launch_id: str) -> str:
        """What a guest's certificate says of its launch: nothing where its socket says it."""
        return ""

    def listener(self, socket: Path, seen: GuestMounts, port: Port) -> str:
        """Where a guest listens, as it sees that itself."""
        return seen.endpoint(socket)

    def reached(self, socket: Path) -> str:
        """Where the runner reaches a guest that listens so; empty if its handle says it."""
        from wire.transport import unix_endpoint  # imports grpc

        return unix_endpoint(socket)

    def egress_endpoint(self, socket: Path, seen: GuestMounts, handle: Handle | None) -> str:
        """Where the shell guest, which has the mounts `seen`, reaches its egress guest, of which
        `handle` is that of the one that runs. Empty if nowhere now."""
        return seen.endpoint(socket)

    def recovered(self, path: Path) -> Any:
        """The `RecoveryState` that an earlier runner has left; None where guests do not outlive
        it."""
        return None

    def leave(self, state: Any, path: Path) -> None:
        """Store a `RecoveryState` for the next runner, where guests outlive this one."""

    def link(self, base: "Link", handle: Handle | None, port: Port) -> "Link":
        """`base`, to the guest that runs."""
        return base


@dataclass(frozen=True)
class Inspection:
    """The state of a guest. `pid` and `resident_bytes` are 0 if the tier cannot tell;
    `exit_code` is None while the guest runs or if the code is unknown, and negative for a
    signal."""

    running: bool
    pid: int = 0
    exit_code: int | None = None
    resident_bytes: int = 0


class Boundary(Protocol):
    """The boundary self-test of one user's guests. The methods that return a report raise
    `TierError` only if nothing says what a guest is to try."""

    async def of_shell(
        self,
        channel: "grpc.aio.Channel",
        launch: LaunchSpec,
        tokens: Mapping[str, str],
        canary: str,
    ) -> "BoundaryReport":
        """The whole self-test of the shell guest. `tokens` are those that it must not hold, by
        their descriptions; the `canary` stands for all else in the agent's envelope."""

    async def of_agent(self, channel: "grpc.aio.Channel", launch: LaunchSpec) -> "BoundaryReport":
        """The ways out of the agent guest."""

    def require_passed(self, report: "BoundaryReport", role: Role) -> None:
        """Raise `TierError` (FAILED_PRECONDITION) that lists every failed check, with the fix."""

    async def until_open(
        self,
        role: Role,
        channel: "grpc.aio.Channel",
        launch: LaunchSpec,
        changed: asyncio.Event,
    ) -> "BoundaryReport":
        """Try the agent or the shell guest again, from time to time and whenever `changed` is set,
        which says that guests have come or gone. Returns what was found once it does not pass;
        never, where nothing that it reaches changes while it runs."""
        never: asyncio.Future[BoundaryReport] = asyncio.get_running_loop().create_future()
        return await never


class TierDriver(Protocol):
    """Starts, watches and ends guests in one tier. Safe to use from many tasks. Subclasses have the
    answers of guests on this machine for what is asked behind `close`.

    Failures of the tier raise `runner.errors.TierError`. That a guest ends, with whatever exit
    code, raises nothing.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def check(self) -> list[str]:
        """Check that guests can run here, before anything is created for them.

        Returns notices for the operator. Raises `TierError`, with the fix, if they cannot run.
        """

    def confinement(self, spec: LaunchSpec) -> Confinement:
        """What the boundary self-test must find inside the guest of `spec`."""

    async def start(self, spec: LaunchSpec) -> Handle:
        """Start a guest and hand it its envelope, without waiting until it is ready.

        A guest that ends before it has read its envelope counts as started; `inspect` tells. A
        guest outlives the driver and the runner, unless it watches its standard input, which ends
        with the runner. Cancelling ends what was begun. Raises `TierError` if it cannot be started
        (command missing, log not writable, role unsupported); then nothing of it is left.
        """

    async def inspect(self, handle: Handle) -> Inspection:
        """The state of the guest now. Never raises for a guest that is gone."""

    async def wait(self, handle: Handle) -> int | None:
        """Wait until the guest has ended. Returns its exit code, None if unknown.

        Returns at once if it has ended already or is not ours. Several tasks may wait.
        """

    async def stop(self, handle: Handle, grace: float = 5.0) -> None:
        """End the guest and everything it has started; nothing of it runs on return.

        The guest is asked first and killed after `grace` seconds (0: at once). Cancelling kills at
        once. Does nothing for a guest that has ended. Raises `TierError` if it cannot be ended.
        """

    async def clear(self, user_id: str, home: Path) -> list[str]:
        """End all guests of this home that the tier still knows, also those without a saved handle,
        but not those that this driver has recovered.

        Returns what was ended, in words. Only call this before a start.
        """

    async def recover(self, handle: Handle) -> bool:
        """Whether the guest of an earlier runner still runs. If so, `inspect`, `wait` and `stop`
        work on it from now on. Never mistakes another process with the same pid or name for
        it."""

    async def close(self) -> None:
        """Give up what the driver itself holds open. Guests go on. Idempotent."""

    @property
    def beside(self) -> "TierDriver":
        """The driver of egress and the embedder, whose sockets and locks are the host kernel's."""
        return self

    def notices(
        self, settings: "UserSettings", user_id: str, environ: Mapping[str, str]
    ) -> list[str]:
        """What an operator is to know of the settings of a user in this tier. Blocks."""
        return []

    def private(self) -> list[Path]:
        """Paths of this machine that no guest may reach, besides those of every tier."""
        return []

    def boundary(self, user_id: str, environ: Mapping[str, str]) -> Boundary | None:
        """The self-test where it is another one than that of guests on this machine."""
        return None

    def embedder(
        self, home: Any, user_id: str, on_moved: Callable[[], Awaitable[None]]
    ) -> "SharedEmbedder | None":
        """A share in embedders that others start, where the runner starts none. `home` is the
        `EmbedderHome`; `on_moved` is called when the agent has to be told of another address."""
        return None


class SharedEmbedder(Protocol):
    """One host's share in the embedder; see `runner.host.embedder.Embedder`."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def link(self) -> "Link": ...

    async def status(self) -> "GuestStatus": ...


class Tier:
    """What the runner asks of a tier before, after and besides its driver. Made without arguments.
    Its module imports nothing that it can do without, because every command loads it; methods may.
    The answers here are those of a tier whose guests run on this machine."""

    name: str
    table: "type[Section] | None" = None
    """The model of the tier's own table in `runner.toml`, which has its name."""
    extra = ""
    """The extra of the wheel that has the packages of this tier alone."""
    here = True
    """Guests run on this machine and its kernel, and what is a user's is on its disk."""
    images = True
    """Guests come from images, with files of their own. Otherwise they run this installation's
    programs, and all but the shell see this machine's files."""
    insecure = False
    """No container is around the agent, so the tier must be asked for with --insecure."""
    own_kernel = False
    """Agents and shells need an OCI runtime that gives each a kernel of its own."""

    def driver(self, config: "Config") -> TierDriver:
        """A new driver, which has touched nothing yet."""
        raise NotImplementedError

    def workspace(self, config: "Config", user_id: str) -> "Workspace | None":
        """A user's directories, where they are otherwise than beside each other on this disk."""
        return None

    def findings(self, config: "Config", user_id: str) -> "list[Finding]":
        """What `runner doctor` finds besides what it looks at itself. Blocks."""
        return []

    def memory_server(self, url: str, host: str) -> "Finding | None":
        """What `runner doctor` is to say of a memory server at `host` that guests reach otherwise
        than this machine does; None if this machine can ask it for them."""
        return None

    def objects(self, config: "Config", user_id: str, home: Path) -> list[str]:
        """What a removal of a user ends or leaves outside of the workspace `home`, in words.
        Blocks. Raises `TierError`."""
        return []

    async def remove(self, config: "Config", user_id: str) -> None:
        """Remove what is a user's and no guest, outside of the workspace. Raises `TierError`."""

    def remains(self, config: "Config", user_id: str) -> list[str]:
        """What a removal leaves, and how to be rid of it."""
        return []

    replicas = False
    """Several runners may serve the same users; one at a time is active, and guests outlive it."""

    async def require_active(self, config: "Config") -> None:
        """Raise `HostError` in a replica that is not the active one."""

    async def lead(
        self,
        config: "Config",
        stack: AsyncExitStack,
        ended: asyncio.Event,
        say: Callable[[str], object],
        *,
        serves: bool,
    ) -> bool:
        """Wait until this replica is the active one, and stay it until `stack` is closed. `ended`
        is set once it no longer is. Returns false if it was set before. `say` shows a line to a
        person; to a replica that `serves`, clients are then led."""
        return True
