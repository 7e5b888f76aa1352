"""The embedder: one per host and model, shared by the runners of all users.

A tier's driver starts it and a `Supervisor` watches it, as with other guests. But it belongs to
no user, and it outlives the runner that started it while another runner needs it. The runners
share its home:

    embedder-<key>/       one per backend, model and way to run it
        token                 sent by callers
        authority.pem         issues the identities of its callers and its own. Both are stable,
                              so that guests survive its restart
        state.json            the handle of the running embedder
        spawn.lock            locked by the runner that starts or recovers it
        socket/embedder.sock  where it serves; other guests see only this directory
        state/leases          locked (shared) by every runner that wants the embedder
        state/embedder.lock   locked by the running embedder
        state/embedder.log    its log

The kernel releases a lock however its holder ends, so no lock can be stale. `socket/` and
`state/` belong to the uid that the embedder runs as, everything else to the runner. Where users'
guests have other uids, they may enter `socket/`; the home around it is closed to them.
"""

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import grpc
from wire import envelope, locks
from wire.disk import held, store
from wire.errors import Code
from wire.identity import Party, Peer
from wire.limits import ENVELOPE_VERSION
from wire.status import from_rpc_error
from wire.transport import new_token, unix_endpoint
from wire.v1 import bootstrap_pb2, control_pb2, embedder_pb2, embedder_pb2_grpc

from runner import logs
from runner.config.models import Config
from runner.errors import HostError, WorkspaceError, file_errors
from runner.host.authority import Authority
from runner.host.launch import OWN_ENVIRONMENT, program
from runner.host.runtime import load_state, save_state
from runner.host.supervisor import Launch, Policy, Supervisor, disabled
from runner.host.weights import Weights, located, weights_of, weights_of_reranker
from runner.images.naming import ImageRole, image_name
from runner.tiers.base import GuestMounts, Handle, LaunchSpec, Limits, SharedEmbedder, TierDriver
from runner.tiers.drivers import tier_of
from runner.workspace.directories import Owner, create_tree, descriptor
from runner.workspace.guest_uids import GuestUids
from runner.workspace.mounts import Access, BoundMount, Mount, Role

log = logging.getLogger(__name__)

