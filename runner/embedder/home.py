"""The embedder's directory, as every runner on this host shares it.

    embedder-<key>/       one per way to run it, backend and model
        token                 what callers send; stable, so that guests survive a restart of it
        spawn.lock            locked by the runner that is starting it
        socket/embedder.sock  where it serves; all that guests may see
        state/embedder.lock   locked by the running embedder, which writes its pid into it
        state/leases          locked (shared) by every runner that wants the embedder
        state/embedder.log    its log

The system releases a lock however its holder ends, so no state here can be
stale. `socket/` and `state/` belong to whom the embedder runs as; the rest is
the runner's alone.
"""

import abc
import asyncio
import contextlib
import fcntl
import hashlib
import os
import signal
import threading
from pathlib import Path
from typing import Protocol

from wire.errors import Code, WireError
from wire.logs import find_startup_failure
from wire.transport import new_token, unix_endpoint

from runner.errors import HostError, WorkspaceError
from runner.host import logs
from runner.workspace.directories import create_tree
from runner.workspace.ownership import Owner


class EmbedderSettings(Protocol):
    """What the configuration's `[embedder]` section offers."""

    @property
    def backend(self) -> str: ...
    @property
    def model(self) -> str: ...


class Child(Protocol):
    """An embedder that this runner started. It outlives the runner while others need it."""

    log_start: int
    """Where its lines begin in the log."""
    exited: asyncio.Event
    code: int | None
    """How it ended, once `exited` is set: an exit status, negative for a signal, None
    where nobody knows."""

    async def send(self, number: signal.Signals) -> None:
        """Send `number` unless it has ended."""
        ...


class EmbedderHome(abc.ABC):
    """The directory of one embedder, and how the embedder in it is run.

    What is not a coroutine is quick and blocks on the disk at most.
    """

    def __init__(self, runtime_dir: Path, settings: EmbedderSettings, owner: Owner) -> None:
        self.backend = settings.backend
        self.model = settings.model
        if self.model.startswith(("./", "../", "~")):
            self.model = str(Path(self.model).expanduser().resolve())
        self.owner = owner
        named = self.backend if self.backend == "hashing" else f"{self.backend}\0{self.model}"
        named += "".join(f"\0{word}" for word in self._kind(runtime_dir))
        self.key = hashlib.blake2b(named.encode(), digest_size=4).hexdigest()
        self.path = runtime_dir / f"embedder-{self.key}"
        self.socket_directory = self.path / "socket"
        self.state_directory = self.path / "state"
        self.socket = self.socket_directory / "embedder.sock"
        self.lock = self.state_directory / "embedder.lock"
        self.leases = self.state_directory / "leases"
        self.log = self.state_directory / "embedder.log"
        self.spawn_lock = self.path / "spawn.lock"

    @abc.abstractmethod
    def _kind(self, runtime_dir: Path) -> tuple[str, ...]:
        """What tells this way to run an embedder from others in the same directory."""

    @abc.abstractmethod
    async def spawn(self, token: str) -> Child:
        """Start an embedder; raises `WireError` or `OSError` where that is impossible.

        The caller holds `spawn_lock` and has seen that none runs. Cancelling
        ends what was begun.
        """

    @abc.abstractmethod
    async def pid(self) -> int:
        """The host's id of the running embedder's process; 0 where none is to be seen."""

    @abc.abstractmethod
    async def signal(self, number: signal.Signals) -> None:
        """Send `number` to the running embedder, whoever started it; nothing where none runs."""

    @property
    def endpoint(self) -> str:
        """Where it serves; raises `WireError` where the path is too long for a socket."""
        return unix_endpoint(self.socket)

    def prepare(self) -> str:
        """Create the directory and the token where they are missing; returns the token.

        Raises `WorkspaceError` where the directory is not ours alone.
        """
        create_tree(self.path.parent, [self.path.name])
        create_tree(self.path, [self.socket_directory.name, self.state_directory.name], self.owner)
        try:
            os.close(self._opened(self.leases))
            return self._token()
        except OSError as error:
            raise WorkspaceError(
                Code.FAILED_PRECONDITION,
                f"cannot keep the embedder's token in {self.path}",
                details=str(error),
                resolution=f"make room and access for {self.path}",
            ) from None

    def is_running(self) -> bool:
        """Whether an embedder holds the lock. What is no file cannot be held; the
        embedder that is started next says so."""
        if not self.lock.exists():
            return False
        try:
            descriptor = try_lock(self.lock, fcntl.LOCK_SH)
        except OSError:
            return False
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def life(self) -> int:
        """A number that is another one for every embedder that ran here; 0 where none
        runs or it is just starting."""
        try:
            found = self.lock.lstat()
        except FileNotFoundError:
            return 0
        return found.st_mtime_ns if found.st_size and self.is_running() else 0

    def clear(self) -> None:
        """Remove what a killed embedder left. Only where none runs and none may start."""
        self.socket.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            descriptor = os.open(self.lock, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def open_log(self) -> int:
        """A descriptor that appends to the log, which belongs to the embedder afterwards."""
        descriptor = logs.open_for_append(self.log)
        self._hand_over(descriptor)
        return descriptor

    def start_failure(self, child: Child) -> WireError:
        """Why `child` ended before it served, from its own lines in the log."""
        lines = logs.read_from(self.log, child.log_start)
        told = find_startup_failure(lines)
        last = (lines.strip().splitlines() or ["it wrote nothing"])[-1]
        return told or HostError(
            Code.UNAVAILABLE,
            f"the embedder exited with status {child.code}",
            details=last[:300],
            resolution=f"read {self.log}",
        )

    def _opened(self, path: Path) -> int:
        """A descriptor of a file that the embedder may open too; creates it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        self._hand_over(descriptor)
        return descriptor

    def _hand_over(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_uid != self.owner.uid:
            os.fchown(descriptor, self.owner.uid, self.owner.gid)

    def _token(self) -> str:
        """The stored token; linking a complete file makes its creation atomic."""
        path = self.path / "token"
        if not path.exists():
            draft = self.path / f"token.{os.getpid()}.{threading.get_ident()}"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, new_token().encode())
                os.fsync(descriptor)
                with contextlib.suppress(FileExistsError):
                    path.hardlink_to(draft)
            finally:
                os.close(descriptor)
                draft.unlink()
        return path.read_text()


def try_lock(path: Path, kind: int) -> int | None:
    """A descriptor that holds `path` locked until it is closed, or None where others do."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


async def lock_within(path: Path, kind: int, seconds: float) -> int | None:
    """`try_lock` again and again for `seconds`; a lock has no event to wait for."""
    deadline = asyncio.get_running_loop().time() + seconds
    while (descriptor := try_lock(path, kind)) is None:
        if asyncio.get_running_loop().time() > deadline:
            return None
        await asyncio.sleep(0.02)
    return descriptor
