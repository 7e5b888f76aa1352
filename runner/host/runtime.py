"""The runner's own directory: sockets, locks and state that no guest can see."""

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import platformdirs
from wire import locks
from wire.disk import store
from wire.errors import Code
from wire.limits import UNIX_SOCKET_PATH_MAX_BYTES
from wire.transport import unix_endpoint

from runner.config import tiers
from runner.config.models import Config
from runner.config.trust import writable_by_others
from runner.config.user_id import USER_ID_MAX_CHARS, check_user_id
from runner.errors import HostError
from runner.tiers.base import Handle
from runner.workspace.directories import check_root, check_tree, create_tree, descriptor

_LONGEST_SOCKET: Final = len(f"/01234567/{'u' * USER_ID_MAX_CHARS}/control.sock")
_TIMEOUT_S = 0.5
"""`status` takes the lock for microseconds to look at it; a host keeps it."""
_VERSION: Final = 1


def runtime_base(config: Config) -> Path:
    """The directory that all hosts of this operator share. Touches nothing on disk.

    It is the platform's runtime directory. If there is none, if it is another account's (as after
    `su`), or if a socket path in it would be too long, it is one in the home, where no other
    account can take the name first; for an account without a home of its own, one below /tmp.
    """
    if config.runtime_dir is not None:
        return config.runtime_dir
    fallback = _without_platform()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            platform = platformdirs.user_runtime_path("oxydra")
        except PermissionError:
            return fallback
    temporary = platform.is_relative_to(tempfile.gettempdir())
    unfit = temporary or _too_long(platform) or writable_by_others(platform.parent)
    return fallback if unfit else platform


def _without_platform() -> Path:
    at_home = platformdirs.user_state_path("oxydra") / "run"
    try:
        own = Path("~").expanduser().stat().st_uid == os.geteuid()
    except (OSError, RuntimeError):
        own = False
    if own and at_home.is_absolute() and not _too_long(at_home):
        return at_home
    return Path("/tmp") / f"oxydra-{os.geteuid()}"  # noqa: S108 - ownership is checked


def _too_long(base: Path) -> bool:
    return len(os.fsencode(base)) + _LONGEST_SOCKET > UNIX_SOCKET_PATH_MAX_BYTES


class Runtime:
    """The runtime directory of one user of one `workspace_root`."""

    def __init__(self, base: Path, relative: str) -> None:
        self.base = base
        self.directory = base / relative
        self.lock = self.directory / "host.lock"
        self.socket = self.directory / "control.sock"
        self.token = self.directory / "control.token"
        self.identity = self.directory / "control.pem"
        self.state = self.directory / "state.json"
        self.handover = self.directory / "handover.json"
        self.log = self.directory / "host.log"
        self.stays = self.directory / "stays"
        """There if a host that was woken is not to end by itself."""
        self.talking = self.directory / "talking.lock"
        """Held by chats, and by a host that ends because nobody needs it."""
        self.projects = self.directory / "projects"
        """What is mounted for guests; see `MappedMounts`."""
        self.last_start = self.directory / "last_start.json"
        self._directories = (relative.partition("/")[0], relative)

    @classmethod
    def locate(cls, config: Config, user_id: str) -> "Runtime":
        """Raises `WorkspaceError` for a bad user id, and for a path too long for the control
        socket."""
        root = os.path.realpath(config.workspace_root)
        digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
        runtime = cls(runtime_base(config), f"{digest}/{check_user_id(user_id)}")
        unix_endpoint(runtime.socket)
        return runtime

    def check(self) -> None:
        """Check that the directory belongs to us and that nobody else has access."""
        check_root(self.base, private=True)
        check_tree(self.base, self._directories)

    def create(self) -> None:
        """Create it with mode 0700. Idempotent."""
        self.check()
        create_tree(self.base, self._directories)


@dataclass(frozen=True)
class Holder:
    """What the holder wrote into the lock; `pid` is 0 if it has not written yet."""

    pid: int = 0
    since: str = ""


@contextmanager
def host_lock(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, and empty the file on release.

    Raises `HostError` (ALREADY_EXISTS) that names the holder.
    """
    with descriptor(path, os.O_RDWR | os.O_CREAT) as fd:
        if not locks.take(fd, wait_s=_TIMEOUT_S):
            holder = _read(fd)
            who = f"pid {holder.pid}, since {holder.since}" if holder.pid else "starting just now"
            raise HostError(
                Code.ALREADY_EXISTS,
                "a runner for this user is there already",
                details=f"{who}; it holds {path}",
                resolution="talk to it with `runner chat`, or end it: runner stop",
            )
        holder = Holder(os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(asdict(holder)).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(fd, 0)


def lock_holder(path: Path) -> Holder | None:
    """Who holds the lock now, or None. Does not wait."""
    with suppress(FileNotFoundError), descriptor(path, os.O_RDONLY) as fd:
        if not locks.take(fd, shared=True):
            return _read(fd)
    return None


def is_running(config: Config, user_id: str) -> bool:
    """Whether a user's host holds its lock, that is runs, starts or ends."""
    return lock_holder(Runtime.locate(config, user_id).lock) is not None


def _read(fd: int) -> Holder:
    try:
        content = json.loads(os.pread(fd, 4096, 0))
        return Holder(int(content["pid"]), str(content["since"]))
    except (ValueError, KeyError, TypeError):
        return Holder()


def save_state(path: Path, handles: Sequence[Handle]) -> None:
    """Write the handles of all running guests, completely or not at all."""
    write_json(path, {"version": _VERSION, "guests": [handle.to_json() for handle in handles]})


def write_json(path: Path, content: object) -> None:
    """Write it, completely or not at all, readable for nobody else."""
    store(path, json.dumps(content))


def load_state(path: Path) -> tuple[Handle, ...]:
    """The handles that the last host left; none after a clean stop.

    Raises `ValueError` if the file is damaged or has another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    try:
        if content["version"] != _VERSION:
            raise ValueError(f"state has version {content['version']}")
        return tuple(Handle.from_json(item) for item in content["guests"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"damaged state: {error!r}") from None


@dataclass(frozen=True)
class LastStart:
    """How a user's host was started last, for commands that are given other options than it was.

    `embedder` is the home of the embedder that it uses.
    """

    tier: str
    embedder: Path

    def save(self, runtime: Runtime) -> None:
        content = {"tier": self.tier, "embedder": os.fspath(self.embedder)}
        write_json(runtime.last_start, content)

    @classmethod
    def load(cls, runtime: Runtime) -> "LastStart | None":
        """None if it is not known. Raises `WorkspaceError` where another account could have written
        it."""
        runtime.check()
        try:
            content = json.loads(runtime.last_start.read_text(encoding="utf-8"))
            return cls(str(content["tier"]), Path(content["embedder"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @classmethod
    def tier_of(cls, config: Config, user_id: str) -> str:
        """The tier of a user's last start; that of the settings where it is not known, or not
        installed."""
        runtime = Runtime.locate(config, user_id)
        last = cls.load(runtime) if runtime.directory.exists() else None
        return last.tier if last and last.tier in tiers.NAMES else config.tier