LIMITS: Final = Limits(memory_bytes=4 * 1024**3, processes=256, cpus=os.cpu_count() or 1)
POLICY: Final = Policy(
    check_interval=5.0, check_timeout=5.0, load_time=180.0, backoff_first=0.2, stop_grace=3.0
)
_LEASE_WAIT_S: Final = 10.0
_SPAWN_WAIT_S: Final = 40.0
_LAST_WAIT_S: Final = 0.1
"""The embedder locks the leases for a moment to see whether any are held."""
_INFO_TIMEOUT_S: Final = 1.0
_STATES: Final = {"loading": "starting", "ready": "ready", "failed": "failed"}
NONE: Final = 'embedder.backend = "none"'
_SOCKET_MOUNT: Final = Mount("socket", "", "/embedder/socket", Access.READ_WRITE)
_STATE_MOUNT: Final = Mount("state", "", "/embedder/state", Access.READ_WRITE)
_OWN_ENVIRONMENT: Final = {
    "HOME": "/run",
    "TMPDIR": "/run",
    **OWN_ENVIRONMENT,
    "HF_HUB_OFFLINE": "1",
}
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PASSED_ON: Final = (
    *("PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *(*_PROXIES, *(name.lower() for name in _PROXIES)),
)
_PASSED_ON_PREFIXES: Final = ("HF_", "SENTENCE_TRANSFORMERS_", "PYTHON", "OMP_", "MKL_", "LC_")
"""The only variables passed on, because the runner's environment may hold providers' keys."""


def log_in(home: Path) -> Path:
    """The log of the embedder whose home is `home`."""
    return home / "state" / "embedder.log"


class EmbedderHome:
    """The directory of one embedder. Locating it touches nothing on disk."""

    def __init__(
        self, path: Path, backend: str, model: str, owner: Owner, reranker: str = ""
    ) -> None:
        self.path = path
        self.backend = backend
        self.model = model
        self.reranker = reranker
        self.owner = owner
        self.socket = path / "socket" / "embedder.sock"
        self.leases = path / "state" / "leases"
        self.log = log_in(path)
        self.spawn_lock = path / "spawn.lock"
        self.state = path / "state.json"

    @classmethod
    def locate(cls, config: Config, runtime_base: Path) -> "EmbedderHome":
        """The home that all runners with the same settings share below `runtime_base`."""
        backend, model, owner = config.embedder.backend, config.embedder.model, _owner(config)
        model, reranker = located(model), located(config.embedder.reranker)
        # Runners of another generation could not talk to it.
        words = [str(ENVELOPE_VERSION), backend]
        if backend != "hashing":
            words.append(model)
        if reranker:
            words.append(reranker)
        if tier_of(config).images:
            image = image_name(config.container.images, ImageRole.EMBEDDER)
            words += [image, config.container.engine, str(owner.uid)]
            words += ["for all uids"] if owner.uid != os.geteuid() else []
        key = hashlib.blake2b("\0".join(words).encode(), digest_size=4).hexdigest()
        return cls(runtime_base / f"embedder-{key}", backend, model, owner, reranker)

    @property
    def endpoint(self) -> str:
        """Where it serves. Raises `WireError` if the path is too long for a socket."""
        return unix_endpoint(self.socket)

    @property
    def for_all_uids(self) -> bool:
        """Whether guests of other uids than the embedder's call it."""
        return self.owner.uid != os.geteuid()

    def prepare(self) -> tuple[str, Authority]:
        """Create the directory, the token and the authority if they are missing.

        Returns the token and the authority. Raises `WorkspaceError` if the directory is not private
        to this user.
        """
        create_tree(self.path.parent, [self.path.name])
        create_tree(self.path, ["state"], self.owner)
        create_tree(self.path, ["socket"], self.owner, mode=0o755 if self.for_all_uids else 0o700)
        brief, fix = f"cannot store the embedder's token in {self.path}", "make room and access for"
        with (
            file_errors(brief, f"{fix} {self.path}", kind=WorkspaceError),
            descriptor(self.path, os.O_RDONLY | os.O_DIRECTORY) as home,
        ):
            if not locks.take(home, wait_s=_LEASE_WAIT_S):
                raise OSError(errno.EAGAIN, "another runner is at it")
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._hand_over(os.open(self.leases, flags, 0o600))
            token = self._stored("token", new_token)
            authority = self._stored("authority.pem", lambda: Authority.new().to_pem())
        return token, Authority.from_pem(authority)

    def prepare_log(self) -> None:
        """Create or rotate the log, for the embedder to append to."""
        self._hand_over(logs.open_for_append(self.log, self.path))

    def _hand_over(self, descriptor: int) -> None:
        """Give an open file to the embedder's uid and close it."""
        with held(descriptor):
            if os.fstat(descriptor).st_uid != self.owner.uid:
                os.fchown(descriptor, *self.owner.ids)

    def _stored(self, name: str, new: Callable[[], str]) -> str:
        """The content of a private file, which is made if it is missing. The home is locked."""
        path = self.path / name
        if not path.exists():
            store(path, new())
        return path.read_text()


@dataclass(repr=False, eq=False)
class Embedder(SharedEmbedder):
    """One runner's share in the embedder of `home`.

    Raises `WireError` if the path of its socket is too long. With `backend = "none"` there is no
    embedder; `link` is empty and `status` says so.
    """

    home: EmbedderHome
    driver: TierDriver
    policy: Policy = POLICY
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def __post_init__(self) -> None:
        self._endpoint = self.home.endpoint
        self._enabled = self.home.backend != "none"
        self._since = datetime.now(UTC)
        self._link = bootstrap_pb2.Link(unavailable_reason=NONE)
        self._lease: int | None = None
        self._supervisor = Supervisor(
            self.driver,
            Role.EMBEDDER,
            self._prepare,
            on_handle=self._record,
            policy=self.policy,
            shared=self._recovering,
        )

    async def start(self) -> None:
        """Take a lease, which keeps an embedder running. Returns before it serves. Idempotent.

        Raises `WireError` if the directory is unusable. If the embedder does not start, `status`
        tells.
        """
        if not self._enabled or self._lease is not None:
            return
        self._token, self._authority = self.home.prepare()
        self._link = bootstrap_pb2.Link(
            endpoint=self._endpoint,
            token=self._token,
            identity=self._authority.issue(Party.AGENT).message(),
        )
        self._lease = await locked(self.home.leases, _LEASE_WAIT_S, shared=True)
        if self._lease is None:
            raise HostError(
                Code.UNAVAILABLE,
                "an earlier embedder does not end",
                details=f"{self.home.leases} has been locked for {_LEASE_WAIT_S:g} s",
                resolution=f"fuser --kill {self.home.leases}",
            )
        self._supervisor.start_in_background()

    def link(self) -> bootstrap_pb2.Link:
        """Where guests find it, with an identity for them. Valid after `start`."""
        return self._link

    async def status(self) -> control_pb2.GuestStatus:
        """The current state of the embedder, which is asked for at most two seconds."""
        if not self._enabled:
            return disabled(Role.EMBEDDER, NONE, self._since)
        reply = await self._supervisor.status()
        if reply.state != "ready":
            return reply
        try:
            channel = await self._supervisor.channel()
        except HostError as error:
            reply.state, reply.reason = "unhealthy", f"it has just ended: {error}"
        else:
            await describe(reply, channel)
        return reply

    async def stop(self) -> None:
        """Release the lease, and end the embedder if nobody else holds one. Idempotent."""
        if self._lease is None:
            return
        await self._supervisor.release()
        os.close(self._lease)
        self._lease = None
        try:
            alone = await locked(self.home.leases, _LAST_WAIT_S)
        except OSError as error:
            log.warning("embedder: %s; it ends by itself", error)
            return
        if alone is None:
            return
        with held(alone):
            if (handle := await self._running()) is not None:
                await self.driver.stop(handle, self.policy.stop_grace)
            self.home.socket.unlink(missing_ok=True)
            self.home.state.unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def _recovering(self) -> AsyncIterator[Handle | None]:
        """The running embedder, or None. One runner at a time may be in here."""
        lock = await locked(self.home.spawn_lock, _SPAWN_WAIT_S)
        if lock is None:
            raise HostError(
                Code.UNAVAILABLE,
                f"another runner has been starting the embedder for {_SPAWN_WAIT_S:g} s",
            )
        with held(lock):
            yield await self._running()

    async def _running(self) -> Handle | None:
        """The running embedder, whoever started it, recovered for our driver."""
        try:
            saved = load_state(self.home.state)
        except ValueError as error:
            log.warning("the embedder's state cannot be read: %s", error)
            saved = ()
        for handle in saved:
            known = (await self.driver.inspect(handle)).running
            if known or await self.driver.recover(handle):
                return handle
        return None

    def _record(self, handle: Handle | None) -> None:
        if handle is not None:  # after an end, the state may already be that of another runner
            save_state(self.home.state, [handle])

    def _weights(self) -> Weights:
        home = self.home
        model = weights_of(home.backend, home.model, self.environ)
        return model | weights_of_reranker(home.reranker, self.environ)

    def _prepare(self) -> Launch:
        """A new launch. Raises `TierError` if its model is not on this host."""
        home, capabilities = self.home, self.driver.capabilities
        own_files = Role.EMBEDDER in capabilities.own_files
        weights = self._weights() if own_files else Weights()
        mounts = (
            BoundMount(_SOCKET_MOUNT, home.socket.parent),
            BoundMount(_STATE_MOUNT, home.leases.parent),
            *(
                BoundMount(Mount("weights", "", inside, Access.READ_ONLY), directory)
                for directory, inside in weights.mounts.items()
            ),
        )
        view = GuestMounts(mounts, own_files)
        command = (
            *program(capabilities, "oxydra-embedder", "guest.embedding.server"),
            *("--bootstrap-stdin", "--socket", str(view.path(home.socket))),
            *("--leases", str(view.path(home.leases))),
            *("--backend", home.backend, "--model", home.model),
            *(("--reranker", home.reranker) if home.reranker else ()),
            *(("--for-all-uids",) if home.for_all_uids else ()),
        )
        environment = {
            name: value
            for name, value in self.environ.items()
            if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        }
        if own_files:
            # The engine forwards a container's output only while the process that started it lives.
            redirected = f'exec "$@" >>{view.path(home.log)} 2>&1'
            command = ("/bin/sh", "-c", redirected, "sh", *command)
            environment = {**_OWN_ENVIRONMENT, **weights.environment}
        home.prepare_log()
        spec = LaunchSpec(
            role=Role.EMBEDDER,
            user_id="",
            home=home.path,
            launch_id=str(uuid.uuid4()),
            command=command,
            mounts=mounts,
            environment=environment,
            envelope=envelope.service(self._token, self._authority.issue(Party.EMBEDDER)),
            log_path=home.log,
            working_directory=view.path(home.leases.parent),
            owner=home.owner.ids,
            limits=LIMITS,
        )
        ours = self._authority.issue(Party.RUNNER)
        return Launch(spec, Peer(home.endpoint, Party.EMBEDDER, self._token, ours))


async def describe(reply: control_pb2.GuestStatus, channel: grpc.aio.Channel) -> None:
    """Fill in what the embedder at `channel` says of itself."""
    try:
        stub = embedder_pb2_grpc.EmbedderStub(channel)
        info = await stub.Info(embedder_pb2.EmbedderInfoRequest(), timeout=_INFO_TIMEOUT_S)
    except grpc.RpcError as error:
        reply.state, reply.reason = "unhealthy", f"no answer: {from_rpc_error(error).brief}"
    except grpc.aio.UsageError as error:
        reply.state, reply.reason = "unhealthy", f"it has just ended: {error}"
    else:
        reply.state, reply.reason = _STATES.get(info.state, "unhealthy"), info.reason
        if info.model_id:
            reply.details = f"{info.model_id}, {info.dimensions} dimensions"
        if info.reranker:
            reply.details = f"{reply.details}, reranker: {info.reranker}".removeprefix(", ")


def _owner(config: Config) -> Owner:
    """The owner of the embedder: no user's, so that nothing of any user's belongs to it."""
    if os.geteuid() != 0 or not tier_of(config).here:
        return Owner.ours()
    uids = GuestUids.of(config.container)
    uid = uids.embedder if tier_of(config).images else 0
    return Owner(uid, uid, uids)


async def locked(path: Path, seconds: float, *, shared: bool = False) -> int | None:
    """Lock `path` and return the descriptor that holds the lock; None if others hold it for
    `seconds`. Polls, because a lock has no event to wait for."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        while not locks.take(descriptor, shared=shared):
            if asyncio.get_running_loop().time() > deadline:
                os.close(descriptor)
                return None
            await asyncio.sleep(0.02)
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise
