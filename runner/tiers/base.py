"""The one interface to a tier, implementable from this page alone.

A driver turns a `LaunchSpec` into a running guest and says what became of it.
It knows nothing of gRPC: whether a guest answers is the supervisor's business.
`tests/conformance/test_tier_drivers.py` runs one suite against every driver.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from runner.workspace.mounts import BoundMount, Role

HANDLE_VERSION: Final = 1


class Network(StrEnum):
    """What a guest can reach: nothing at all, a network of its user without a way
    out, or the outside. Never the host's own interfaces."""

    NONE = "none"
    INTERNAL = "internal"
    OUTBOUND = "outbound"


@dataclass(frozen=True)
class Limits:
    """What a guest with all its processes may use."""

    memory_bytes: int = 1024 * 1024 * 1024
    processes: int = 256
    cpus: float = 2.0


@dataclass(frozen=True)
class LaunchSpec:
    """Everything a driver needs to start one guest once.

    `command` and `working_directory` are as the guest sees them. `environment`
    is the whole environment of the guest: a driver adds only what its tier
    cannot do without and never passes on the runner's own. `envelope` is what
    the guest reads from its standard input, which stays open after it; it is
    secret, so it is in no representation, argument, variable or file that
    outlives the hand-over. The guest's standard output and error are appended
    to `log_path` on the host. `owner` is the uid and gid that own the mounts.
    `home` is the directory on the host that the guest serves: its user's
    workspace, or the embedder's directory (then `user_id` is empty).
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


@dataclass(frozen=True)
class Capabilities:
    """What a tier can do. `unsupported` says of each role it cannot run why not,
    in one sentence that `status` shows."""

    tier: str
    unsupported: Mapping[Role, str]
    own_files: frozenset[Role] = frozenset()
    """The roles whose guests have a file system of their own, where the mounts are at
    their virtual paths; other guests see the host's paths."""
    own_programs: bool = False
    """Guests run the console scripts of their image, not this Python installation."""


@dataclass(frozen=True)
class Confinement:
    """What a tier promises of one guest, as the guest itself can see it.

    `uid` and `gid` are who the guest is to itself. `seccomp`: its commands run
    under a system call filter. `user_namespace`: it has one of its own, in which
    groups of the host's user cannot be dropped and show as the overflow group.
    `own_kernel`: it runs in a virtual machine. `read_only` are mount points of
    programs that the tier brings besides the root file system. `python` is the
    interpreter that finds `shell_daemon`, as the guest has it.
    """

    uid: int
    gid: int
    python: str
    seccomp: bool = False
    user_namespace: bool = False
    own_kernel: bool = False
    read_only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Handle:
    """One started guest, serialisable: another runner of the same generation can
    take it up again with `recover`. `data` is the driver's own and holds no secret."""

    driver: str
    role: Role
    user_id: str
    launch_id: str
    data: Mapping[str, Any]
    version: int = HANDLE_VERSION

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Handle":
        """Raises `ValueError` for another generation or a damaged handle."""
        try:
            if content["version"] != HANDLE_VERSION:
                raise ValueError(f"handle has version {content['version']}")
            return cls(
                driver=content["driver"],
                role=Role(content["role"]),
                user_id=content["user_id"],
                launch_id=content["launch_id"],
                data=dict(content["data"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged handle: {error!r}") from None


@dataclass(frozen=True)
class Inspection:
    """A look at a guest. `pid` and `resident_bytes` are 0 where the tier has none to
    show; `exit_code` is None while it runs or where nobody knows (negative: a signal)."""

    running: bool
    pid: int = 0
    exit_code: int | None = None
    resident_bytes: int = 0


class TierDriver(Protocol):
    """Starts, looks at and ends guests in one tier. Safe to use from many tasks.

    Failures of the tier itself raise `runner.errors.TierError`; a guest that
    ends, with whatever code, is data and raises nothing.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def check(self) -> list[str]:
        """Whether guests can run here at all, before anything is made for them: what the
        operator should know, in words. Raises `TierError` with the fix where not."""
        ...

    def confinement(self, spec: LaunchSpec) -> Confinement:
        """What must hold inside the guest of `spec`, for the boundary self-test."""
        ...

    async def start(self, spec: LaunchSpec) -> Handle:
        """Start a guest and hand it its envelope; does not wait for it to be ready.

        Raises `TierError` where it cannot be started (command missing, log not
        writable, role unsupported); then nothing of it is left. A guest that
        ends before it has read its envelope was started all the same: `inspect`
        tells. A guest outlives the driver and the runner: one that must not
        watches its standard input, which ends with the runner. Cancelling ends
        what was begun.
        """
        ...

    async def inspect(self, handle: Handle) -> Inspection:
        """How the guest is now; never raises for a guest that is gone."""
        ...

    async def wait(self, handle: Handle) -> int | None:
        """Return when the guest has ended: its exit code, None where nobody knows it.
        At once for one that has ended already or is not ours. Many may wait."""
        ...

    async def stop(self, handle: Handle, grace: float = 5.0) -> None:
        """End the guest and everything it started; nothing of it runs on return.

        Asked politely first, killed after `grace` seconds (0: at once).
        Idempotent; fine for a guest that has ended. Raises `TierError` where it
        cannot be ended. Cancelling kills at once.
        """
        ...

    async def clear(self, user_id: str, home: Path) -> list[str]:
        """End whatever guests of this home the tier itself still knows, though no handle
        of them was saved; what was ended, in words. Only before a start."""
        ...

    async def recover(self, handle: Handle) -> bool:
        """Whether the guest of an earlier runner still runs; if so, `inspect`, `wait`
        and `stop` work on it from now on. Never takes a stranger that got the
        same pid or name for it."""
        ...
